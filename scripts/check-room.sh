#!/usr/bin/env bash
# Checks a room after a change: vets, lints and tests the room, and tests the rooms that import it. internal/app and
# internal/cli import almost every room and start servers: name them, or leave them to make test.
set -euo pipefail
cd "$(dirname "$0")/.."
room=${1:-}
[ -n "$room" ] || { echo "name a room, such as: make check ROOM=sendloop" >&2; exit 2; }
imports=$(go list -f '{{.ImportPath}} {{.Dir}} {{join .Imports " "}}' work)
# The suites of test/ have the paths of the rooms that they test, and start servers.
rooms=$(awk -v room="/$room/" 'index($1 "/", room) && (room ~ "^/test/" || $1 !~ "/test/") { print $1 }' <<<"$imports")
[ -n "$rooms" ] || { echo "no package has $room in its path" >&2; exit 2; }
users=$(awk 'NR == FNR { rooms[$1]; next }
  !($1 in rooms) && $1 !~ /internal\/(app|cli)(\/|$)|\/test\// { for (i = 3; i <= NF; i++) if ($i in rooms) { print $1; next } }' \
  <(echo "$rooms") <(echo "$imports"))
directories=$(awk 'NR == FNR { rooms[$1]; next } $1 in rooms { print $2 }' <(echo "$rooms") <(echo "$imports"))
# shellcheck disable=SC2086 # lists of packages and directories
{
  go vet $rooms
  .cache/bin/golangci-lint run $directories
  go test -count=1 -vet=off -ldflags='-s -w' $rooms $users
}
