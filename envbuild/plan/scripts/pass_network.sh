# shellcheck shell=sh
set -eu
{ set +x; } 2>/dev/null
root=${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}
if [ -z "${ENVBUILD_FILES:-}" ]; then
    mkdir -p "$root@build@"
@network@
fi
