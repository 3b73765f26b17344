#!/usr/bin/env bash
# The same as docker-compose.yml on plain Debian, without Docker and without touching the machine's own services: a
# private Redis and RabbitMQ, the coordinator and both demos, on 127.0.0.1 only, as the user who calls it. The coordinator takes
# TLS and tokens: the certificate and the tokens are made in DIR.
#
#   scripts/debian-setup.sh start [servers]   all five, or Redis and RabbitMQ only
#   scripts/debian-setup.sh configure         only writes DIR/msghandler.yaml, as start does: one that you have edited stays
#   scripts/debian-setup.sh credentials       only makes certificates and tokens in DIR, where they are missing
#   scripts/debian-setup.sh status
#   scripts/debian-setup.sh stop              the data stays; remove DIR to forget it
#
# Everything lives in DIR (default ./local). Ports: REDIS_PORT 16379, AMQP_PORT 15673, MANAGEMENT_PORT 15674,
# EPMD_PORT 14369, DIST_PORT 15675, GRPC_PORT 9090, HTTP_PORT 9091, CALLBACK_PORT 7001, ORDERS_PORT 8080.
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${DIR:-local}")
REDIS_PORT=${REDIS_PORT:-16379} AMQP_PORT=${AMQP_PORT:-15673} MANAGEMENT_PORT=${MANAGEMENT_PORT:-15674}
EPMD_PORT=${EPMD_PORT:-14369} DIST_PORT=${DIST_PORT:-15675} GRPC_PORT=${GRPC_PORT:-9090} HTTP_PORT=${HTTP_PORT:-9091}
CALLBACK_PORT=${CALLBACK_PORT:-7001} ORDERS_PORT=${ORDERS_PORT:-8080} BIN=$(realpath -m "${BIN:-bin}")
parts=(redis epmd rabbitmq coordinator consumer-demo producer-demo)

fail() { echo "debian-setup: $*" >&2; exit 1; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# runs PART: the process that this script started is there; when it began tells it from a later one of the same pid.
runs() {
  local pid began
  read -r pid began 2>/dev/null <"$DIR/$1.pid" && [ "$(began "$pid")" = "$began" ]
}

# began PID: when it began, in clock ticks since the machine did (see proc(5)); nothing for a zombie or no process.
began() {
  sed -nE 's/^.*\) [^ZX]( [^ ]+){18} ([0-9]+) .*$/\2/p' "/proc/$1/stat" 2>/dev/null || true
}

pid_of() { cut -d ' ' -f 1 "$DIR/$1.pid"; }

# launch PART COMMAND...: in the background, in a session of its own, with its output in DIR/PART.log.
launch() {
  local part=$1
  shift
  setsid "$@" </dev/null >>"$DIR/$part.log" 2>&1 &
  echo "$! $(began $!)" >"$DIR/$part.pid"
}

# wait_for PART PORT
wait_for() {
  for _ in $(seq 1200); do
    if listens "$2"; then return; fi
    runs "$1" || fail "$1 ended: $(tail -n 5 "$DIR/$1.log")"
    sleep 0.1
  done
  fail "$1 does not listen on port $2; see $DIR/$1.log"
}

must_be_free() { ! listens "$2" || fail "port $2 is in use; choose another with $1=PORT"; }

start_redis() {
  ! runs redis || return 0
  must_be_free REDIS_PORT "$REDIS_PORT"
  mkdir -p "$DIR/redis"
  launch redis redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --dir "$DIR/redis" --save "" \
    --appendonly yes --appendfsync always --maxmemory-policy noeviction
  wait_for redis "$REDIS_PORT"
}

start_rabbitmq() {
  ! runs rabbitmq || return 0
  must_be_free AMQP_PORT "$AMQP_PORT"
  must_be_free MANAGEMENT_PORT "$MANAGEMENT_PORT"
  local home=$DIR/rabbitmq server=/usr/lib/rabbitmq/bin/rabbitmq-server
  # The script in the PATH of Debian changes to another user.
  [ -x "$server" ] || server=$(command -v rabbitmq-server)
  mkdir -p "$home"
  [ -f "$home/.erlang.cookie" ] ||
    (umask 077 && od -An -N20 -tx1 /dev/urandom | tr -d ' \n' >"$home/.erlang.cookie")
  : >"$home/rabbitmq-env.conf"
  echo '[].' >"$home/advanced.config"
  echo '[rabbitmq_management].' >"$home/enabled_plugins"
  cat >"$home/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$AMQP_PORT
management.tcp.ip = 127.0.0.1
management.tcp.port = $MANAGEMENT_PORT
CONF
  if ! runs epmd; then
    must_be_free EPMD_PORT "$EPMD_PORT"
    launch epmd epmd -address 127.0.0.1 -port "$EPMD_PORT"
    wait_for epmd "$EPMD_PORT"
  fi
  # RUNNING_UNDER_SYSTEMD makes the script become the server, so that its pid is the server's.
  launch rabbitmq env HOME="$home" RUNNING_UNDER_SYSTEMD=true ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$EPMD_PORT" \
    RABBITMQ_NODENAME=msghandler@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$AMQP_PORT" \
    RABBITMQ_DIST_PORT="$DIST_PORT" RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_LOG_BASE="$home/log" \
    RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" RABBITMQ_CONF_ENV_FILE="$home/rabbitmq-env.conf" \
    RABBITMQ_GENERATED_CONFIG_DIR="$home/generated" RABBITMQ_SCHEMA_DIR="$home/schema" \
    RABBITMQ_PID_FILE="$home/rabbit.pid" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}" "$server"
  wait_for rabbitmq "$AMQP_PORT"
}

# credentials makes what is missing: an authority and the coordinator's certificate in DIR/tls, and tokens. DIR/tokens has their hashes,
# admin.token is yours, orders.token is the shop's, and coordinator.token shows the shop who asks.
credentials() {
  local name umask_before
  command -v openssl >/dev/null || fail "openssl is not installed"
  umask_before=$(umask)
  umask 077
  mkdir -p "$DIR/tls"
  if [ ! -e "$DIR/tls/coordinator.pem" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=msghandler-trial \
      -keyout "$DIR/tls/ca.key" -out "$DIR/tls/ca.pem" 2>/dev/null || fail "openssl makes no authority"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=coordinator -keyout "$DIR/tls/coordinator.key" \
      2>/dev/null | openssl x509 -req -CA "$DIR/tls/ca.pem" -CAkey "$DIR/tls/ca.key" -days 3650 \
      -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost") -out "$DIR/tls/coordinator.pem.new" 2>/dev/null ||
      fail "openssl makes no certificate"
    mv "$DIR/tls/coordinator.pem.new" "$DIR/tls/coordinator.pem"
  fi
  for name in admin orders; do
    [ ! -s "$DIR/$name.token" ] || continue
    # A token that was made without its file, as when the script was stopped, is of no use.
    "$BIN/msghandler" token revoke "$name" --file "$DIR/tokens" >/dev/null 2>&1 || true
    "$BIN/msghandler" token new "$name" --file "$DIR/tokens" \
      $([ "$name" = admin ] && echo --role=admin || echo --producer="$name") >"$DIR/$name.token" 2>/dev/null ||
      fail "no token was made for $name"
  done
  [ -s "$DIR/coordinator.token" ] || openssl rand -hex 32 >"$DIR/coordinator.token"
  umask "$umask_before"
}

start_programs() {
  [ "$BIN" != "$PWD/bin" ] || make --no-print-directory build
  credentials
  local amqp=amqp://guest:guest@127.0.0.1:$AMQP_PORT/
  if ! runs coordinator; then
    must_be_free GRPC_PORT "$GRPC_PORT"
    must_be_free HTTP_PORT "$HTTP_PORT"
    launch coordinator env MSGHANDLER_GRPC_TLS_CERT="$DIR/tls/coordinator.pem" \
      MSGHANDLER_GRPC_TLS_KEY="$DIR/tls/coordinator.key" MSGHANDLER_ACCESS_TOKEN_FILE="$DIR/tokens" \
      MSGHANDLER_CALLBACKS_TOKEN_FILE="$DIR/coordinator.token" "$BIN/msghandler" serve --config "$DIR/msghandler.yaml"
    wait_for coordinator "$GRPC_PORT"
  fi
  if ! runs consumer-demo; then
    launch consumer-demo "$BIN/consumer-demo" --amqp="$amqp" --database="sqlite:$DIR/shop.db"
  fi
  if ! runs producer-demo; then
    must_be_free CALLBACK_PORT "$CALLBACK_PORT"
    must_be_free ORDERS_PORT "$ORDERS_PORT"
    launch producer-demo "$BIN/producer-demo" --coordinator="127.0.0.1:$GRPC_PORT" \
      --tls-ca="$DIR/tls/ca.pem" --token-file="$DIR/orders.token" \
      --listen="127.0.0.1:$CALLBACK_PORT" --coordinator-token-file="$DIR/coordinator.token" --http="127.0.0.1:$ORDERS_PORT" --amqp="$amqp" \
      --database="sqlite:$DIR/shop.db"
    wait_for producer-demo "$ORDERS_PORT"
  fi
}

# configure writes the coordinator's configuration for the ports of now. DIR/msghandler.yaml.written is what was written last:
# where the configuration differs from it, a person has edited it, and it stays.
configure() {
  local file=$DIR/msghandler.yaml written=$DIR/msghandler.yaml.written new=$DIR/msghandler.yaml.new
  mkdir -p "$DIR"
  (umask 077 && : >"$new")
  cat >"$new" <<CONF
grpc: {addr: "127.0.0.1:$GRPC_PORT"}
http: {addr: "127.0.0.1:$HTTP_PORT"}
redis: {url: "redis://127.0.0.1:$REDIS_PORT/0"}
amqp: {url: "amqp://guest:guest@127.0.0.1:$AMQP_PORT/"}
callbacks: {allow: ["127.0.0.1:$CALLBACK_PORT"]}
CONF
  if [ -e "$file" ] && ! cmp -s "$file" "$written" && ! cmp -s "$file" "$new"; then
    echo "debian-setup: $file was edited and stays as it is; what this script would write is in $new" >&2
    return
  fi
  cp "$new" "$written"
  mv "$new" "$file"
}

start() {
  scripts/install-test-servers.sh servers
  command -v redis-server >/dev/null || fail "redis-server is not installed"
  command -v epmd >/dev/null || fail "rabbitmq-server is not installed"
  configure
  start_redis
  start_rabbitmq
  [ "${1:-all}" = servers ] || start_programs
  status
  echo
  if [ "${1:-all}" = servers ]; then
    echo "Coordinator:  bin/msghandler serve --config $DIR/msghandler.yaml"
  else
    echo "An order:     curl -d '{\"id\":1001,\"buyer\":7,\"product\":42}' http://127.0.0.1:$ORDERS_PORT/orders"
    echo "Its payment:  curl -X POST http://127.0.0.1:$ORDERS_PORT/orders/1001/payment   (within 15 minutes)"
    echo "Its shipment: tail $DIR/consumer-demo.log"
    echo "Messages:     bin/msghandler stats --server 127.0.0.1:$GRPC_PORT --tls-ca $DIR/tls/ca.pem --token-file $DIR/admin.token"
    echo "Is all well?  bin/msghandler doctor --config $DIR/msghandler.yaml --tls-ca $DIR/tls/ca.pem --token-file $DIR/admin.token"
    echo "Console:      http://127.0.0.1:$HTTP_PORT (log in with the token in $DIR/admin.token)"
  fi
  echo "RabbitMQ:     http://127.0.0.1:$MANAGEMENT_PORT (guest, guest)"
  echo "Redis:        redis-cli -p $REDIS_PORT"
  echo "Stop:         DIR=$DIR $0 stop"
}

status() {
  for part in "${parts[@]}"; do
    if runs "$part"; then echo "$part runs, pid $(pid_of "$part")"; else echo "$part does not run"; fi
  done
}

# The programs first and Redis last, each with time to finish.
stop() {
  local i part pid
  for ((i = ${#parts[@]} - 1; i >= 0; i--)); do
    part=${parts[i]}
    if runs "$part"; then
      pid=$(pid_of "$part")
      kill -TERM "$pid"
      for _ in $(seq 600); do runs "$part" || break; sleep 0.1; done
      ! runs "$part" || fail "$part, pid $pid, does not stop"
      echo "$part stopped"
    fi
    rm -f "$DIR/$part.pid"
  done
}

case ${1:-} in
  start) start "${2:-all}" ;;
  configure) configure ;;
  credentials) credentials ;;
  status) status ;;
  stop) stop ;;
  *)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
