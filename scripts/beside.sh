#!/usr/bin/env bash
# Runs a command in the background, with its output in a file, beside another one; prints the file when both have ended, and
# fails when one of them does. usage: scripts/beside.sh FILE BACKGROUND COMMAND... (BACKGROUND is a line for the shell)
set -euo pipefail
file=$1 background=$2
shift 2
mkdir -p "$(dirname "$file")"
bash -c "$background" >"$file" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || true' EXIT

status=0
"$@" || status=$?
failed=0
wait "$beside" || failed=$?
trap - EXIT
cat "$file"
exit $((status ? status : failed))
