# shellcheck shell=sh disable=SC1090,SC1091
for file in @given@/base/*; do
    if [ -f "$file" ]; then . "$file"; fi
done
. @given@/variables.sh
shell=/bin/sh
for found in "$CONDA_PREFIX/bin/bash" /bin/bash; do
    if [ -x "$found" ]; then shell=$found; break; fi
done
exec "$shell" @given@/activate.sh
