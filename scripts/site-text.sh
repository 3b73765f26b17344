#!/usr/bin/env bash
# Writes the pages of docs/ as Markdown beside the pages of the built site, and llms.txt, which lists them for programs.
set -euo pipefail
site=$(realpath "${1:?usage: scripts/site-text.sh DIRECTORY}")
cd "$(dirname "$0")/../docs"
find . -name '*.md' ! -path './site/*' ! -path './README.md' | while read -r page; do
  install -D -m 644 "$page" "$site/$page"
done
install -m 644 README.md "$site/index.md"
{
  echo '# msghandler'
  echo
  sed -n '3,/^$/s/^\(.\)/> \1/p' README.md
  echo
  sed -n '/^## /,/^To change/p' README.md | sed '/^To change/d'
} >"$site/llms.txt"
