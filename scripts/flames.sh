#!/usr/bin/env bash
# Draws what BenchmarkFull has profiled as flame graphs, with Go's own pprof in a headless browser.
# usage: scripts/flames.sh PROFILES PICTURES
set -euo pipefail
profiles=$1 pictures=$2
mkdir -p "$pictures"
pprof=
trap '[ -z "$pprof" ] || kill "$pprof" 2>/dev/null || true' EXIT # it may have ended by itself

draw() { # a profile, a picture
  local port log
  log=$(mktemp)
  port=$(shuf -n 1 -i 20000-30000) # pprof chooses none by itself that it would tell
  # pprof is built once; `go tool` would leave it behind when it is stopped.
  "$(go tool -n pprof)" -no_browser -http="127.0.0.1:$port" "$1" >"$log" 2>&1 &
  pprof=$!
  until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$pprof" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1600,900 --virtual-time-budget=5000 \
    --screenshot="$2" "http://127.0.0.1:$port/ui/flamegraph" 2>/dev/null
  kill "$pprof"; wait "$pprof" 2>/dev/null || true
  pprof=; rm -f "$log"
}

for mode in gathered unary; do
  draw "$profiles/$mode-profile.pprof" "$pictures/flames-$mode.png"
done
