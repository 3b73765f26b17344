#!/usr/bin/env bash
# Builds the packages of two releases, and installs, runs, upgrades, removes and purges them on a Debian system that systemd
# has booted. It must run as root. The base system is kept in .cache.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$PWD/.cache/debian-bookworm.tar
if [ ! -e "$base" ]; then
  command -v debootstrap >/dev/null || apt-get install --yes --no-install-recommends debootstrap >/dev/null
  tree=$(mktemp -d)
  debootstrap --variant=minbase --include=systemd,rpm,procps bookworm "$tree" http://deb.debian.org/debian
  rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
  tar -cf "$base.new" -C "$tree" .
  mv "$base.new" "$base"
  rm -rf "$tree"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Two versions of the commit, made in clones: neither the checkout nor its changelog changes.
for version in v0.1.0-test.1 v0.1.0-test.2; do
  git clone --quiet . "$work/clone"
  make --no-print-directory -C "$work/clone" version VERSION=$version >/dev/null
  git -C "$work/clone" -c user.name=test -c user.email=test@example.com commit --quiet --all --message "release: $version"
  "$work/clone/scripts/release.sh" $version "$work/$version" linux_amd64
  rm -rf "$work/clone"
done

# The network is of this test alone, so that the service has its usual ports.
go test -c -o "$work/packages.test" ./test/packages
cd test/packages
unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$work/packages.test" -test.v -test.timeout 30m \
  -before "$work/v0.1.0-test.1" -after "$work/v0.1.0-test.2" -base "$base" "$@"
