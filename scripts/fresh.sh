#!/usr/bin/env bash
# Run README's commands as new users do: each in a bare Debian 12 made for it, as root and as a user with sudo.
#
#   bash scripts/fresh.sh [--suite NAME] [--as root|user]… [COMMAND…]
#
# Before a release, as root, from a clean checkout: only what is committed is tried.  Without COMMAND (one argument
# each) both commands of README.md are run.  After a run as root a user without sudo tries the envbuild that root
# installed.  Prints what each took and ends with 1 where one failed; logs are kept in $FRESH_LOGS.  The tests take some
# 35 minutes and 30 GB of disk in each system.
#
# The bare systems get this machine's apt sources (those of another suite get mmdebstrap's own), certificates, name
# servers, proxies, PIP_INDEX_URL and ENVBUILD_DEBIAN_MIRROR, nothing else.
#
#   --as WHO     only as this one
#   --suite NAME another release: trixie, jammy or noble; the latter want /usr/share/keyrings/ubuntu-archive-keyring.gpg
#   FRESH_LOGS   where the logs go (default: a new folder in TMPDIR)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly here
suite=bookworm
failed=

say() { printf '%s\n' "fresh: $*"; }
fail() { printf '%s\n' "fresh: $*" >&2; exit 1; }

make_bare_system() {
  local packages=ca-certificates,git,sudo components=main
  case $suite in jammy | noble) components=main,universe ;; esac
  mmdebstrap --quiet --variant=important --components="$components" --include="$packages" "$suite" "$scratch/bare.tar" >"$logs/bare.log" 2>&1
}

# Lay out a new root: the bare system, what it has to know of this machine, the project, a user with sudo, one without.
make_root() {
  local root=$scratch/root certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} name
  rm -rf --one-file-system "$root"
  mkdir "$root"
  tar -C "$root" --numeric-owner --exclude='./dev/*' -xf "$scratch/bare.tar"
  cp "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  cp --remove-destination /etc/resolv.conf /etc/hosts "$root/etc/"
  if [ "$suite" = bookworm ]; then
    rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d
    for name in sources.list sources.list.d auth.conf.d; do
      if [ -e "/etc/apt/$name" ]; then cp -r "/etc/apt/$name" "$root/etc/apt/"; fi
    done
  fi
  for name in ada guest; do chroot "$root" useradd --create-home --shell /bin/bash "$name"; done
  echo "ada ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/ada"
  git clone --quiet "$here" "$root/root/envbuild"
  cp -r "$root/root/envbuild" "$root/home/ada/envbuild"
  chroot "$root" chown -R ada:ada /home/ada/envbuild
}

# Run a command in the root, in namespaces of its own: as WHO, in FOLDER.
inside() {
  local who=$1 folder=$2 home=/root kept=() name
  if [ "$who" != root ]; then home=/home/$who; fi
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL ENVBUILD_DEBIAN_MIRROR; do
    if [ -n "${!name-}" ]; then kept+=("$name=${!name}"); fi
  done
  # shellcheck disable=SC2016  # the inner shell's variables
  unshare --mount --pid --fork --propagation private bash -euc '
    root=$1 who=$2 folder=$3
    shift 3
    mount --bind "$root" "$root"
    mkdir -p "$root/outside" "$root/dev" "$root/sys" "$root/run"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o exec,mode=755 tmpfs "$root/run"
    cd "$root"
    pivot_root . outside
    mount -t proc proc /proc
    umount -l /outside
    # not by exec: this shell is process 1 here, and takes in what ends without a parent (Slurm waits for that)
    code=0
    env -i "${@:2}" runuser -u "$who" -- bash -c "cd $folder && $1" || code=$?
    exit "$code"
  ' bash "$scratch/root" "$who" "$folder" "$3" "HOME=$home" "USER=$who" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${kept[@]}"
}

# Run one command, tell its time, and remember a failure.
try() {
  local who=$1 folder=$2 command=$3 log code=0 began=$SECONDS
  log=$logs/$(printf '%s-%s' "$who" "$command" | tr -c 'a-zA-Z0-9\n' '-').log
  inside "$who" "$folder" "$command" >"$log" 2>&1 || code=$?
  say "$who: $command: exit code $code, $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s ($log)"
  if [ "$code" != 0 ]; then
    failed=yes
    tail -n 25 "$log"
  fi
}

try_both() {
  local who=$1 command=$2
  make_root
  if [ "$who" = root ]; then
    try root /root/envbuild "$command"
    if [ -L "$scratch/root/usr/local/bin/envbuild" ]; then try guest /home/guest "envbuild make keras-bert"; fi
  else
    try ada /home/ada/envbuild "$command"
  fi
}

commands=() users=()
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=${2:?--suite takes the name of a release}; shift 2 ;;
    --as) users+=("${2:?--as takes root or user}"); shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) fail "unknown option $1" ;;
    *) commands+=("$1"); shift ;;
  esac
done
[ "$(id -u)" = 0 ] || fail "only root can make a bare system to run in"
if [ "${#commands[@]}" = 0 ]; then mapfile -t commands < <(grep '^bash scripts/' "$here/README.md"); fi
if [ "${#users[@]}" = 0 ]; then users=(root user); fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/envbuild-fresh-XXXXXX")
trap 'rm -rf --one-file-system "$scratch/root" "$scratch/bare.tar"; rmdir --ignore-fail-on-non-empty "$scratch"' EXIT
logs=${FRESH_LOGS:-$scratch}
mkdir -p "$logs"

make_bare_system
for command in "${commands[@]}"; do
  for user in "${users[@]}"; do try_both "$user" "$command"; done
done
say "logs: $logs"
[ -z "$failed" ]
