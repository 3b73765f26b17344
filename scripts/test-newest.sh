#!/usr/bin/env bash
# Runs the tests of some packages on the newest servers (TEST_SERVERS=newest). usage: scripts/test-newest.sh PACKAGE...
# A machine that cannot have these servers leaves the tests out and says so; with CI=true that is an error.
# The race detector looks at the same code on the oldest servers; here only the servers differ.
set -euo pipefail
cd "$(dirname "$0")/.."

leave_out() {
  echo "LEFT OUT: the tests on the newest RabbitMQ and Valkey: $1" >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
}
[ "$(id -u)" -eq 0 ] || leave_out "only root can start them"
unshare --mount --propagation private true 2>/dev/null || leave_out "this machine allows no mount namespace"
scripts/install-newer-servers.sh newest || leave_out "they cannot be installed here"

export TEST_SERVERS=newest
.cache/bin/withservers -- .cache/bin/gotestsum --format pkgname -- \
  -count=1 -vet=off -p 1 -timeout "${TEST_TIMEOUT:-15m}" "$@"
