# shellcheck shell=sh disable=SC2154,SC2188
    work=$(mktemp -d "${TMPDIR:-/tmp}/envbuild-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/base" "$work/others"
    # this machine's mirror: its first apt source in /debian, or DEBIAN_MIRROR
    sources=$(apt-get update --print-uris | sed -n "s,^'\([^' ]*\)/dists/.*,\1,p")
    mirror=${DEBIAN_MIRROR:-$(printf '%s\n' "$sources" | grep -m1 '/debian/*$')}
@packages@
    while read -r folder sum path; do
        printf '%s\n' "${mirror%/}/$path" "$work/$folder/${path##*/}" "SHA256:$sum"
    done <"$work/packages" | xargs -n 300 /usr/lib/apt/apt-helper \
        download-file >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    while read -r folder sum path; do
        printf '%s  %s\n' "$sum" "$work/$folder/${path##*/}"
    done <"$work/packages" | sha256sum --check --quiet
    # a flat repository of exactly the locked files
    for file in "$work"/base/*.deb; do
        dpkg-deb --field "$file"
        sum=$(sha256sum <"$file" | cut -d' ' -f1)
        printf "Filename: ./%s\nSize: %s\nSHA256: %s\n\n" \
            "${file##*/}" "$(stat -c %s "$file")" "$sum"
    done >"$work/base/Packages"
@offline@
    $offline @mmdebstrap@ >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    tar -C "$root" --exclude='./dev/*' --numeric-owner -xf "$work/root.tar"
