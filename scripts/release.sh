#!/usr/bin/env bash
# Builds archives, packages, image, bills of materials, checksums and notes of a release, of the commit. The same commit gives the
# same bytes, in any directory. usage: scripts/release.sh VERSION DIR [PLATFORMS]   (PLATFORMS: such as linux_amd64,linux_arm64)
set -euo pipefail
version=$1 out=$(realpath -m "$2") platforms=${3:-linux_amd64,linux_arm64,darwin_amd64,darwin_arm64}
cd "$(dirname "$0")/.."
number=${version#v} root=github.com/msghandler/msghandler work=.cache/release
fail() { echo "$*" >&2; exit 1; }
tool() { GOWORK=off go -C internal/release run ./cmd/"$1" "${@:2}"; }
[[ $version == v* ]] || fail "VERSION is '$version', and must be like v0.1.0 or v0.2.0-rc.1"
[ -z "$(git status --porcelain)" ] || fail "the checkout has changes; a release is of a commit. Commit or remove them"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || [ -e "$out/RELEASE_NOTES.md" ] || fail "$out has files, and is no release: choose another directory"
umask 022
export TZ=UTC LC_ALL=C
notes=$(tool modules notes "$version")
rm -rf "$out" $work
mkdir -p "$out" $work/documents
echo "$notes" >"$out/RELEASE_NOTES.md"
tool modules proxy "$PWD/$work/proxy" "$version" >/dev/null
read -r commit seconds time < <(git log -1 --format='%H %ct %cI')

# The programs are built as users do who type go install: from the modules, so a program knows the version of each. The module cache
# is of this build alone, because the go command never reads a version twice. Nothing of the caller's environment changes what is built.
read -r mods cache toolchain sums proxies < <(go env GOMODCACHE GOCACHE GOTOOLCHAIN GOSUMDB GOPROXY | paste -sd' ')
for platform in ${platforms//,/ }; do
  echo "programs for $platform" >&2
  env -i PATH="$PATH" HOME="$PWD/$work" GOENV=off GOWORK=off GOFLAGS=-modcacherw GOPATH="$PWD/$work/go/$platform" \
    GOMODCACHE="$PWD/$work/modules" GOCACHE="$cache" GOTOOLCHAIN="$toolchain" GOSUMDB="$sums" GONOSUMDB=$root \
    GOPROXY="file://$PWD/$work/proxy,file://$mods/cache/download,$proxies" \
    CGO_ENABLED=0 GOOS="${platform%_*}" GOARCH="${platform#*_}" \
    go install -trimpath -ldflags "-s -w -X $root/internal/ground/build.commit=$commit" \
    $root/cmd/msghandler{,-bench,-dev}@"$version" 2> >(grep -v '^go: downloading' >&2)
  mkdir -p $work/programs/"$platform"
  find $work/go/"$platform"/bin -type f -exec mv -t $work/programs/"$platform" {} +
done

echo "documents, archives and packages" >&2
program=$work/programs/$(go env GOHOSTOS GOHOSTARCH | paste -sd_)/msghandler
$program man >$work/documents/msghandler.1
gzip -9n <$work/documents/msghandler.1 >$work/documents/msghandler.1.gz
$program completion bash >$work/documents/msghandler.bash
$program completion zsh >$work/documents/_msghandler
$program completion fish >$work/documents/msghandler.fish
scripts/packaged-unit.sh >$work/documents/msghandler.service

# pack DIR FILE... writes an archive without what differs between two builds.
pack() { tar --format=ustar --sort=name --mtime=@"$seconds" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w -C "$@" -c; }
# package FORMAT ARCH FILE writes a package.
package() {
  VERSION=$number ARCH=$2 SOURCE_DATE_EPOCH=$seconds GOWORK=off go tool -modfile=internal/release/go.mod \
    nfpm package --config deploy/packages/nfpm.yaml --packager "$1" --target "$out/$3" >/dev/null
}
for platform in ${platforms//,/ }; do
  top=msghandler_${number}_$platform
  dir=$work/archives/$top
  mkdir -p "$dir"/{prometheus,grafana,man,completions}
  cp $work/programs/"$platform"/* LICENSE README.md CHANGELOG.md config.example.yaml "$dir"
  sed "s#/blob/main/#/blob/$version/#" deploy/prometheus/alerts.yaml >"$dir"/prometheus/alerts.yaml # the pages of this version
  sed "s#/blob/main/#/blob/$version/#" deploy/grafana/msghandler.json >"$dir"/grafana/msghandler.json
  cp $work/documents/msghandler.1 "$dir"/man
  cp $work/documents/{msghandler.bash,_msghandler,msghandler.fish} "$dir"/completions
  if [[ $platform == linux_* ]]; then
    arch=${platform#linux_}
    install -D -m 644 deploy/systemd/msghandler.service "$dir"/systemd/msghandler.service
    package deb "$arch" "msghandler_${number}_$arch.deb"
    package rpm "$arch" "msghandler-$number-1.$(sed 's/amd64/x86_64/; s/arm64/aarch64/' <<<"$arch").rpm"
  fi
  pack $work/archives "$top" | gzip -9n >"$out/$top.tar.gz"
done

echo "image, bills of materials and checksums" >&2
tool artifacts "$number" "$commit" "$time" "$PWD/$work/programs" "$out"
pack $work/programs/image blobs index.json oci-layout >"$out/msghandler_${number}_image.tar"
(cd "$out" && sha256sum -- *) >$work/SHA256SUMS
cp $work/SHA256SUMS "$out"
rm -rf $work
echo "$version is in $out" >&2
