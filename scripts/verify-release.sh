#!/usr/bin/env bash
# Verifies a downloaded release and its image, as docs/run/install.md tells buyers to.
# usage: scripts/verify-release.sh OWNER/REPOSITORY VERSION DIR IMAGE@DIGEST   (needs cosign in .cache/bin, and gh)
set -euo pipefail
repository=$1 version=$2 dir=$3 image=$4
cd "$(dirname "$0")/.."
signer=$repository/.github/workflows/build.yml
identity=(--certificate-identity "https://github.com/$signer@refs/tags/$version"
  --certificate-oidc-issuer https://token.actions.githubusercontent.com)
origin=(--repo "$repository" --signer-workflow "$signer" --source-ref "refs/tags/$version" --deny-self-hosted-runners)

scripts/signature.sh verify "$dir" "${identity[@]}"
for file in $(sed 's/^[0-9a-f]*  //' "$dir/SHA256SUMS"); do
  gh attestation verify "$dir/$file" --bundle "$dir/provenance.sigstore.json" "${origin[@]}"
done
.cache/bin/cosign verify "${identity[@]}" "$image"
gh attestation verify "oci://$image" "${origin[@]}"
