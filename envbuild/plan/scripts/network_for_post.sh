# shellcheck shell=sh disable=SC2154
    # certificates, proxies and index of this machine: removed when the build ends
    certificates=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
    if [ -r "$certificates" ]; then
        cp "$certificates" "$root@build@/certificates.crt"
    fi
    env | grep -E '@wanted@' | sed "s/'/'\\''/g; s/=/='/; s/$/'/" >"$root@build@/network" || true
