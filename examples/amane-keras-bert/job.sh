#!/bin/bash
#SBATCH --job-name=keras-bert
#SBATCH --output=logs/keras-bert-%A-%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus=tesla:1
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --array=1-3%2
# keras-bert on amane, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2317
set -u

cd "${SLURM_SUBMIT_DIR:-$PWD}" || exit 125
id=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-$$}}
task=${SLURM_ARRAY_TASK_ID:-}
mkdir -p -- logs || exit 125
receipt="logs/keras-bert-$id-$task.json"
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
  'keras-bert for amane, commit none' \
  'image keras-bert.sif sha256:0000000000000000000000000000000000000000000000000000000000000000' \
  'lock sha256:0000000000000000000000000000000000000000000000000000000000000000'
printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"

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
enter() {
  local name value runtime scratch code flags=() kept=()
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
    CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | NVIDIA_VISIBLE_DEVICES | NCCL_* | OMP_NUM_THREADS | SLURM_*)
      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"
      ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r keras-bert.sif ] || fail "the image is not there on $(hostname): "keras-bert.sif
  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)
  if (umask 077 && mkdir -p -- \
      /home/you/.cache/envbuild-caches/downloads /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213 \
      /home/you/.cache/envbuild-caches/downloads/nltk) 2>/dev/null &&
    [ -w /home/you/.cache/envbuild-caches/downloads ]; then
    mkdir -p -- "$scratch"/.cache "$scratch"/.compiled
    kept+=(--bind /home/you/.cache/envbuild-caches/downloads:/tmp/.cache:rw)
    kept+=(--bind /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213:/tmp/.compiled:rw)
    for value in \
      XDG_CACHE_HOME=.cache HF_HOME=.cache/huggingface TORCH_HOME=.cache/torch \
      KERAS_HOME=.cache/keras TFHUB_CACHE_DIR=.cache/tfhub TFDS_DATA_DIR=.cache/tensorflow_datasets \
      NLTK_DATA=.cache/nltk SCIKIT_LEARN_DATA=.cache/scikit_learn GENSIM_DATA_DIR=.cache/gensim \
      CHAINER_DATASET_ROOT=.cache/chainer KAGGLEHUB_CACHE=.cache/kagglehub \
      TRITON_CACHE_DIR=.compiled/triton TORCHINDUCTOR_CACHE_DIR=.compiled/inductor \
      TORCH_EXTENSIONS_DIR=.compiled/torch_extensions CUDA_CACHE_PATH=.compiled/cuda \
      JAX_COMPILATION_CACHE_DIR=.compiled/xla NUMBA_CACHE_DIR=.compiled/numba \
      CUPY_CACHE_DIR=.compiled/cupy; do
      name=${value%%=*} value=/tmp/${value#*=}
      export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"
    done
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --nv --cleanenv --containall --no-home --home /tmp --pwd "$PWD" \
    --bind "$scratch:/tmp:rw" \
    --bind "$PWD:$PWD:rw" ${kept[@]+"${kept[@]}"} \
    keras-bert.sif "$@"
  code=$?
  rm -rf -- "$scratch"
  return "$code"
}

case $task in
1) command=(python train.py --data data/texts.csv --rate 0.001 --epochs 2) ;;
2) command=(python train.py --data data/texts.csv --rate 0.0003 --epochs 4) ;;
3) command=(python train.py --data data/texts.csv --rate 0.0001 --epochs 8) ;;
*) fail "there is no row $task" ;;
esac

enter "${command[@]}"
exit
