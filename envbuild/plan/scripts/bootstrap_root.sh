# shellcheck shell=sh disable=SC1091,SC2154
set -eu
{ set +x; } 2>/dev/null
umask 022
root=${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}
export SOURCE_DATE_EPOCH=@epoch@
if [ -n "${ENVBUILD_ROOT:-}" ]; then
    # made before by envbuild from the same packages
    tar -C "$root" --exclude='./dev/*' --numeric-owner -xf "$ENVBUILD_ROOT"
else
@fill@
    mkdir -p "$root@build@/files"
    mv "$work/others" "$root@build@/files/debian"
@network@
fi
