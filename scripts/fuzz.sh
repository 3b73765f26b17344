#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 60s), one after the other. What fails is kept under the package's
# testdata/fuzz, where the ordinary tests run it from then on. FUZZ picks targets by a regular expression.
set -euo pipefail
cd "$(dirname "$0")/.."

# go test -list prints the targets of a package and then a line "ok PACKAGE TIME".
listed=$(go test -list "${FUZZ:-^Fuzz}" work)
targets=$(awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }' <<<"$listed")
[ -n "$targets" ] || { echo "no fuzz target matches ${FUZZ:-^Fuzz}" >&2; exit 1; }

failed=()
while read -r package target; do
	echo "== $package $target"
	# Each find may be made smaller for a second; the default of a minute would be spent on the first one.
	go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-60s}" -fuzzminimizetime 1s </dev/null ||
		failed+=("$package $target")
done <<<"$targets"

[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
echo "$(wc -l <<<"$targets") targets, nothing found"
