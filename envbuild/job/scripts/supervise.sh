# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# in the background, because bash hears a signal while it waits, but not while a command has the foreground
supervise() {
  local code last
  # a signal that came before the command did
  case $signal in TERM | INT | USR2) exit 143 ;; esac
  # of several processes of a node, only the script has it
  if declare -F sample_use >/dev/null && [ -z "$sampler" ]; then sample_use; fi
  "$@" &
  child=$!
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  # a wait that a signal has ended gives the signal's number, even if the command ended at the same moment
  wait "$child" 2>/dev/null
  last=$?
  [ "$last" -eq 127 ] || code=$last
  child=
  return "$code"
}
