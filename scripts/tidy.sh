#!/usr/bin/env bash
# Tidies the modules; with -diff, fails where one is not tidy. go mod tidy reads no go.work, and no go.mod has replace
# lines: go install refuses a module that has any, and examples/ builds wherever it is copied to. So each module is tidied
# as if the replace lines of go.work stood in its go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
how=${1:-}
failed=
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

for mod in $(git ls-files --cached --others --exclude-standard -- 'go.mod' '*/go.mod'); do
  module=$(dirname "$mod")
  { cat "$mod"; echo; sed -n '/^replace (/,/^)/p' go.work | sed "s#=> \./#=> $root/#"; } >"$copy/go.mod"
  cp "$module/go.sum" "$copy/go.sum" 2>/dev/null || : >"$copy/go.sum"
  if ! (cd "$module" && GOWORK=off go mod tidy $how -modfile="$copy/go.mod"); then
    echo "go.mod or go.sum of $module is not tidy: run make tidy and commit." >&2
    failed=yes
  fi
  if [ "$how" != -diff ]; then
    sed '/^replace (/,$d' "$copy/go.mod" | sed '${/^$/d}' >"$mod"
    [ ! -s "$copy/go.sum" ] || cp "$copy/go.sum" "$module/go.sum"
  fi
done
[ -z "$failed" ]
