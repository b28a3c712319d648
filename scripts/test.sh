#!/usr/bin/env bash
# Set up a fresh Debian 12 machine (root, or a user with sudo) and pass everything: lint, types and the whole suite.
#
#   bash scripts/test.sh [PYTEST ARGUMENTS…]
#
# Where nothing can be installed (no Debian, no root) the tests that need a missing tool are skipped, with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
  needed=(
    git gcc libc6-dev gnupg shellcheck faketime openmpi-bin python3-mpi4py buildah chromium chromium-driver lmod
    ruby sshfs openssh-sftp-server qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  )
  bash scripts/setup-debian.sh --system-only "${needed[@]/#/--with=}"
  bash scripts/setup-registry.sh install
  bash scripts/unpack-modules.sh "${XDG_CACHE_HOME:-$HOME/.cache}/envbuild-tests/environment-modules"
  bash scripts/setup-schedulers.sh install
else
  echo "test: neither root nor sudo here, so nothing is installed"
fi

venv=${ENVBUILD_TEST_VENV:-.venv}
if ! [ -x "$venv/bin/pip" ]; then
  python=$(bash scripts/find-python.sh)
  "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install --upgrade "pip>=25.1" # the first that knows dependency groups
"${pip[@]}" install --editable . --group dev
PATH=$(cd "$venv/bin" && pwd):$PATH
export PATH
# some tests call uv themselves; it trusts what the system trusts, as it does when envbuild calls it
export UV_SYSTEM_CERTS=true

ruff format --check .
ruff check .
mypy envbuild tests
if [ $# -gt 0 ]; then exec pytest "$@"; fi
# folders of this run's own: what a killed run left behind (a mount, files of another user) cannot fail this one
own=$(mktemp -d "${TMPDIR:-/tmp}/tests.XXXXXX")
chmod 755 "$own"
export PYTEST_DEBUG_TEMPROOT=$own
jobs=$own/jobs.log

# run_part NAME ARGUMENTS…: run pytest; what failed runs once more, alone.
# A test that passes then is printed: it hides a race, and is to be mended, but it does not hold up this change.
run_part() {
  local name=$1
  shift
  local cache=(-o "cache_dir=$own/cache-$name")
  if pytest "${cache[@]}" "$@" 2>&1 | tee "$own/$name.log"; then return; fi
  # where a worker died, tests were left out; where pytest itself failed, none is known
  if grep -q "node down" "$own/$name.log" || ! [ -s "$own/cache-$name/v/cache/lastfailed" ]; then return 1; fi
  echo "test: once more, alone: what failed in the part \"$name\""
  cp "$own/cache-$name/v/cache/lastfailed" "$own/failed-once-$name"
  if pytest "${cache[@]}" "$@" -n 0 --exitfirst --last-failed --last-failed-no-failures none; then return; fi
  rm "$own/failed-once-$name"
  return 1
}

# jobs on real schedulers mostly wait, so they run beside all else; real builds run two at a time
run_part jobs -m live tests/job --durations 5 >"$jobs" 2>&1 &
waiting=$!
trap 'kill "$waiting" 2>/dev/null || true' EXIT
# what fails in one part does not hide what fails in another
failed=
# a worker that dies ends the run: a new one in its place may be waited for without end
workers=(--dist loadfile --max-worker-restart 0)
run_part not-live -n "$(nproc)" "${workers[@]}" -m "not live" --durations 40 || failed=yes
# tests/build takes nine minutes more than .ci/run has: run it with scripts/test.sh after a change of a build
left=(--ignore tests/job)
if [ -n "${CI-}" ]; then left+=(--ignore tests/build); fi
run_part live -n 2 "${workers[@]}" -m live "${left[@]}" --durations 15 || failed=yes
wait "$waiting" || failed=yes
cat "$jobs"
for once in "$own"/failed-once-*; do
  if [ -e "$once" ]; then
    echo "test: failed once, passed alone (mend what it waits for, or what it leaves to chance):"
    cat "$once"
  fi
done
if [ -n "$failed" ]; then
  echo "test: the folders of failed tests are in $own"
  exit 1
fi
rm -rf "$own" || echo "test: $own could not be removed"
