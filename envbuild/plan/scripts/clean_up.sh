# shellcheck shell=sh
# nothing of the build stays: caches, logs, how this machine reached its index
rm -rf @build@ /var/lib/apt/lists/* /var/cache/apt/*.bin \
    /var/cache/apt/archives/*.deb /var/cache/ldconfig/aux-cache /var/log/apt \
    /var/log/dpkg.log /var/log/alternatives.log /var/log/bootstrap.log
