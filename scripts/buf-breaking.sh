#!/usr/bin/env bash
# Compares the API with earlier ones: the first that may not be broken, and the one before this change (the last commit
# shared with main, or, on main itself, the commit before). The argument is the buf program.
set -euo pipefail
buf=$1

# The first commit with the names and numbers that stay. A commit that breaks the API on purpose empties it, and the
# commit after sets it to the hash of that commit.
first=50c3b2017547d79f5214c6b1ec21f2872c96a11a

last=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || true)
if [ -z "$last" ] || [ "$last" = "$(git rev-parse HEAD)" ]; then
  last=$(git rev-parse --verify -q HEAD~1 || true)
fi
git merge-base --is-ancestor "$first" "$last" 2>/dev/null || last=
compared=0
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
for base in $first $last; do
  git cat-file -e "$base:proto" 2>/dev/null || continue
  mkdir "$before/$base" 2>/dev/null || continue # the same commit twice
  git archive "$base" buf.yaml proto | tar -x -C "$before/$base"
  "$buf" breaking --against "$before/$base"
  compared=$((compared + 1))
done
echo "buf breaking: compared with $compared earlier states of the API"
