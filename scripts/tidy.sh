#!/usr/bin/env bash
# Tidies the modules; with -diff, fails where one is not tidy. go mod tidy reads no go.work.
#
# Two go.mod files have no replace lines: go install refuses a root that has any, and examples/ builds wherever it is
# copied to. These modules are tidied as if the replace lines of go.work stood in them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
how=${1:-}
failed=
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

tidy() { # in directory $1, with the other arguments
  local module=$1
  (cd "$module" && GOWORK=off go mod tidy $how "${@:2}") && return
  echo "go.mod or go.sum of $module is not tidy: run make tidy and commit." >&2
  failed=yes
}

tidy_bare() { # a module in directory $1 that has no replace lines
  { cat "$1/go.mod"; echo; sed -n '/^replace (/,/^)/p' go.work | sed "s#=> \./#=> $root/#"; } >"$copy/go.mod"
  cp "$1/go.sum" "$copy/go.sum"
  tidy "$1" "-modfile=$copy/go.mod"
  if [ "$how" != -diff ]; then
    sed '/^replace (/,$d' "$copy/go.mod" | sed '${/^$/d}' >"$1/go.mod"
    cp "$copy/go.sum" "$1/go.sum"
  fi
}

# The modules of go.work except the bare ones, and those that are apart.
for module in $(go list -m -f '{{.Dir}}' | grep -vx -e "$root" -e "$root/examples") \
  internal/release internal/tools test/deploy/kubernetes; do
  tidy "$module"
done
tidy_bare .
tidy_bare examples
[ -z "$failed" ]
