# shellcheck shell=bash disable=SC1090
env -0 >@results@/before
for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
    if [ -f "$file" ]; then echo "$file" >@results@/current; . "$file"; fi
done
env -0 >@results@/after
if [ -n "${BASH_VERSION:-}" ]; then
    compgen -A function >@results@/functions
    alias >>@results@/functions
fi
exit 0
