#!/usr/bin/env bash
# Print the first Python of this machine that is new enough for envbuild and can make virtual environments.
set -euo pipefail
for candidate in ${PYTHON:-python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
  if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    command -v "$candidate"
    exit 0
  fi
done
echo "no Python 3.10 or newer with its venv module was found (name one: PYTHON=/path/to/python3)" >&2
exit 1
