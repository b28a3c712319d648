# shellcheck shell=sh disable=SC2154
# locked Debian packages
@sums@
export DEBIAN_FRONTEND=noninteractive
@before@apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null \
    -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 --no-install-recommends \
    install "$files"/debian/*.deb >/dev/null
