#!/usr/bin/env bash
# Prints the systemd unit of the packages: the unit that people install by hand, for a package, which brings the account and has the
# program elsewhere.
set -euo pipefail
echo '# Of the package msghandler. To change settings: systemctl edit msghandler'
sed -e '1,/^\[Unit\]$/{/^\[Unit\]$/!d}' -e '/^# For other machines: /,/^\[Install\]$/{/^\[Install\]$/!d}' \
  -e 's#/usr/local/bin/#/usr/bin/#' -e 's/^DynamicUser=yes$/User=msghandler\nGroup=msghandler/' \
  "$(dirname "$0")/../deploy/systemd/msghandler.service"
