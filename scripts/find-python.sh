#!/usr/bin/env bash
# Print the Python to make a virtual environment with: the first that is new enough for envbuild and has its venv module.
# Root's choice is one that every user can start, where there is one: envbuild is installed for all of them.
set -euo pipefail

works() { "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
open_to_all() {
  [ "$(id -u)" != 0 ] || setpriv --reuid=65534 --regid=65534 --clear-groups "$1" -c 'import venv' 2>/dev/null
}

first=
for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
  works "$candidate" || continue
  path=$(command -v "$candidate")
  if open_to_all "$path"; then
    echo "$path"
    exit 0
  fi
  first=${first:-$path}
done
if [ -n "$first" ]; then
  echo "other users cannot start $first, nor what is installed with it; one for all: apt-get install python3-venv" >&2
  echo "$first"
  exit 0
fi
echo "no Python 3.10 or newer with its venv module was found (name one: PYTHON=/path/to/python3)" >&2
exit 1
