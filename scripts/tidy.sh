#!/usr/bin/env bash
# Tidies the modules; with -diff, fails where one is not tidy. go mod tidy reads no go.work.
#
# The go.mod of the root has no replace lines, because go install refuses a module that has any. Here the root is tidied
# as if those of go.work stood in it.
set -euo pipefail
cd "$(dirname "$0")/.."
how=${1:-}
failed=

tidy() { # in directory $1, with the other arguments
  local module=$1
  (cd "$module" && GOWORK=off go mod tidy $how "${@:2}") && return
  echo "go.mod or go.sum of $module is not tidy: run make tidy and commit." >&2
  failed=yes
}

# The modules of go.work but for the root, and those that are apart.
for module in $(go list -m -f '{{.Dir}}' | grep -vx "$PWD") internal/release internal/tools test/deploy/kubernetes; do
  tidy "$module"
done

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
{ cat go.mod; echo; sed -n '/^replace (/,/^)/p' go.work; } >"$copy/go.mod"
cp go.sum "$copy/go.sum"
tidy . "-modfile=$copy/go.mod"
if [ "$how" != -diff ]; then
  sed '/^replace (/,$d' "$copy/go.mod" | sed '${/^$/d}' >go.mod
  cp "$copy/go.sum" go.sum
fi
[ -z "$failed" ]
