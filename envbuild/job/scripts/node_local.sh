# shellcheck shell=bash disable=SC2043  # @folders@ stands for several
node_local() {
  local folder
  for folder in @folders@ /tmp; do
    if [ -n "$folder" ] && [ -d "$folder" ] && [ -w "$folder" ] && is_kept "$folder"; then
      printf "%s\n" "$folder"
      return
    fi
  done
  fail "no folder of this node can be used: each is missing, read-only, or any user may exchange what lies in it"
}
# no user may put another folder in the place of one of this job's
is_kept() {
  local folder
  folder=$(CDPATH='' cd -P -- "$1" && pwd) || return 1
  while :; do
    [ -z "$(find "$folder/" -maxdepth 0 -perm -0002 ! -perm -1000 2>&1)" ] || return 1
    [ -n "$folder" ] || return 0
    folder=${folder%/*}
  done
}
