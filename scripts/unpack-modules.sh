#!/usr/bin/env bash
# Unpack Debian's Environment Modules into a folder, for tests: its package and Lmod's cannot both be installed.
#
#   bash scripts/unpack-modules.sh DIR     DIR/usr/lib/*/modulecmd.tcl is there afterwards; nothing is installed
set -euo pipefail
target=${1:?usage: unpack-modules.sh DIR}
if compgen -G "$target/usr/lib/*/modulecmd.tcl" >/dev/null; then exit; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download environment-modules)
mkdir -p "$target"
dpkg -x "$work"/environment-modules_*.deb "$target"
