#!/bin/bash
#SBATCH --job-name=lightning-sweep
#SBATCH --output=logs/lightning-sweep-%A-%a.log
#SBATCH --open-mode=append
#SBATCH --partition=plai
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --array=1-4%2
# lightning-sweep on plai, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2317
set -u

cd "${SLURM_SUBMIT_DIR:-$PWD}" || exit 125
id=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-$$}}
task=${SLURM_ARRAY_TASK_ID:-}
mkdir -p -- logs || exit 125
receipt="logs/lightning-sweep-$id-$task.json"
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
    "$id" "$task" lightning-sweep plai "$code" "$signal" "$(hostname)" >"$receipt.part"
  printf '"started":"%s","ended":"%s","image":"%s","lock":"%s","commit":"%s","gpus":[%s],"driver":"%s"}\n' \
    "$started" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" sha256:0000000000000000000000000000000000000000000000000000000000000000 sha256:0000000000000000000000000000000000000000000000000000000000000000 none "$gpus" "$driver" >>"$receipt.part"
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
  'lightning-sweep for plai, commit none' \
  'image lightning-sweep.sif sha256:0000000000000000000000000000000000000000000000000000000000000000' \
  'lock sha256:0000000000000000000000000000000000000000000000000000000000000000'
printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"

token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') staged=
node_local() {
  local folder
  for folder in /scratch-ssd "${TMPDIR:-}" /tmp; do
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
    if ! { supervise cp -rL --preserve=timestamps -- data "$staged/0"; }; then
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
  for name in $(compgen -e); do
    case $name in
    CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | NVIDIA_VISIBLE_DEVICES | NCCL_* | OMP_NUM_THREADS | SLURM_* | MASTER_ADDR | MASTER_PORT | RANK | LOCAL_RANK | NODE_RANK | WORLD_SIZE | OMPI_* | PMIX_* | PMI_* | PALS_* | MPI_* | I_MPI_* | UCX_*)
      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"
      ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r lightning-sweep.sif ] || fail "the image is not there on $(hostname): "lightning-sweep.sif
  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)
  if (umask 077 && mkdir -p -- \
      /home/you/.cache/envbuild-caches/downloads /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213 \
      /home/you/.cache/envbuild-caches/downloads/nltk) 2>/dev/null &&
    [ -w /home/you/.cache/envbuild-caches/downloads ]; then
    mkdir -p -- "$scratch"/.cache "$scratch"/.compiled
    kept+=(--bind /home/you/.cache/envbuild-caches/downloads:"$scratch"/.cache:rw)
    kept+=(--bind /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213:"$scratch"/.compiled:rw)
    for value in \
      XDG_CACHE_HOME=.cache HF_HOME=.cache/huggingface TORCH_HOME=.cache/torch \
      KERAS_HOME=.cache/keras TFHUB_CACHE_DIR=.cache/tfhub TFDS_DATA_DIR=.cache/tensorflow_datasets \
      NLTK_DATA=.cache/nltk SCIKIT_LEARN_DATA=.cache/scikit_learn GENSIM_DATA_DIR=.cache/gensim \
      CHAINER_DATASET_ROOT=.cache/chainer KAGGLEHUB_CACHE=.cache/kagglehub \
      TRITON_CACHE_DIR=.compiled/triton TORCHINDUCTOR_CACHE_DIR=.compiled/inductor \
      TORCH_EXTENSIONS_DIR=.compiled/torch_extensions CUDA_CACHE_PATH=.compiled/cuda \
      JAX_COMPILATION_CACHE_DIR=.compiled/xla NUMBA_CACHE_DIR=.compiled/numba \
      CUPY_CACHE_DIR=.compiled/cupy; do
      name=${value%%=*} value="$scratch"/${value#*=}
      export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"
    done
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  if [ "$0" != world ]; then
    stage
    binds=(--bind "$staged/0:$PWD/data:ro")
  fi
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --nv --cleanenv --no-mount cwd --home "$scratch" --pwd "$PWD" \
    --bind "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}:rw" \
    --bind "$PWD:$PWD:rw" \
    --bind "${SCRATCH:?is not set on this node}:${SCRATCH:?is not set on this node}:rw" \
    ${kept[@]+"${kept[@]}"} ${binds[@]+"${binds[@]}"} \
    lightning-sweep.sif "$@" 9>&-
  code=$?
  rm -rf -- "$scratch"
  [ -z "$staged" ] || unstage
  return "$code"
}

case $task in
1) command=(python train.py --data data/points.csv --width 16 --rate 0.01) ;;
2) command=(python train.py --data data/points.csv --width 16 --rate 0.001) ;;
3) command=(python train.py --data data/points.csv --width 64 --rate 0.01) ;;
4) command=(python train.py --data data/points.csv --width 64 --rate 0.001) ;;
*) fail "there is no row $task" ;;
esac

mapfile -t hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST:-$(hostname)}")
[ "${#hosts[@]}" -eq 1 ] || fail "the allocation has ${#hosts[@]} nodes instead of 1"
export MASTER_ADDR=${hosts[0]}
export MASTER_PORT=$((10000 + (id + ${task:-0}) % 20000))
program=$(
  printf 'set -u\nchild=\ncd %q || exit 125\n' "$PWD"
  printf 'token=%s staged=\n' "$token"
  declare -f fail supervise node_local stage unstage enter
  cat <<'END'
trap '[ -z "$child" ] || kill -TERM "$child"' TERM
:
enter "$@"
END
)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
supervise srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c "$program" rank "${command[@]}"
exit
