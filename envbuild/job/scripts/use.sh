# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# What the job uses is sampled by a small program, which needs the node's python3; without it, nothing is known.
stop_sampling() {
  local end=$((SECONDS + 2))
  [ -n "$sampler" ] || return 0
  # a job may end before its sampler has begun
  if [ -e "$use.on" ]; then kill -ALRM "$sampler"; else kill -KILL "$sampler"; fi 2>/dev/null
  while kill -0 "$sampler" 2>/dev/null && [ "$SECONDS" -le "$end" ]; do sleep 0.05; done
  kill -KILL "$sampler" 2>/dev/null
  read -r used 2>/dev/null <"$use"
}
