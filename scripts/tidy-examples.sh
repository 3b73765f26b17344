#!/usr/bin/env bash
# go mod tidy for examples/, with the same flags (-diff). Its go.mod has no replace lines, so that the examples build
# wherever they are copied to; here the modules of this checkout stand in for the released ones.
set -euo pipefail
cd "$(dirname "$0")/../examples"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod "$work/go.mod"
cp go.sum "$work/go.sum"
module=github.com/msghandler/msghandler
go work edit -json ../go.work | sed -n 's#.*"DiskPath": "\./\(.*\)".*#\1#p' | while read -r room; do
  go mod edit -replace "$module/$room=../$room" "$work/go.mod"
done
GOWORK=off go mod tidy -modfile="$work/go.mod" "$@"
go mod edit -json "$work/go.mod" | sed -n '/"Replace"/,$ s#.*"Path": "\(github.com/msghandler/.*\)".*#\1#p' | while read -r path; do
  go mod edit -dropreplace "$path" "$work/go.mod"
done
cp "$work/go.mod" "$work/go.sum" .
