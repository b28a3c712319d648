# shellcheck shell=bash
# The folders of what a job tells; a copied project may have links in their places.
for place in .envbuild .envbuild/jobs .envbuild/results; do
  if [ -L "$place" ] || ! mkdir -p -- "$place"; then
    printf 'envbuild: error: %s is no folder of its own\n' "$place" >&2
    exit 125
  fi
done
[ -e .envbuild/.gitignore ] || [ -L .envbuild/.gitignore ] || echo '*' >.envbuild/.gitignore
