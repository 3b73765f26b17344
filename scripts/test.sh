#!/usr/bin/env bash
# Runs the tests of packages. usage: scripts/test.sh PACKAGE...   (TEST_TIMEOUT: how long one package may take)
# The race detector watches packages whose tests run our goroutines in their own process. Tests that start programs,
# read the sources or play with the demo go without it: there it costs most and sees least.
# Both kinds run side by side, three packages and two at a time: tests wait more than they compute. Their outputs follow
# each other. A package that hangs fails at TEST_TIMEOUT with its stacks.
# Binaries without symbols link in two thirds of the time, and show the same stacks. Vetting is lint's.
set -euo pipefail
cd "$(dirname "$0")/.."

unraced='/(cmd|dev|test)(/|$)'
raced_too='/(dev/embedded|test/(amqpconn|broker|consumer|producer|sqldb))(/|$)'
# Both: a hundred random sequences with the race detector, and a thousand without it.
both='/test/random$'
# The packages that take longest begin first, or each would run alone in the end.
longest='/(test/(e2e|faults|simulation|console|broker/rabbitmq|producer/marker/sql)|internal/(store/redis|cli))$'

all=$(go list "$@")
# first LIST prints its longest packages before the others.
first() {
  grep -E "$longest" <<<"$1" || true
  grep -vE "$longest" <<<"$1" || true
}
without=$(first "$(grep -E "$unraced" <<<"$all" | grep -vE "$raced_too")")
with=$(first "$(grep -vxF "$without" <<<"$all"; grep -E "$both" <<<"$all")")

flags=(-count=1 -vet=off '-ldflags=-s -w' -timeout "${TEST_TIMEOUT:-20m}")
unwatched=("${without//$'\n'/ }" -p 2 "${flags[@]}")
if [ -n "$with" ] && [ -n "$without" ]; then
  exec scripts/beside.sh .cache/unraced.log "scripts/gotest.sh ${unwatched[*]@Q}" -- \
    scripts/gotest.sh "${with//$'\n'/ }" -race -p 3 "${flags[@]}"
fi
if [ -n "$with" ]; then
  exec scripts/gotest.sh "${with//$'\n'/ }" -race -p 3 "${flags[@]}"
fi
scripts/gotest.sh "${unwatched[@]}"
