# shellcheck shell=sh disable=SC1091,SC2154
set -eu
umask 022
export SOURCE_DATE_EPOCH=@epoch@ DEBIAN_FRONTEND=noninteractive DPKG_FORCE=unsafe-io
if [ -r @secrets@/network ]; then set -a; . @secrets@/network; set +a; fi
if [ -r @secrets@/certificates ]; then
    echo 'Acquire::https::CAInfo "@secrets@/certificates";' >/etc/apt/apt.conf.d/99certificates
fi
if [ -n "${DEBIAN_MIRROR:-}" ]; then
    rm -f /etc/apt/sources.list.d/*
    release=$(. /etc/os-release; echo "$VERSION_CODENAME")
    echo "deb $DEBIAN_MIRROR $release main" >/etc/apt/sources.list
fi
apt-get -qq update
apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends \
    mmdebstrap python3 >/dev/null
root=@target@
mkdir "$root"
# the packages' scripts get no network
@program@
{
@fill@
    mv "$work/others" @staged@
}
