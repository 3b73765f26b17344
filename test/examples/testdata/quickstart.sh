# The quick start with clients that order while its processes are killed. Prints the books at the end.
set -eu
ip link set lo up
msghandler-dev --grpc-port 9092 --console-port 9093 >dev.log 2>&1 &
curl -fsS -o ready --retry 100 --retry-all-errors --retry-delay 1 http://127.0.0.1:9093/readyz 2>/dev/null

export MSGHANDLER_CONFIRM_LEASE=6s MSGHANDLER_CONFIRM_TIMEOUT=1500ms # short waits for what a dead coordinator held
export MSGHANDLER_SEND_LEASE=8s MSGHANDLER_SEND_CONFIRM_TIMEOUT=3s
declare -A running
start() {
  case $1 in
    serve) msghandler serve >>serve.log 2>&1 & ;;
    *) "$1" >>"$1.log" 2>&1 & ;;
  esac
  running[$1]=$!
}
for name in serve shipping shop; do start $name; done

order() {
  for n in $(seq "$2"); do
    curl -fs -o /dev/null --retry 100 --retry-all-errors --retry-delay 1 \
      -H "Idempotency-Key: $1-$n" -d item=book http://127.0.0.1:8080/orders && echo "$1-$n" >>placed
  done
}
clients=()
touch placed
for client in a b c; do order $client "$1" & clients+=($!); done

# Between two kills comes a random number of orders.
names=(serve shipping shop)
for kill in 0 1 2 3 4 5; do
  next=$(($(wc -l <placed) + RANDOM % ($1 / 3)))
  until [ "$(wc -l <placed)" -ge "$next" ]; do sleep 0.02; done
  name=${names[$kill % 3]}
  kill -9 "${running[$name]}"
  wait "${running[$name]}" 2>/dev/null || true
  start "$name"
done
wait "${clients[@]}"
for _ in $(seq 60); do
  if books >books.txt 2>&1; then break; fi
  sleep 1
done
cat books.txt
