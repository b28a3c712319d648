# shellcheck shell=sh disable=SC1091,SC2034
@versions@
mkdir -p @build@
# locked packages, and what building the source packages among them needs
@lists@
if [ -d @supplied@ ]; then
    # built by envbuild: every file was downloaded and verified before
    files=@supplied@
else
@refusal@
    files=@build@/files
    if [ -s @build@/network ]; then set -a; . @build@/network; set +a; fi
    if [ -s @build@/certificates.crt ]; then
        export SSL_CERT_FILE=@build@/certificates.crt
    fi
@fetching@
fi
# what follows starts programs of others: none of them has a network
@program@
offline=@offline@
