#!/usr/bin/env bash
# Walks through docs/quickstart.md on a clean Debian system, by the page's own commands, downloads included, and says how
# long each step took. It must run as root. Go comes from this machine, and the modules of msghandler from dist/proxy as
# after a release. The base system is kept in .cache. The network is for the downloads; then the walk has one of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$PWD/.cache/debian-walk.tar version=v0.1.0
tree=$(mktemp -d)
trap 'umount -l "$tree"/{proc,dev,usr/local/go,proxy} 2>/dev/null || true; rm -rf "$tree"' EXIT
if [ ! -e "$base" ]; then
  command -v debootstrap >/dev/null || apt-get install --yes --no-install-recommends debootstrap >/dev/null
  debootstrap --variant=minbase --include=ca-certificates,curl bookworm "$tree" http://deb.debian.org/debian >/dev/null
  tar -cf "$base.new" -C "$tree" --exclude=./var/cache/apt/archives/*.deb . && mv "$base.new" "$base"
else
  tar -xf "$base" -C "$tree"
fi
make --no-print-directory proxy VERSION=$version >/dev/null

mkdir -p "$tree"/{usr/local/go,proxy,walk}
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount --bind -o ro "$(go env GOROOT)" "$tree/usr/local/go"
mount --bind -o ro dist/proxy "$tree/proxy"
cp /etc/resolv.conf "$tree/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"

# The blocks of the page, each with the time before it: those before the first "sh run" install. The blocks of a checkout
# are for the time before a release.
awk -v times='echo "== $(date +%T)"' '
  /^```sh/ { in_block = 1; block = ""; phase = phase ? phase : ($0 ~ /run/); next }
  /^```/   { if (in_block && block !~ /make build/) print times "\n" block >(phase ? run : install); in_block = 0 }
  in_block { block = block $0 "\n" }
' run="$tree/walk/run.sh" install="$tree/walk/install.sh" docs/quickstart.md
echo 'declare -p PATH >/walk/environment; pwd >/walk/directory' >>"$tree/walk/install.sh"
in_tree() {
  chroot "$tree" env -i HOME=/walk PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    GOPROXY="file:///proxy,$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" GONOSUMDB=github.com/msghandler/msghandler \
    bash -euc "cd /walk; $1"
}
export -f in_tree
export tree
began=$SECONDS
in_tree '. /walk/install.sh'
unshare --net --pid --fork --kill-child bash -euc 'ip link set lo up
  in_tree ". /walk/environment; cd \$(cat /walk/directory); . /walk/run.sh"'
took=$((SECONDS - began))
echo "== the quick start took $((took / 60)) min $((took % 60)) s"
[ "$took" -lt 900 ]
