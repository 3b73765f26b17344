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

# Of test/e2e only what depends on the servers' version: the tests that start, stop or kill a server themselves
# (test/house demands these), and those that are about a server's own answers. All others see a server only through
# packages whose suites run here whole. All of them: make test SERVERS=newest PACKAGES=./test/e2e
e2e='^Test(CoordinatorsStayReadyWithoutTheBroker|DelayedMessageWaits|DoctorPassesOnAHealthySystem|DoctorReportsEachProblem'
e2e+='|OrdersSurviveOutagesOfServers|OutboxNeedsNoCoordinator|PaidOrdersShipExactlyOnce|RedisRollbackIsReported'
e2e+='|UnroutableMessageIsDeadUntilRetried|BrokersDoNotDisturbEachOther)$'

export TEST_SERVERS=newest
# tests TIMEOUT E2E PACKAGE... runs the packages; of test/e2e, where it is among them, the tests that E2E matches.
tests() {
  local timeout=$1 e2e=$2 status=0 others=()
  shift 2
  for package in "$@"; do
    if [ "$package" = ./test/e2e ]; then
      scripts/gotest.sh "$package" -count=1 -vet=off -timeout "$timeout" -run "$e2e" || status=$?
    else
      others+=("$package")
    fi
  done
  [ ${#others[@]} -eq 0 ] || scripts/gotest.sh "${others[*]}" -count=1 -vet=off -p 1 -timeout "$timeout" || status=$?
  return "$status"
}
export -f tests
.cache/bin/withservers -- bash -c 'tests "$@"' newest "${TEST_TIMEOUT:-20m}" "$e2e" "$@"
