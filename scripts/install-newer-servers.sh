#!/usr/bin/env bash
# Unpacks newer Redis, Valkey and RabbitMQ servers beside the system's own and installs none of them. test/servers starts
# them when TEST_SERVERS names their set. Needs apt and Debian's keyring, and no root. A set that is there already is kept.
#
#   scripts/install-newer-servers.sh newest   RabbitMQ 4.3 and Valkey 9.1, of Debian sid
#   scripts/install-newer-servers.sh trixie   RabbitMQ 4.0 and Redis 8.0, of Debian 13
#   scripts/install-newer-servers.sh oldest   nothing: the system's own are used
#
# TEST_SERVERS_DIR (default .cache/servers) is where the sets lie; several checkouts may share one directory.
# The packages come from the mirror that apt is configured to use. Exit status 3: this machine cannot have them.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  oldest) exit 0 ;;
  newest) release=sid packages=(rabbitmq-server valkey-server valkey-tools) ;;
  trixie) release=trixie packages=(rabbitmq-server redis-server redis-tools) ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
name=$1
# The scripts of the servers find their shell and their tools in the same /usr; libc-bin has the locale C.UTF-8.
packages+=(dash bash coreutils sed grep hostname procps libc-bin)
base=$(realpath -m "${TEST_SERVERS_DIR:-.cache/servers}")
contents="$release ${packages[*]}"

installed() { [ "$(cat "$base/$name/contents" 2>/dev/null)" = "$contents" ]; }
! installed || exit 0

give_up() { echo "The $name test servers are not installed: $*" >&2; exit 3; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
command -v apt-get >/dev/null && [ -r "$keyring" ] || give_up "they are packages of Debian, and this machine is none"

mkdir -p "$base"
exec 9>"$base/.lock"
flock 9 # another checkout may be at it
! installed || exit 0
work=$(mktemp -d "$base/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# mirror: where apt has the packages of Debian, except its security updates, which lie elsewhere. apt itself names it only
# after an update.
mirror() {
  find /etc/apt -name '*.sources' -o -name '*.list' | sort | xargs -r cat |
    sed -nE 's/^URIs:[ \t]*([^ ]+).*/\1/p; s/^deb[ \t]+(\[[^]]*\][ \t]+)?([^ ]+)[ \t].*/\2/p' |
    grep -v security | grep -m 1 debian || true
}
from=$(mirror)
[ -n "$from" ] || give_up "apt has no mirror of Debian"

# An apt of its own, to which nothing is installed, so that it fetches all that the packages need. The proxy and all other
# settings of the machine's apt stay.
mkdir -p "$work/apt/"{state/lists/partial,cache/archives/partial} "$work/files" "$work/set"
: >"$work/apt/state/status"
echo "deb [signed-by=$keyring] $from $release main" >"$work/apt/sources.list"
get() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dir::State="$work/apt/state" -o Dir::State::status="$work/apt/state/status" \
    -o Dir::Cache="$work/apt/cache" -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User= \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}
echo "Fetching $contents" >&2
get update >&2
get -y --no-install-recommends --download-only install "${packages[@]}" >/dev/null
for package in "$work"/apt/cache/archives/*.deb; do
  # Documentation and translations are a third of it.
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/files" --no-same-owner --delay-directory-restore \
    --exclude='./usr/share/'{doc,man,info,locale,lintian}
  dpkg-deb -W --showformat '${Package} ${Version}\n' "$package" >>"$work/set/versions"
done
mv "$work/files/usr" "$work/set/usr" # test/servers mounts it over the system's; of the rest the servers need nothing
echo "$contents" >"$work/set/contents"

rm -rf "${base:?}/$name"
mv -T "$work/set" "$base/$name"
grep -E '^(rabbitmq|redis|valkey)-server ' "$base/$name/versions" >&2
