# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# A suspended job does not use up its time (seen on PBS and Grid Engine), and hears nothing while it stands still.
tell_at_end() {
  local end=$((SECONDS + $1)) halted=0 began step late
  # a signal to all processes of the job must not look like the end of its time
  trap 'kill $!' TERM
  while step=$((end - SECONDS)) && [ "$step" -gt 0 ]; do
    [ "$step" -le 5 ] || step=5
    began=$SECONDS
    sleep "$step" &
    wait $! || return
    late=$((SECONDS - began - step))
    [ "$late" -gt 5 ] || continue
    end=$((end + late)) halted=$((halted + late))
    echo "$halted" >"$use.halted"
  done
  kill -TERM $$
}
