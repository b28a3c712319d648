# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# A folder on the node's own disk for /tmp of the container.  Its job's shell holds a lock on it.
make_scratch() {
  local disk
  disk=$(node_local) || exit 125
  remove_left "$disk"
  while :; do
    scratch=$(mktemp -d "$disk/envbuild-job.XXXXXXXX") || fail "no node-local folder can be written"
    # a rank beside this one may take it for one that is left, and remove it
    { exec 7<"$scratch"; } 2>/dev/null || continue
    flock -s 7
    # another job may have taken it for one that is left
    [ ! "$scratch" -ef /dev/fd/7 ] || break
  done
}
# what your jobs have left there that were killed outright
remove_left() {
  local folder lock
  for folder in "$1"/envbuild-job.* "$1"/envbuild-stage-*; do
    lock=$folder
    case $folder in "$1"/envbuild-stage-*) lock=$folder/lock ;; esac
    if [ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ]; then
      (flock -n -x 7 && rm -rf -- "$folder") 2>/dev/null 7<"$lock"
    fi
  done
}
