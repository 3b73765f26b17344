#!/usr/bin/env bash
# Installs what the tests need and is not there: redis-server, rabbitmq-server, postgresql, pgbouncer, mariadb-server, prometheus (for
# promtool), spin (for docs/evidence/model), a C compiler (the race detector's and spin's), chromium (for test/console), groff (for
# the manual page), systemd (for systemd-analyze), kcat (a client of Kafka), curl (for docs/reference/http.md), gRPC and drivers of
# PostgreSQL and AMQP for Python (for examples/python), Node.js with the packages of examples/node, and a JDK with the libraries of examples/java.
# It changes nothing on a machine that has them, and starts no service. With the argument "servers" only the servers,
# and with "site" only what builds and looks at the site of the documentation.
# Otherwise the newer servers that TEST_SERVERS names are unpacked beside the system's.
set -euo pipefail
[ -n "${1:-}" ] || "$(dirname "$0")/install-newer-servers.sh" "${TEST_SERVERS:-oldest}"

# has_python MODULE...: the first Python of the PATH may be one without packages, so Debian's own is looked at as well.
has_python() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, sys.argv[1:])))' "$@" \
      2>/dev/null && return
  done
  return 1
}

missing=()
if [ "${1:-}" != site ]; then
  command -v redis-server >/dev/null && command -v redis-cli >/dev/null || missing+=(redis-server)
  [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || [ -x /opt/rabbitmq/sbin/rabbitmq-server ] ||
    command -v rabbitmq-server >/dev/null || missing+=(rabbitmq-server)
  command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
  { command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } >/dev/null && command -v mariadb-install-db >/dev/null ||
    missing+=(mariadb-server)
fi
if [ "${1:-}" = site ]; then
  python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
fi
if [ "${1:-}" != servers ]; then
  command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
  command -v npm >/dev/null || missing+=(nodejs npm)
fi
if [ -z "${1:-}" ]; then
  command -v promtool >/dev/null || missing+=(prometheus)
  command -v spin >/dev/null || missing+=(spin)
  command -v gcc >/dev/null || missing+=(gcc libc6-dev)
  command -v groff >/dev/null || missing+=(groff-base)
  command -v systemd-analyze >/dev/null || missing+=(systemd)
  command -v kcat >/dev/null || missing+=(kcat)
  command -v curl >/dev/null || missing+=(curl ca-certificates)
  has_python grpc grpc_tools || missing+=(python3-grpcio python3-grpc-tools)
  has_python psycopg2 pika || missing+=(python3-psycopg2 python3-pika)
  command -v javac >/dev/null || missing+=(default-jdk-headless)
  [ -e /usr/share/java/mariadb-java-client.jar ] || missing+=(libmariadb-java)
  [ -e /usr/share/java/jackson-databind.jar ] || missing+=(libjackson2-databind-java)
  [ -e /usr/share/java/spring3-jdbc.jar ] || missing+=(libspring-jdbc-java)
  [ -e /usr/share/java/spring3-web.jar ] || missing+=(libspring-web-java)
fi

# The packages of examples/node, in the versions of its package-lock.json.
install_node_packages() {
  local node
  node=$(dirname "$0")/../examples/node
  [ -n "${1:-}" ] || cmp -s "$node/package-lock.json" "$node/node_modules/.of" && return
  # Without a registry npm would pause for a minute, each time.
  if ! npm ci --prefix "$node" --ignore-scripts --silent --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=3000 >&2; then
    echo "npm cannot install the packages of examples/node. The tests of Node.js are skipped, and fail in CI." >&2
  else
    cp "$node/package-lock.json" "$node/node_modules/.of"
  fi
}

if [ ${#missing[@]} -eq 0 ]; then
  install_node_packages "$@"
  exit 0
fi

give_up() {
  echo "Not installed: ${missing[*]}. $1" >&2
  # Without a compiler there is no race detector. The rest is skipped on a laptop, with a reason each; CI must have it.
  [[ "${CI:-}" != true && " ${missing[*]} " != *" gcc "* ]] || exit 1
  echo "The tests that need them are skipped." >&2
  exit 0
}

command -v apt-get >/dev/null || give_up "Install them with your package manager."
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || give_up "Run: sudo apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo -n)
fi

# Debian starts a service when its package is installed, unless this file says no (101).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
echo "Installing ${missing[*]}" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
  "${missing[@]}" </dev/null >&2
install_node_packages "$@"
