#!/usr/bin/env bash
# Signs the checksums of a release, or verifies the signature and every file. usage: scripts/signature.sh sign|verify DIR FLAG...
# FLAG is of cosign: without --key Sigstore certifies the identity that runs it, as in .github/workflows/build.yml.
set -euo pipefail
how=$1 dir=$2
shift 2
cosign=$(cd "$(dirname "$0")/.." && pwd)/.cache/bin/cosign
cd "$dir"
sha256sum --check --quiet --strict SHA256SUMS
"$cosign" "$how-blob" --bundle SHA256SUMS.sigstore.json "$@" SHA256SUMS

# A file beside the signed ones is of someone else.
strangers=$(ls | grep -vxF -e "$(sed 's/^[0-9a-f]*  //' SHA256SUMS)" -e SHA256SUMS -e SHA256SUMS.sigstore.json \
  -e provenance.sigstore.json || true)
[ -z "$strangers" ] || { echo "$dir has files that SHA256SUMS does not name: remove them:" $strangers >&2; exit 1; }
