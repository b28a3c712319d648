#!/bin/bash
#SBATCH --job-name=keras-bert
#SBATCH --output=out/keras-bert.%j.txt
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --gpus=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --hold
# keras-bert on amane, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2317
set -u

cd "${SLURM_SUBMIT_DIR:-$PWD}" || exit 125
id=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-$$}}
task=${SLURM_ARRAY_TASK_ID:-}
mkdir -p -- out || exit 125
receipt="out/keras-bert.$id.json"
rm -f -- "$receipt"
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)
signal='' child='' gpus='' driver=''

fail() {
  printf 'envbuild: error: %s\n' "$*" >&2
  exit 125
}

# in the background, because bash hears a signal while it waits, but not while a command has the foreground
supervise() {
  local code
  "$@" &
  child=$!
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=
  return "$code"
}

finish() {
  local code=$?
  trap '' TERM INT
  printf '{"schema":1,"job":"%s","task":"%s","name":"%s","site":"%s","code":%d,"signal":"%s","node":"%s",' \
    "$id" "$task" keras-bert amane "$code" "$signal" "$(hostname)" >"$receipt.part"
  printf '"started":"%s","ended":"%s","image":"%s","lock":"%s","commit":"%s","gpus":[%s],"driver":"%s"}\n' \
    "$started" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" sha256:1111111111111111111111111111111111111111111111111111111111111111 sha256:2222222222222222222222222222222222222222222222222222222222222222 3333333333333333333333333333333333333333 "$gpus" "$driver" >>"$receipt.part"
  mv -f -- "$receipt.part" "$receipt"
  printf 'envbuild: ended with code %d\n' "$code"
  exit "$code"
}
trap finish EXIT

stop() {
  signal=$1
  printf 'envbuild: signal %s, handed on to the command\n' "$signal"
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop USR1' USR1
trap 'stop USR2' USR2

driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9.')
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
  tr -cd 'A-Za-z0-9 ._\n-' | sed 's/.*/"&"/' | paste -sd, -)
printf 'envbuild: job %s%s on %s, %s\n' "$id" "${task:+ task $task}" "$(hostname)" "$started"
printf 'envbuild: %s\n' \
  'keras-bert for amane, commit 3333333333333333333333333333333333333333' \
  'image keras-bert.sif sha256:1111111111111111111111111111111111111111111111111111111111111111' \
  'lock sha256:2222222222222222222222222222222222222222222222222222222222222222'
printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"

token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') staged=
node_local() {
  local folder
  for folder in "${TMPDIR:-}" /tmp; do
    if [ -n "$folder" ] && [ -d "$folder" ] && [ -w "$folder" ]; then
      printf "%s\n" "$folder"
      return
    fi
  done
  printf '/tmp\n'
}
# data goes to the disk of a node once: its first process copies, the others wait, and the last one out removes it
stage() {
  local began=$SECONDS tries=0
  staged=$(node_local)/envbuild-stage-$token
  # a process that was quick may remove the folder while this one waits for its lock
  while [ $((tries += 1)) -lt 50 ] || fail "no file can be written in $staged"; do
    mkdir -m 700 -- "$staged" 2>/dev/null || [ -d "$staged" ] || fail "no node-local folder can be written"
    { exec 9>"$staged/lock"; } 2>/dev/null || continue
    flock 9
    [ ! "$staged/lock" -ef /dev/fd/9 ] || break
  done
  if [ ! -e "$staged/done" ]; then
    if ! { supervise cp -rL --preserve=timestamps -- data/images "$staged/0" &&
      mkdir -p -- data/texts "$staged/1" &&
      supervise tar -xf data/texts.tar.gz -C "$staged/1"; }; then
      unstage
      fail "the data was not brought to the disk of $(hostname), $staged: see above"
    fi
    : >"$staged/done"
    printf 'envbuild: data is on %s after %d s\n' "$(hostname)" $((SECONDS - began))
  fi
  flock -s 9
}
unstage() {
  flock -n -x 9 && rm -rf -- "$staged"
  exec 9>&-
}
enter() {
  local name value runtime scratch code flags=() binds=() kept=()
  # settings of the caller would change what runs; where the runtime keeps its own files is theirs to say
  for name in "${!APPTAINER@}" "${!SINGULARITY@}"; do
    case $name in
    *ENV_* | *_BIND* | *_NV* | *_HOME) unset "$name" ;;
    *_CACHEDIR | *_TMPDIR | *_CONFIGDIR) ;;
    *) unset "$name" ;;
    esac
  done
  runtime=$(command -v apptainer || command -v singularity) || fail "neither apptainer nor singularity is on PATH on this node"
  # root that lacks a capability has to go the way of users; without fuse an image has to be unpacked
  if [ "$EUID" -eq 0 ]; then
    value=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    [ $((16#$value)) -eq $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1)) ] || flags+=(--userns)
  elif [ ! -w /dev/fuse ] && "$runtime" buildcfg 2>/dev/null | grep -q '^SUID_INSTALL=0'; then
    flags+=(--unsquash)
  fi
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
  for name in $(compgen -e); do
    case $name in
    CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | NVIDIA_VISIBLE_DEVICES | NCCL_* | OMP_NUM_THREADS | SLURM_*)
      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"
      ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
  [ -r /project/.envbuild/jobs/key.env ] || fail "the handed-on variables are gone: "/project/.envbuild/jobs/key.env
  # shellcheck disable=SC1090,SC1091
  . /project/.envbuild/jobs/key.env
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r keras-bert.sif ] || fail "the image is not there on $(hostname): "keras-bert.sif
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
      name=${value%%=*} value=/tmp/${value#*=}
      export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"
    done
    [ ! -d /data/torch ] || { kept+=(--bind /data/torch:/data/torch:rw) && export {APPTAINER,SINGULARITY}ENV_TORCH_HOME=/data/torch; }
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  if [ "$0" != world ]; then
    stage
    binds=(--bind "$staged/0:$PWD/data/images:ro" --bind "$staged/1:$PWD/data/texts:ro")
  fi
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --nv --cleanenv --containall --no-home --home /tmp --pwd "$PWD" \
    --bind "$scratch:/tmp:rw" \
    --bind "$PWD:$PWD:rw" ${kept[@]+"${kept[@]}"} ${binds[@]+"${binds[@]}"} \
    keras-bert.sif "$@" 9>&-
  code=$?
  rm -rf -- "$scratch"
  [ -z "$staged" ] || unstage
  return "$code"
}

command=(python train.py --data 'it'"'"'s data')

enter "${command[@]}"
exit
