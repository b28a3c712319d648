#!/bin/bash
#$ -N chainer-mnist
#$ -S /bin/bash
#$ -cwd
#$ -j y
#$ -o logs/chainer-mnist-$JOB_ID.log
#$ -l gpu_1=1
#$ -l h_rt=01:00:00
#$ -notify
# chainer-mnist on tsubame4, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2317
set -u

cd "${SGE_O_WORKDIR:-$PWD}" || exit 125
id=${JOB_ID:-$$}
task=${SGE_TASK_ID:-}
[ "$task" != undefined ] || task=
mkdir -p -- logs || exit 125
receipt="logs/chainer-mnist-$id.json"
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
    "$id" "$task" chainer-mnist tsubame4 "$code" "$signal" "$(hostname)" >"$receipt.part"
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
  'chainer-mnist for tsubame4, commit none' \
  'image chainer-mnist.sif sha256:0000000000000000000000000000000000000000000000000000000000000000' \
  'lock sha256:0000000000000000000000000000000000000000000000000000000000000000'
printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"

prepare() {
  set +u
  # shellcheck disable=SC1090,SC1091
  source /etc/profile.d/modules.sh
  set -u
}
prepare

node_local() {
  local folder
  for folder in "${T4TMPDIR:-}" "${TMPDIR:-}" /local /tmp; do
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
  runtime=$(command -v apptainer) || fail "apptainer is not on PATH on this node"
  # root that lacks a capability has to go the way of users; without fuse an image has to be unpacked
  if [ "$EUID" -eq 0 ]; then
    value=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    [ $((16#$value)) -eq $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1)) ] || flags+=(--userns)
  elif [ ! -w /dev/fuse ] && "$runtime" buildcfg 2>/dev/null | grep -q '^SUID_INSTALL=0'; then
    flags+=(--unsquash)
  fi
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-8}"
  for name in $(compgen -e); do
    case $name in
    CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | NVIDIA_VISIBLE_DEVICES | NCCL_* | OMP_NUM_THREADS | JOB_ID | JOB_NAME | SGE_* | NSLOTS | NHOSTS)
      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"
      ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r chainer-mnist.sif ] || fail "the image is not there on $(hostname): "chainer-mnist.sif
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
    --bind "$PWD:$PWD:rw" \
    --bind "/gs:/gs:rw" \
    --bind "/apps:/apps:rw" ${kept[@]+"${kept[@]}"} \
    chainer-mnist.sif "$@"
  code=$?
  rm -rf -- "$scratch"
  return "$code"
}

command=(python train.py --epochs 5)

enter "${command[@]}"
exit
