# shellcheck shell=sh disable=SC2086,SC2154
# the installer is one of the locked files
installer=$(sed -n 's/^uv==.*  # //p' @build@/build.txt)
(cd "$files/python" && sed -n 's/^uv==.*sha256:\([0-9a-f]*\)  # /\1  /p' @build@/build.txt |
    sha256sum --check --quiet)
@python@ -m zipfile -e "$files/python/$installer" @build@/installer
chmod 755 @build@/installer/uv-*.data/scripts/uv
export UV_CACHE_DIR=@build@/cache UV_LINK_MODE=hardlink
export UV_NO_CONFIG=1 UV_OFFLINE=1 LC_ALL=C.UTF-8
@invalidation@
$offline @build@/installer/uv-*.data/scripts/uv pip install --quiet \
    --python @python@@forced@ \
    --no-deps --require-hashes --no-index@bytecode@ \
    --find-links "$files/python" --build-constraints @build@/build.txt \
    --requirement @build@/packages.txt
