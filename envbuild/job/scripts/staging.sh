# shellcheck shell=bash disable=SC2154,SC2317
# Data goes to the disk of a node once: its first process copies, and the last one out removes it.  Every process holds
# the lock shared from the start; a second lock is for the copy alone, so that all commands run at the same time.
stage() {
  local began=$SECONDS tries=0
  staged=$(node_local) || exit 125
  staged+=/envbuild-stage-$token
  # a process that was quick may remove the folder while this one waits for its lock
  while [ $((tries += 1)) -lt 50 ] || fail "no file can be written in $staged"; do
    mkdir -m 700 -- "$staged" 2>/dev/null || is_own "$staged" || { [ ! -e "$staged" ] && continue; } || fail "$staged is not yours"
    { exec 9>"$staged/lock"; } 2>/dev/null || continue
    flock -s 9
    [ ! "$staged/lock" -ef /dev/fd/9 ] || break
  done
  exec 8>"$staged/copy"
  flock 8
  if [ ! -e "$staged/done" ]; then
    if ! copy_data; then
      exec 8>&-
      unstage
      fail "the data was not brought to the disk of $(hostname), $staged: see above"
    fi
    : >"$staged/done"
    printf 'envbuild: data is on %s after %d s\n' "$(hostname)" $((SECONDS - began))
  fi
  exec 8>&-
}
# who saw the name on another node of the job may have made it on this one; one look, that follows no link
is_own() { [ -n "$(find "$1" -maxdepth 0 -type d -user "$(id -u)" 2>/dev/null)" ]; }
unstage() {
  flock -n -x 9 && rm -rf -- "$staged"
  exec 9>&-
}
