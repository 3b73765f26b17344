#!/usr/bin/env bash
# Runs commands in the background, one after the other and at low priority, beside another command. Their output goes to a
# file, which is printed when all have ended. Fails when any of them does. An interrupt ends all of them.
# usage: scripts/beside.sh FILE BACKGROUND... -- COMMAND...   (each BACKGROUND is a line for the shell)
set -euo pipefail
file=$1
shift
background=()
while [ "$1" != -- ]; do
  background+=("$1")
  shift
done
shift

mkdir -p "$(dirname "$file")"
# A session of its own is a process group, so that the children of the background commands end with them.
setsid nice bash -c '
  status=0
  for line in "$@"; do bash -c "$line" || status=$?; done
  exit "$status"' beside "${background[@]}" >"$file" 2>&1 </dev/null &
beside=$!
trap 'kill -- -"$beside" 2>/dev/null || true' EXIT

status=0
"$@" || status=$?
behind=0
wait "$beside" || behind=$?
trap - EXIT
cat "$file"
[ "$behind" -eq 0 ] || echo "FAILED beside the other tests: see above" >&2
exit $((status ? status : behind))
