# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# A signal that comes while the runtime starts the container is lost, or ends the runtime alone: the container's first
# process has no handler yet.  So it waits until the command's own shell has written into a file, half a minute at most.
hand_on() {
  if [ -z "$child" ]; then
    early=$1
  elif [ -z "$begun" ] || [ -s "$begun" ]; then
    kill "-$1" "$child" 2>/dev/null
  else
    {
      # schedulers signal all processes of a job, and may do so again
      trap '' TERM INT USR1 USR2
      tries=0
      while [ ! -s "$begun" ] && kill -0 "$child" && [ $((tries += 1)) -le 300 ]; do sleep 0.1; done
      kill "-$1" "$child"
    } >/dev/null 2>&1 &
  fi
}

# in the background, because bash hears a signal while it waits, but not while a command has the foreground
supervise() {
  local code last running
  # a signal that came before the command did
  case $signal in TERM | INT | USR2) exit 143 ;; esac
  # of several processes of a node, only the script has it
  if declare -F sample_use >/dev/null && [ -z "$sampler" ]; then sample_use; fi
  "$@" 6<&- &
  child=$!
  [ -z "$early" ] || hand_on "$early"
  early=
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  # a wait that a signal has ended gives the signal's number, even if the command ended at the same moment; at that
  # moment bash may forget the command's end (its handler leaves the wait), take it for running, and wait for ever
  # shellcheck disable=SC2006  # a signal that comes while bash 5.2 looks for the end of $( is a syntax error
  running=`jobs -pr`
  case " ${running//[!0-9]/ } " in
  *" $child "*) ;;
  *)
    wait "$child" 2>/dev/null
    last=$?
    [ "$last" -eq 127 ] || code=$last
    ;;
  esac
  child=
  return "$code"
}
