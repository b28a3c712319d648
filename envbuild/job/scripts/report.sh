# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# How a job tells what it is, and how it ended.  The variables are the head's.
fail() {
  printf 'envbuild: error: %s\n' "$*" >&2
  exit 125
}

# the receipt has its place on the disk from the start: a full disk is one of the things that end jobs
reserve_receipt() {
  local tries=0
  if declare -F kill_later >/dev/null && [ "$runs" -gt 1 ]; then
    # the run before may still save its state; of a node that has failed, this place is left
    while [ -e "$receipt.part" ] && [ $((tries += 1)) -le 40 ]; do sleep 1; done
  fi
  # one is there if the job was put back into the queue
  rm -f -- "$receipt" "$receipt.part" "$use" "$use".*
  printf '%4000s\n' '' >"$receipt.part"
}

finish() {
  local code=$? text ended
  trap '' TERM INT USR1 USR2
  [ "${#watch[@]}" -eq 0 ] || kill "${watch[@]}" 2>/dev/null
  stop_sampling
  case $signal in
  TERM | INT | USR2)
    case $code in
    # the runtime may report 128 + SIGCONT, which Slurm sends with TERM, or 255 of a container that has gone
    146 | 255) code=143 ;;
    # unless they are the command's: 125 is this script's, of a program that the signal has ended, and 2 that of bash 5.2
    # which was looking for the end of $(
    2 | 125) [ "$code" = "$own" ] || code=143 ;;
    0)
      printf 'envbuild: the command ended with 0 after signal %s: it was stopped, so the job has not succeeded\n' "$signal"
      code=143
      ;;
    esac
    ;;
  esac
  # the scheduler kills some seconds after its signal, and on a busy node each program takes long: until
  # the receipt is there, only mv runs
  TZ=UTC printf -v ended '%(%FT%TZ)T' -1
  # bash 4.2 does not look at TZ again once it runs
  case $BASH_VERSION in 4.2*) ended=$(date -u +%FT%TZ) ;; esac
  printf -v text \
    '{"schema":1,"job":"%s","task":"%s","name":"%s","site":"%s","code":%d,"signal":"%s","reason":"%s","node":"%s",' \
    "$id" "$task" "$name" "$site" "$code" "$signal" "$reason" "$node"
  printf -v text \
    '%s"started":"%s","ended":"%s","image":"%s","lock":"%s","commit":"%s","gpus":[%s],"driver":"%s","runs":%d,"use":%s}' \
    "$text" "$started" "$ended" "$digest" "$lock" "$commit" "$gpus" "$driver" "$runs" "${used:-null}"
  # over the place that is kept, not into an empty file
  printf '%s\n' "$text" 1<>"$receipt.part"
  mv -f -- "$receipt.part" "$receipt"
  # the blanks that kept the place
  truncate -s $((${#text} + 1)) -- "$receipt" 2>/dev/null
  rm -f -- "$use" "$use.on" "$use.part" "$use.halted"
  printf 'envbuild: ended with code %d%s\n' "$code" "${reason:+: $reason}"
  if [ -n "$reason" ] && [ "$runs" -le "$requeue" ]; then
    printf 'envbuild: back into the queue, for run %d of %d\n' $((runs + 1)) $((requeue + 1))
    put_back || printf 'envbuild: error: it could not be put back: see above\n'
  elif declare -F notify >/dev/null; then
    notify
  fi
  exit "$code"
}

# Ask from a handler of signals: schedulers signal all processes of a job, and may do so again, so the client ignores
# them.  Functions here say what they return: in a handler "return" alone is the status from before it (bash 5).
ask_scheduler() {
  local tries=0
  # shellcheck disable=SC2006  # a signal that comes while bash 5.2 looks for the end of $( is a syntax error
  until answer=`trap '' TERM INT USR1 USR2 && "$@" 2>/dev/null`; do
    [ $((tries += 1)) -lt 3 ] || return 1
    sleep 1
  done
}

# a warning comes up to two minutes before the end (sbatch(1), --signal), the end itself when it is due
stop() {
  local ran
  signal=$1
  printf 'envbuild: signal %s, handed on to the command\n' "$signal"
  # USR1 is what a command may ask for as a warning; the others mean that it is to end
  [ "$signal" = USR1 ] || set -- TERM
  if [ -n "$ranks" ]; then
    tell_ranks "$1"
  else
    hand_on "$1"
  fi
  ran=$((SECONDS - $(cat "$use.halted" 2>/dev/null || echo 0)))
  if [ -n "$walltime" ] && [ "$ran" -ge $((walltime - margin)) ]; then
    reason="it reached its time limit of $walltime s"
  elif declare -F preempted >/dev/null && preempted; then
    reason=${reason:-another job takes its place}
  fi
  if [ "$1" = TERM ] && [ -n "$child" ] && declare -F kill_later >/dev/null; then kill_later; fi
}

# what runs is what the folder holds now, which may have changed while the job waited
read_commit() {
  local head
  [ "$commit" != none ] && head=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || return 0
  case $commit in
  "$head"*) ;;
  *)
    printf 'envbuild: the commit has changed since the job was submitted: it was %s\n' "$commit"
    commit=$head
    ;;
  esac
}

describe_job() {
  local only=()
  # where devices are not fenced off, nvidia-smi shows those of the whole node
  [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || only=(-i "$CUDA_VISIBLE_DEVICES")
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9.')
  gpus=$(nvidia-smi ${only[@]+"${only[@]}"} --query-gpu=name --format=csv,noheader 2>/dev/null |
    tr -cd 'A-Za-z0-9 ._\n-' | sed 's/.*/"&"/' | paste -sd, -)
  printf 'envbuild: job %s%s on %s, %s\n' "$id" "${task:+ task $task}" "$node" "$started"
  read_commit
  printf 'envbuild: %s for %s, commit %s\n' "$name" "$site" "$commit"
  if [ -n "$image" ]; then
    printf 'envbuild: image %s %s\n' "$image" "$digest"
    printf 'envbuild: lock %s\n' "${lock:-none}"
  fi
  printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"
}
