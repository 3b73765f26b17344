#!/usr/bin/env bash
# Runs the model. With the argument "small" (the default) the small instances and the known defects, in about a minute, most
# of it spent compiling; with "large" the instances with more faults and a store that falls back, in minutes. Fails when an
# instance that must hold does not, or when a defect is not found by its assertion. Needs spin and a C compiler.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/halfmsg.pml
size=${1:-small}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# The text that identifies an assertion in the checker's report.
declare -A assertion=(
  [P1]='half_ok' [P2]='&&fate)&&' [P3]='(fate||forgot)' [P5]='confirms<=unknowns' [DUP]='1<<attempt' [CORRUPTED]='content==1'
  [CONTRADICTION]='said_committed&&said_rolled_back' [TRUST]='accepted&&' [STUCK]='producer_done' [LEFTOVER]='!(left)'
)

# search makes the checker for a set of switches, runs it and leaves its report in $work/report.
search() {
  rm -f "$work"/pan*
  (cd "$work" && spin -a "$@" "$model" >spin.log 2>&1) || { cat "$work/spin.log"; exit 1; }
  "${CC:-gcc}" "$([ "$size" = large ] && echo -O2 || echo -O0)" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM="${MEMORY_MB:-8000}" -o "$work/pan" "$work/pan.c"
  (cd "$work" && ./pan -m2000000 -w"$([ "$size" = large ] && echo 26 || echo 22)" >report 2>&1) || true
}

say() { printf '%-8s %-62s %s\n' "$@"; }

figures() {
  awk '/states, stored/ { n = $1 } /total actual memory/ { m = $1 } /elapsed time/ { t = $4 }
    END { printf "%d states, %d MB, %s s", n, m, t }' "$work/report"
}

# holds SWITCHES...: every state was searched and no assertion failed.
holds() {
  search "$@"
  if grep -q 'errors: 0' "$work/report" && ! grep -qE 'Search not completed|max search depth too small' "$work/report"; then
    say holds "$*" "$(figures)"
  else
    say BROKEN "$*" "$(grep -m1 '^pan:' "$work/report" || echo 'the search did not end')"
    failed=1
  fi
}

# found NAME SWITCHES...: the assertion NAME fails.
found() {
  local name=$1
  shift
  search "$@"
  if grep '^pan:1: assertion violated' "$work/report" | grep -F -- "${assertion[$name]}" > /dev/null; then
    say found "$*" "by $name"
  else
    say MISSED "$*" "expected $name: $(grep -m1 '^pan:' "$work/report" || echo 'nothing found')"
    failed=1
  fi
}

small() {
  holds -DMARKER=1 -DFAULTS=1 -DGIVE_UP=1
  holds -DMARKER=2 -DFAULTS=1 -DAFTER_ACK=1
  holds -DTRUST=1 -DFAULTS=1

  # Defects that systems of this kind have shipped.
  found DUP -DNO_FENCE
  found P1 -DRETURNS_IGNORED
  found P1 -DUNKNOWN_IS_NO
  found CORRUPTED -DOVERWRITE
  found P1 -DABSENCE_IS_VERDICT
  found DUP -DCOPIES_FORGOTTEN
  found P1 -DPENDING_EXPIRES
  found P3 -DDELETED_EARLY
  found P5 -DUNREACHABLE_COUNTS
  found P2 -DSUBMIT_TOO_EARLY -DTRUST=1
  found TRUST -DTRUST_REMEMBERED -DTRUST=1
  found LEFTOVER -DMARKER_IN_MEMORY -DAFTER_ACK=1
  found STUCK -DLEASE_NEVER_ENDS
}

large() {
  for marker in 0 1 2; do
    holds -DMARKER="$marker" -DFAULTS=2
    holds -DMARKER="$marker" -DFAULTS=2 -DAFTER_ACK=1
    holds -DMARKER="$marker" -DFAULTS=1 -DNC=3
    holds -DMARKER="$marker" -DFAULTS=1 -DNC=3 -DAFTER_ACK=1
    holds -DMARKER="$marker" -DFAULTS=1 -DGIVE_UP=1
  done
  holds -DMARKER=1 -DFAULTS=2 -DNC=3 -DAFTER_ACK=1
  holds -DSTEPS=1 -DFAULTS=2
  holds -DTRUST=1 -DFAULTS=2
  holds -DTRUST=1 -DFAULTS=2 -DAFTER_ACK=1
  holds -DTRUST=1 -DFAULTS=1 -DNC=3
  holds -DRECEIPT_ENDS=1 -DFAULTS=2

  # SQL markers: rows that must not be removed.
  found P1 -DABSENCE_IS_VERDICT -DMARKER=2
  found P1 -DTOMBSTONE_KEPT=0 -DMARKER=2
  found CONTRADICTION -DROW_KEPT=0 -DMARKER=2

  # A store that falls back, but keeps the half message: an early deletion of the row loses, a late deletion does not.
  found P1 -DREGRESS=1 -DMARKER=2 -DROW_KEPT=0
  holds -DREGRESS=1 -DMARKER=2 -DROW_KEPT=0 -DAFTER_ACK=1 -DFAULTS=1
  holds -DREGRESS=1 -DMARKER=2 -DFAULTS=1
  holds -DREGRESS=1 -DMARKER=1 -DFAULTS=1
  # When the half message itself is lost, only the producer knows of it.
  found P1 -DREGRESS=2 -DMARKER=2 -DAFTER_ACK=1
}

case $size in
  small | large) "$size" ;;
  *) echo "usage: check.sh [small|large]" >&2; exit 2 ;;
esac
exit $failed
