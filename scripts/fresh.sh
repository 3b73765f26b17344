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
scripts/tidy.sh -diff
