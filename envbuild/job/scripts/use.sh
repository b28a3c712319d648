# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# What the job uses is sampled by a small program, which needs the node's python3; without it, nothing is known.
stop_sampling() {
  local tries=0
  [ -n "$sampler" ] || return 0
  # a job may end before its sampler has begun
  if [ -e "$use.on" ]; then kill -ALRM "$sampler"; else kill -KILL "$sampler"; fi 2>/dev/null
  while kill -0 "$sampler" 2>/dev/null && [ $((tries += 1)) -le 40 ]; do sleep 0.05; done
  used=$(cat "$use" 2>/dev/null)
  rm -f -- "$use" "$use.on" "$use.part"
}
