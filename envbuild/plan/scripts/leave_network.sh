# shellcheck shell=sh disable=SC2034
    # the packages' scripts get no network, where one may be left
    offline=
    if unshare --net true 2>/dev/null; then offline='unshare --net'; fi
