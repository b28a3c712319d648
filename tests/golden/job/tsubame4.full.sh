#!/bin/bash
#$ -N keras-bert
#$ -S /bin/bash
#$ -cwd
#$ -j y
#$ -o out/keras-bert.$JOB_ID.txt
#$ -l gpu_1=1
#$ -l h_rt=24:00:00
#$ -notify
#$ -m n
# keras-bert on tsubame4, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2034,SC2317
set -u

name=keras-bert
site=tsubame4
commit=3333333333333333333333333333333333333333
image=keras-bert.sif
stamp=''
digest=sha256:1111111111111111111111111111111111111111111111111111111111111111
lock=sha256:2222222222222222222222222222222222222222222222222222222222222222
walltime=86400
margin=130
requeue=0
signal='' reason='' child='' early='' begun='' ranks='' watch=() sampler='' used='' gpus='' driver='' own=''
cd "$PWD" || exit 125
id=${JOB_ID:-$$}
task=${SGE_TASK_ID:-}
[ "$task" != undefined ] || task=
mkdir -p -- out || exit 125
# The folders of what a job tells; a copied project may have links in their places.
for place in .envbuild .envbuild/jobs .envbuild/results; do
  if [ -L "$place" ] || ! mkdir -p -- "$place"; then
    printf 'envbuild: error: %s is no folder of its own\n' "$place" >&2
    exit 125
  fi
done
[ -e .envbuild/.gitignore ] || [ -L .envbuild/.gitignore ] || echo '*' >.envbuild/.gitignore

receipt=".envbuild/jobs/keras-bert-$id.receipt.json"
use=${receipt%.json}.use runs=1
export ENVBUILD_RESULT=$PWD/".envbuild/results/keras-bert-$id.receipt.result"
# Schedulers open a log by its name.  A link that came there while the job waited leads elsewhere: no word of the job
# goes there.
is_log() {
  local folder
  folder=$(CDPATH='' cd -P -- "$(dirname -- "$1")" 2>/dev/null && pwd) || return 1
  case $1:$folder/ in
  # a place that the user chose, or one in the project
  /* | *..*:* | *:"$(pwd -P)"/*) ;;
  # what a login runs lies in such folders
  */.*) exit 125 ;;
  esac
  [ ! -L "$1" ] && [ "$1" -ef /dev/fd/1 ] && [ "$(stat -c %h -- "$1")" = 1 ]
}
keep_log() {
  [ -f /dev/fd/1 ] || return 0
  is_log "$1" && return
  exec >/dev/null 2>&1
  rm -f -- "$1"
  # makes a new file, or nothing
  set -C
  exec >"$1" 2>&1 || exit 125
  set +C
  printf 'envbuild: in the place of this log was a link: nothing was written to the file that it named\n'
}

keep_log "out/keras-bert.$id.txt"
node=$(hostname) started=$(date -u +%Y-%m-%dT%H:%M:%SZ)

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
sample_use() {
  command -v python3 >/dev/null || return 0
  python3 -I - "$use" 15 300 86400 4 0 1 <<'END' 7<&- &
(use.py)
END
  sampler=$!
  # else bash would print all of it where it is killed before it has begun
  disown "$sampler"
}

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

reserve_receipt
trap finish EXIT
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop USR1' USR1
trap 'stop USR2' USR2

# Univa and Altair name the GPUs of a job in a variable of the resource (RSMAP); plain Grid Engine names none
if [ -n "${SGE_HGR_gpu:-}" ] && [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
  CUDA_VISIBLE_DEVICES=$(tr -s ' ' , <<<"$SGE_HGR_gpu" | tr -cd '0-9,')
  export CUDA_VISIBLE_DEVICES
elif [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
  printf 'envbuild: Grid Engine names no GPU for this job: it sees all of the node\n'
fi

describe_job

prepare() {
  set +u
  # shellcheck disable=SC1090,SC1091
  source /etc/profile.d/modules.sh
  set -u
}
prepare

token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') staged=
node_local() {
  local folder
  for folder in "${T4TMPDIR:-}" "${TMPDIR:-}" /local /tmp /tmp; do
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
copy_data() {
  supervise cp -rL --preserve=timestamps -- data/images "$staged/0" &&
    mkdir -p -- data/texts "$staged/1" &&
    supervise tar -xf data/texts.tar.gz -C "$staged/1"
}
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
# What stands before the call of the container runtime, on whatever node this runs.
clean_environment() {
  local variable
  # settings of the caller would change what runs; where the runtime keeps its own files is theirs to say
  for variable in "${!APPTAINER@}" "${!SINGULARITY@}"; do
    case $variable in
    *ENV_* | *_BIND* | *_NV* | *_HOME) unset "$variable" ;;
    *_CACHEDIR | *_TMPDIR | *_CONFIGDIR) ;;
    *) unset "$variable" ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
}

# A program of the image may write into the project, but not what the host runs, reads as shell or writes by name:
# the files of jobs, of all but their results.
protect_records() {
  local folder=$1/.envbuild
  # made later, it could be changed by what runs by then
  if [ -d "$1/recipes" ] || (cd "$1" && compgen -G '*.sif') >/dev/null 2>&1; then
    [ -L "$folder" ] || mkdir -p -- "$folder/results" 2>/dev/null
  fi
  if [ ! -d "$folder" ] || [ -L "$folder" ]; then return 0; fi
  records=(--bind "$folder:$folder:ro")
  if [ ! -d "$folder/results" ] || [ -L "$folder/results" ]; then return 0; fi
  records+=(--bind "$folder/results:$folder/results:rw")
}

hand_in() { export "APPTAINERENV_$1=$2" "SINGULARITYENV_$1=$2"; }

hand_in_matching() {
  local variable pattern
  for variable in $(compgen -e); do
    for pattern in "$@"; do
      # shellcheck disable=SC2053  # it is a pattern
      [[ $variable != $pattern ]] || hand_in "$variable" "${!variable}"
    done
  done
}

find_runtime() {
  local program capabilities
  runtime=
  for program in "$@"; do
    [ -n "$runtime" ] || runtime=$(command -v "$program")
  done
  [ -n "$runtime" ] || fail "$* cannot be found on this node (PATH is $PATH)"
  # root that lacks a capability has to go the way of users; without fuse an image has to be unpacked
  if [ "$EUID" -eq 0 ]; then
    capabilities=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    [ $((16#$capabilities)) -eq $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1)) ] || flags+=(--userns)
  elif [ ! -w /dev/fuse ] && "$runtime" buildcfg 2>/dev/null | grep -q 'SUID_INSTALL=0'; then
    flags+=(--unsquash)
  fi
}
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
# An Apptainer without setuid serves an image's files to ordinary users by FUSE programs.  PBS and Grid Engine signal
# all processes of a job, and the files would be gone while the command still saves its state.  These programs leave a
# signal alone that they find ignored (libfuse, fuse_set_signal_handlers).  What is written in Go does not hand that on
# (os/signal), so a shell ignores the signals last.  It also ends the program when the runtime was killed outright.
keep_servers() {
  local built file own path places program found watcher folder=$scratch/.servers
  # nor does the kernel mount them for root who lacks a capability (find_runtime)
  [ "$EUID" -ne 0 ] || [[ " ${flags[*]-} " = *" --userns "* ]] || return 0
  built=$("$runtime" buildcfg 2>/dev/null)
  case $built in *APPTAINER_SUID_INSTALL=0*) ;; *) return 0 ;; esac
  file=$(sed -n 's/^APPTAINER_CONF_FILE=//p' <<<"$built")
  own=$(sed -n 's/^LIBEXECDIR=//p' <<<"$built")/apptainer/bin
  # the settings of 1.1 and later, in which the folder of programs can be named
  grep -qi 'binary path' "$file" 2>/dev/null && mkdir -p -- "$folder" || return 0
  path=$(sed -n 's/^[[:blank:]]*binary path[[:blank:]]*=[[:blank:]]*//p' "$file" | tail -n 1)
  # shellcheck disable=SC2016  # the runtime expands it
  path=${path:-'$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'}
  # the runtime's own folder has its place before the user's, else before all
  places=${path/\$PATH/"$own:$PATH"}
  [ "$places" != "$path" ] || places=$own:$path
  printf -v watcher %q "$(type -P tail)"
  for program in squashfuse_ll squashfuse fuse-overlayfs fuse2fs; do
    found=$(PATH=$places type -P "$program") || continue
    # there is no PATH; when the runtime is gone, the program's number may be another's, unless it is still the parent
    printf '#!/bin/sh\ntrap "" HUP TERM USR1 USR2\n%s\n%s\nexec %q "$@"\n' \
      "[ \$# -eq 0 ] || ($watcher --pid=\$PPID -f /dev/null && read -r _ _ _ parent _ </proc/self/stat &&" \
      "  [ \"\$parent\" = \$\$ ] && kill -KILL \$\$) </dev/null >/dev/null 2>&1 3<&- &" \
      "$found" >"$folder/$program" && chmod 700 "$folder/$program" || return 0
    # a disk from which nothing may be run
    [ -x "$folder/$program" ] || return 0
  done
  { sed '/^[[:blank:]]*binary path[[:blank:]]*=/d' "$file" && printf 'binary path = %s:%s\n' "$folder" "$path"; } \
    >"$folder/apptainer.conf" && export APPTAINER_CONFIG_FILE=$folder/apptainer.conf
}

check_image() {
  [ -r "$image" ] || fail "the image is not there on $(hostname): $image"
  # an image may be made anew while its job waits; the digest in log and receipt is that of the submission
  [ -z "$stamp" ] || [ "$(stat -L -c '%s %Y' -- "$image")" = "$stamp" ] ||
    fail "the image has changed since the job was submitted: $image; submit it again"
}
enter() {
  local variable value runtime scratch code flags=() records=() binds=() kept=()
  clean_environment
  find_runtime apptainer
  [ ! -e /dev/kfd ] || flags+=(--rocm)
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
  hand_in_matching \
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES \
    ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES 'NCCL_*' OMP_NUM_THREADS \
    ENVBUILD_RESULT ENVBUILD_CHECKPOINT JOB_ID JOB_NAME 'SGE_*' NSLOTS \
    NHOSTS
  [ -r /project/.envbuild/jobs/key.env ] || fail "the handed-on variables are gone: "/project/.envbuild/jobs/key.env
  # shellcheck disable=SC1090,SC1091
  . /project/.envbuild/jobs/key.env
  make_scratch
  keep_servers
  check_image
  protect_records "$PWD"
  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)
  if (umask 077 && mkdir -p -- \
      /home/you/.cache/envbuild-caches/downloads '/home/you/it'"'"'s/compiled/0123') 2>/dev/null &&
    [ -w /home/you/.cache/envbuild-caches/downloads ]; then
    mkdir -p -- "$scratch"/.cache "$scratch"/.compiled
    kept+=(--bind /home/you/.cache/envbuild-caches/downloads:/tmp/.cache:rw)
    kept+=(--bind '/home/you/it'"'"'s/compiled/0123':/tmp/.compiled:rw)
    for value in \
      XDG_CACHE_HOME=.cache HF_HOME=.cache/huggingface TRITON_CACHE_DIR=.compiled/triton \
      CUDA_CACHE_PATH=.compiled/cuda; do
      hand_in "${value%%=*}" /tmp/"${value#*=}"
    done
    [ ! -d /data/torch ] || { kept+=(--bind /data/torch:/data/torch:rw) && hand_in TORCH_HOME /data/torch; }
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  if [ "$0" != world ]; then
    stage
    binds=(--bind "$staged/0:$PWD/data/images:ro" --bind "$staged/1:$PWD/data/texts:ro")
  fi
  begun= && : >"$scratch/.begun" && exec 6<"$scratch/.begun" && begun=/dev/fd/6
  # shellcheck disable=SC2016  # the image's shell expands it
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --nv --cleanenv --containall --no-home --home /tmp --pwd "$PWD" \
    --bind "$scratch:/tmp:rw" \
    --bind "$scratch:/var/tmp:rw" \
    --bind "$PWD:$PWD:rw" ${records[@]+"${records[@]}"} \
    --bind "/gs:/gs:rw" \
    --bind "/apps:/apps:rw" ${kept[@]+"${kept[@]}"} ${binds[@]+"${binds[@]}"} \
    "$image" sh -c 'trap "" USR1 USR2; echo >"$1"; shift; exec "$@"' sh /tmp/.begun "$@" 7<&- 9>&-
  code=$? own=$code
  if [ "$code" -ne 0 ] && [ -n "$begun" ] && [ ! -s "$begun" ]; then
    printf 'envbuild: error: the container did not start: see above\n' >&2
    code=125
  fi
  exec 6<&-
  rm -rf -- "$scratch"
  [ -z "$staged" ] || unstage
  return "$code"
}

command=(python train.py --data 'it'"'"'s data')

enter "${command[@]}"
exit
