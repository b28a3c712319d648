#!/bin/sh
# Build @name@.sif with Apptainer (or Singularity) alone; nothing is downloaded.
set -eu
cd "$(dirname "$0")"
sha256sum --check --quiet SHA256SUMS
runtime=$(command -v apptainer || command -v singularity) ||
    { echo "neither apptainer nor singularity is here" >&2; exit 1; }
export ENVBUILD_FILES="$PWD/files/envbuild" ENVBUILD_ROOT="$PWD/base/root.tar.gz"
[ -e "$ENVBUILD_ROOT" ] || unset ENVBUILD_ROOT
exec "$runtime" build --fakeroot --bind "$PWD/files:@files@:ro" @name@.sif @name@.def
