#!/usr/bin/env bash
# Install Apptainer on Debian 12 or 13, whose own suites have none.  Run as root; a working Apptainer is left alone.
#
# The package comes from Debian unstable, through ENVBUILD_DEBIAN_MIRROR or the mirror that this machine's apt uses,
# checked with Debian's keys.  It wants a newer C library than the host has.  Upgrading that would pull half a
# distribution along, so the newer libraries go to a folder of their own, where only Apptainer's two programs look.
# Nothing in /etc/apt changes.
set -euo pipefail

readonly LIBRARIES=/opt/apptainer-libs
readonly KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { printf 'apptainer-debian: %s\n' "$*" >&2; exit 1; }

if command -v apptainer >/dev/null && apptainer --version 2>/dev/null; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "this needs root"
[ -r "$KEYS" ] || fail "no Debian keys in $KEYS: install Apptainer as your distribution says"

export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2016  # apt-get expands $(SITE), not the shell
mirror=${ENVBUILD_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' |
  grep -m1 '/debian/*$')} ||
  fail "this machine's apt uses no Debian mirror: install Apptainer as your distribution says"
triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,libraries}
echo "deb [signed-by=$KEYS] $mirror sid main" >"$work/sources.list"
unstable=(
  -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Acquire::Languages=none
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User=root
)
echo "Reading Debian unstable's package list from $mirror"
if ! apt-get "${unstable[@]}" update -qq </dev/null; then
  echo "Trying again without a limit of age (a mirror may be a snapshot); Debian's signature is still asked for"
  unstable+=(-o Acquire::Check-Valid-Until=false)
  apt-get "${unstable[@]}" update -qq </dev/null ||
    fail "Debian unstable cannot be read from $mirror; apt says why above
  (NO_PUBKEY: the package debian-archive-keyring of this release is too old: install a newer one, or Apptainer by hand)"
fi

# libraries only: the programs it depends on are the host's own
mapfile -t needed < <(
  apt-cache "${unstable[@]}" depends --important apptainer | sed -n 's/^ *\(Pre\)\?Depends: \(lib[^ <>:]*\).*/\2/p' | sort -u
)
[ "${#needed[@]}" -gt 0 ] || fail "Debian unstable has no apptainer for $(dpkg --print-architecture)"
echo "Downloading apptainer ${needed[*]}"
(cd "$work/debs" && apt-get "${unstable[@]}" download -qq apptainer "${needed[@]}" </dev/null)

for package in "$work"/debs/lib*.deb; do dpkg -x "$package" "$work/libraries"; done
mkdir -p "$LIBRARIES"
find "$work/libraries" -path "*/$triplet/*" -name '*.so*' -not -path '*/gconv/*' \( -type f -o -type l \) \
  -exec cp -a -t "$LIBRARIES" {} +

dpkg --fsys-tarfile "$work"/debs/apptainer_*.deb >"$work/apptainer.tar"
tar -C / -xf "$work/apptainer.tar" --keep-directory-symlink --no-overwrite-dir
tar -tf "$work/apptainer.tar" >"$LIBRARIES/installed-files" # for those who want to remove it again
for program in /usr/bin/apptainer "/usr/lib/$triplet/apptainer/bin/starter"; do
  loader=$(basename "$(patchelf --print-interpreter "$program")")
  patchelf --set-interpreter "$LIBRARIES/$loader" "$program"
  patchelf --force-rpath --set-rpath "$LIBRARIES" "$program"
done
[ -e /usr/bin/singularity ] || ln -s apptainer /usr/bin/singularity
apptainer --version || fail "the installed Apptainer does not start"
