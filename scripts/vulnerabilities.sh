#!/usr/bin/env bash
# Looks for known vulnerabilities that the code or a tool of a module reaches, in each module there is.
# usage: scripts/vulnerabilities.sh FLAG...   (FLAG: of govulncheck, such as -db=file:///directory)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD failed=
joined=$(go list -m -f '{{.Dir}}')
for file in $(git ls-files go.mod '*/go.mod'); do
  module=$root/$(dirname "$file")
  module=${module%/.}
  # Modules of go.work need it: they require each other at a version that may have no release yet.
  work=off
  grep -qxF "$module" <<<"$joined" && work=
  patterns=
  [ -z "$(git ls-files "$(dirname "$file")/*.go")" ] || patterns=./...
  grep -qE '^tool ' "$file" && patterns="$patterns tool"
  echo "== $(dirname "$file")"
  GOWORK=$work "$root/.cache/bin/govulncheck" -C "$module" "$@" $patterns || failed="$failed $(dirname "$file")"
done
[ -z "$failed" ] || { echo "modules with findings:$failed" >&2; exit 1; }
