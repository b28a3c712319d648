#!/usr/bin/env bash
# Set up a Debian 12 or 13 machine (or Ubuntu 22.04, 24.04) for envbuild: system packages, and envbuild itself.
#
#   bash scripts/setup-debian.sh [--system-only] [--with PACKAGE]… [COMMAND…]
#
# As root, or as a user with sudo (asked for only where something is missing).  Running it again changes nothing
# that is in place.  COMMAND is run by the installed envbuild at the end: "make keras-bert" builds the shipped image.
#
#   --system-only     leave out envbuild itself
#   --with PACKAGE    install one more Debian package
#   ENVBUILD_VENV     where envbuild goes (root: /opt/envbuild, others: ~/.local/share/envbuild/venv)
#   PYTHON            the Python to use (3.10 or newer; default: the first that is found)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly here
user=$(id -un)
readonly user
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
packages=(
  apt ca-certificates fakeroot fuse-overlayfs fuse3 mmdebstrap patchelf python3-venv squashfs-tools squashfuse uidmap
)
system_only=

say() { printf '%s\n' "setup: $*"; }
fail() { printf '%s\n' "setup: $*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null || fail "root is needed for: $* (docs/howto-no-root.md: what works without)"
  local kept=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ENVBUILD_DEBIAN_MIRROR; do
    if [ -n "${!name-}" ]; then kept+=("$name=${!name}"); fi
  done
  if [ -t 0 ]; then sudo env "${kept[@]}" "$@"; else sudo -n env "${kept[@]}" "$@"; fi
}

# Print distribution and release; for Mint, Pop!_OS and others that are made from Ubuntu: Ubuntu and its release.
name_system() {
  # shellcheck disable=SC1091  # the system's own file
  . /etc/os-release
  case " ${ID_LIKE-} " in *" ubuntu "*) ID=ubuntu ;; esac
  case ${UBUNTU_CODENAME-} in jammy) VERSION_ID=22.04 ;; noble) VERSION_ID=24.04 ;; esac
  echo "$ID ${VERSION_ID-}"
}

# What is different on Ubuntu: Debian's keys are not there, and what is too old is said.
prepare_ubuntu() {
  packages+=(debian-archive-keyring software-properties-common)
  say "Ubuntu $release: bases of Debian packages need a Debian mirror: export ENVBUILD_DEBIAN_MIRROR=https://…/debian"
  if [ "$release" = 22.04 ]; then
    say "Ubuntu 22.04: its mmdebstrap (0.8) is too old for bases of Debian packages; images of a registry work (docker://…)"
  fi
}

install_packages() {
  local package missing=()
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ "${#missing[@]}" = 0 ]; then say "Debian packages: all there"; return; fi
  say "Debian packages: installing ${missing[*]}"
  as_root "${apt[@]}" update </dev/null
  as_root "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

install_apptainer() {
  if command -v apptainer >/dev/null && apptainer --version >/dev/null 2>&1; then
    say "Apptainer: $(apptainer --version)"
  elif command -v singularity >/dev/null && singularity --version >/dev/null 2>&1; then
    say "Apptainer: this machine's Singularity is used: $(singularity --version)"
  elif [ "$distribution" = ubuntu ]; then
    install_apptainer_on_ubuntu
  else
    say "Apptainer: installing it from Debian unstable, with libraries of its own"
    as_root bash "$here/scripts/apptainer-debian.sh"
  fi
}

install_apptainer_on_ubuntu() {
  local by_hand="no Apptainer could be installed on Ubuntu $release. Download the .deb for Ubuntu $release that Apptainer's
  developers publish with each release, install it (sudo apt-get install ./apptainer_*.deb), and run this script again.
  Ubuntu 24.04 and Debian 12 need none of this (docs/platforms.md)."
  say "Apptainer: installing it from its developers' archive for Ubuntu (ppa:apptainer/ppa)"
  if as_root add-apt-repository --yes ppa:apptainer/ppa </dev/null >/dev/null 2>&1; then
    as_root "${apt[@]}" install --yes --no-install-recommends apptainer </dev/null >/dev/null
  elif [ -n "${ENVBUILD_DEBIAN_MIRROR-}" ]; then
    say "Apptainer: that archive cannot be reached; installing it from Debian unstable, with libraries of its own"
    as_root bash "$here/scripts/apptainer-debian.sh" || fail "$by_hand"
  else
    say "Apptainer: that archive cannot be reached; installing Ubuntu's SingularityCE (singularity-container) instead"
    as_root "${apt[@]}" install --yes --no-install-recommends singularity-container </dev/null >/dev/null || fail "$by_hand"
  fi
}

# Give a user 65536 ids of /etc/subuid and /etc/subgid that no other line uses.
give_ids() {
  local name=$1 file first
  first=$(cat /etc/subuid /etc/subgid 2>/dev/null |
    awk -F: '$2 + $3 > end { end = $2 + $3 } END { print (end > 100000 ? end : 100000) }')
  for file in /etc/subuid /etc/subgid; do
    if grep -q "^\($name\|$(id -u "$name")\):" "$file" 2>/dev/null; then
      say "$file: $name has a line"
    else
      say "$file: adding $name:$first:65536"
      echo "$name:$first:65536" | as_root tee -a "$file" >/dev/null
    fi
  done
}

open_fuse() {
  if [ -r /dev/fuse ] && [ -w /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" = 666 ]; then say "/dev/fuse: usable"; return; fi
  [ -c /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
  if [ ! -c /dev/fuse ] && grep -qw fuse /proc/filesystems; then as_root mknod /dev/fuse c 10 229; fi
  if [ -c /dev/fuse ] && as_root chmod 666 /dev/fuse; then
    say "/dev/fuse: opened for all users"
  else
    say "/dev/fuse: this kernel has none; images are unpacked before they run"
  fi
}

open_namespaces() {
  # mapped to root: Ubuntu 24.04 gives namespaces to everybody, but no rights inside
  if unshare --user --map-root-user true 2>/dev/null; then say "user namespaces: usable"; return; fi
  say "user namespaces: switching them on (until the next boot)"
  local switch
  for switch in user/max_user_namespaces=15000 kernel/unprivileged_userns_clone=1 \
    kernel/apparmor_restrict_unprivileged_userns=0; do
    if [ -e "/proc/sys/${switch%=*}" ]; then
      echo "${switch#*=}" | as_root tee "/proc/sys/${switch%=*}" >/dev/null || true
    fi
  done
  unshare --user --map-root-user true 2>/dev/null || say "user namespaces: still refused; envbuild doctor says what follows from it"
}

# Whether a program starts for every user, where root asks; for others whether it starts.
runs_for_all() {
  local somebody=()
  if [ "$(id -u)" = 0 ]; then somebody=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi
  env HOME=/ "${somebody[@]}" "$1" --version >/dev/null 2>&1
}

install_envbuild() {
  local python
  python=$(bash "$here/scripts/find-python.sh")
  say "envbuild: into $venv, with $python"
  if ! [ -x "$venv/bin/pip" ]; then
    "$python" -m venv "$venv"
  elif ! runs_for_all "$(readlink -f "$venv/bin/python")" && runs_for_all "$python"; then
    say "envbuild: other users cannot start the Python that it was installed with: installing it anew"
    "$python" -m venv --clear "$venv"
  fi
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$here"
  mkdir -p "$programs"
  ln -sfn "$venv/bin/envbuild" "$programs/envbuild"
  say "envbuild: $("$venv/bin/envbuild" --version), as $programs/envbuild"
  runs_for_all "$programs/envbuild" || say "envbuild: only root can run it; another Python may help (PYTHON=/usr/bin/python3)"
  case ":$PATH:" in
    *":$programs:"*) ;;
    *) say "envbuild: put it on PATH with: export PATH=\"$programs:\$PATH\"" ;;
  esac
}

# Apptainer builds read /etc/hosts, which the smallest Debian systems lack.
write_hosts() {
  if [ -e /etc/hosts ]; then return; fi
  say "/etc/hosts: writing one"
  echo "127.0.0.1 localhost" | as_root tee /etc/hosts >/dev/null
}

while [ $# -gt 0 ]; do
  case $1 in
    --system-only) system_only=yes; shift ;;
    --with) packages+=("${2:?--with takes the name of a package}"); shift 2 ;;
    --with=?*) packages+=("${1#--with=}"); shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) fail "unknown option $1" ;;
    *) break ;;
  esac
done

if [ "$(id -u)" = 0 ]; then
  umask 022 # what root installs is for every user
  venv=${ENVBUILD_VENV:-/opt/envbuild} programs=/usr/local/bin
else
  venv=${ENVBUILD_VENV:-$HOME/.local/share/envbuild/venv} programs=$HOME/.local/bin
fi
command -v apt-get >/dev/null || fail "this is for Debian and Ubuntu; elsewhere: docs/platforms.md"
read -r distribution release < <(name_system)

if [ "$distribution" = ubuntu ]; then prepare_ubuntu; fi
install_packages
install_apptainer
give_ids "$user"
if [ -n "${SUDO_USER-}" ] && [ "$SUDO_USER" != "$user" ]; then give_ids "$SUDO_USER"; fi
write_hosts
open_fuse
open_namespaces
[ -n "$system_only" ] || install_envbuild
[ $# = 0 ] || exec "$venv/bin/envbuild" "$@"
