#!/usr/bin/env bash
# Runs the tests of packages by gotestsum. usage: scripts/gotest.sh 'PACKAGE...' FLAG...   (FLAG: of go test)
# With CI=true at most three failed tests run once more, so that one time-out does not cost a whole run. A test that passes
# then is printed as FLAKY, to be repaired. A data race, a panic and a fourth failure are final at once.
set -euo pipefail
packages=$1
shift
gotestsum=$(dirname "$0")/../.cache/bin/gotestsum
[ "${CI:-}" = true ] || exec "$gotestsum" --format pkgname --packages "$packages" -- "$@"

report=$(mktemp)
trap 'rm -f "$report"' EXIT
status=0
"$gotestsum" --format pkgname --packages "$packages" --rerun-fails=1 --rerun-fails-max-failures=3 \
  --rerun-fails-abort-on-data-race --rerun-fails-report "$report" -- "$@" || status=$?
# A line of the report: PACKAGE.TEST: 2 runs, 1 failures
sed -n 's/^\(.*\): 2 runs, 1 failures$/FLAKY \1/p' "$report"
exit "$status"
