#!/usr/bin/env bash
# Fails when generated files or the modules' requirements are not what their sources give.
set -euo pipefail

state() {
  git diff HEAD
  git ls-files --others --exclude-standard -z | xargs -0 -r sha256sum
}
before=$(state)
make --no-print-directory generate
if [ "$(state)" != "$before" ]; then
  echo "Generated files were stale; they are fresh now. Look at 'git diff' and commit:" >&2
  git status --short >&2
  exit 1
fi
# The modules of go.work, and those that are apart. go mod tidy reads no go.work.
for module in $(go list -m -f '{{.Dir}}' | grep -v '/examples$') internal/release internal/tools test/deploy/kubernetes; do
  (cd "$module" && GOWORK=off go mod tidy -diff) || {
    echo "go.mod or go.sum of $module is not tidy: run 'go mod tidy' there and commit." >&2
    exit 1
  }
done
scripts/tidy-examples.sh -diff || {
  echo "go.mod or go.sum of examples is not tidy: run scripts/tidy-examples.sh and commit." >&2
  exit 1
}
