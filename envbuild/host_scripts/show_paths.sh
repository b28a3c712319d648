# shellcheck shell=sh
set -eu
umask 022  # other ids must reach what is shown, whatever the caller's is
# The ids of this run may enter no closed folder: what it needs is shown under its own name,
# over empty folders.
# Arguments: owner of what it may write, folder to stash things in, folder to start in, KIND:PATH…
owner=$1 stash=$2 start=$3; shift 3
mount -t tmpfs -o mode=755,size=1m envbuild "$stash"
mkdir "$stash/home" "$stash/tmp"
chown "$owner" "$stash/home" "$stash/tmp"
count=0
while [ "$1" != -- ]; do
    kind=${1%%:*} path=${1#*:}
    shift
    if [ "$kind" = cover ]; then mount -t tmpfs -o mode=755,size=1m envbuild "$path"; continue; fi
    count=$((count + 1))
    eval "path$count=\$path kind$count=\$kind"
    if [ "$kind" = rw ]; then chown "$owner" "$path"; fi
    if [ -d "$path" ]; then mkdir "$stash/$count"; else : >"$stash/$count"; fi
    mount --rbind "$path" "$stash/$count"
done
shift
# memory that processes of the machine share
if [ -d /dev/shm ]; then mount -t tmpfs -o mode=1777 envbuild /dev/shm; fi
number=0
while [ $number -lt $count ]; do
    number=$((number + 1))
    eval "path=\$path$number"
    if [ ! -e "$path" ]; then
        if [ -d "$stash/$number" ]; then
            mkdir -p "$path"
        else
            mkdir -p "${path%/*}"
            : >"$path"
        fi
    fi
    mount --rbind "$stash/$number" "$path"
done
# once for all: each program that starts costs a run two milliseconds
if [ $count -gt 0 ]; then umount -l "$stash"/[0-9]*; fi
cd "$start"
