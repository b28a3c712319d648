#!/bin/bash
# keras-bert: runs a command in its image, written by envbuild VERSION (docs/howto-notebooks.md)
# shellcheck disable=SC2034,SC2317
set -u
name=keras-bert verb=module
image='/shared/images/it'"'"'s.sif'
stamp='123 456'
flags=()

fail() {
  printf 'envbuild: error: %s\n' "$*" >&2
  exit 125
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

# What a wrapper does before it becomes the container runtime.
binds=()

check_bind() {
  case $1 in *[,:\"\\]* | *$'\n'*) fail "a path with such a name cannot be bound: $1" ;; esac
}

bind_path() {
  check_bind "$1"
  binds+=(--bind "$1:$1:rw")
}

check_image() {
  [ -r "$image" ] || fail "the image is not there on $(uname -n), or not for you to read: $image"
  [ "$(stat -L -c '%s %Y' -- "$image")" = "$stamp" ] ||
    fail "the image has changed since this was written: $image; write it anew: envbuild $verb $name"
}

# /tmp inside, which is HOME too: the runtime would give it 64 MB.  Nobody is left to remove the folder when the
# command ends, as it takes the place of this shell: the next call does, as envbuild itself does (envbuild/caches.py)
make_scratch() {
  local top folder space
  space=$(readlink /proc/self/ns/pid)
  top=${TMPDIR:-/tmp}/envbuild-run-$EUID-$(uname -n)-${space//[!0-9]/}
  (umask 077 && mkdir -p -- "$top") || fail "no temporary folder can be made: $top"
  { [ -O "$top" ] && [ ! -L "$top" ]; } || fail "it belongs to somebody else: $top"
  for folder in "$top"/*; do
    if [ ! -e "/proc/${folder##*/}" ] || [ "${folder##*/}" = $$ ]; then rm -rf -- "$folder"; fi
  done
  scratch=$top/$$
  check_bind "$scratch"
  (umask 077 && mkdir -- "$scratch") || fail "no temporary folder can be made: $scratch"
}

# keep_folder FOLDER PLACE: a folder of the caller's that is seen below HOME
keep_folder() {
  (umask 077 && mkdir -p -- "$1") 2>/dev/null
  check_bind "$1"
  [ -w "$1" ] || fail "it cannot be written: $1; name another folder: ENVBUILD_CACHES=FOLDER, or none"
  binds+=(--bind "$1:/tmp/$2:rw")
}

# keep_variable NAME PLACE: a folder that the caller has named already is seen at its own path
keep_variable() {
  local value=${!1:-}
  if [[ $1 != XDG_CACHE_HOME && $value == /* && $value != *[,:\"\\]* && -d $value ]]; then
    bind_path "$value"
    hand_in "$1" "$value"
  else
    hand_in "$1" "/tmp/$2"
  fi
}

explain_pip() {
  printf '%s\n' "The image of $name is read-only, so pip cannot change it." \
    "to try a package:   envbuild add --dev $name PACKAGE" \
    "to keep a package:  envbuild add $name PACKAGE, then: envbuild $verb $name" >&2
  exit 1
}

called=${0##*/}
case "$called" in
in-image)
  while [ "${1:-}" = --bind ] && [ $# -ge 2 ]; do
    bind_path "$2"
    shift 2
  done
  [ $# -gt 0 ] || fail "usage: in-image [--bind PATH]... COMMAND..."
  ;;
pip | pip3)
  case "${1:-}" in install | uninstall) explain_pip ;; esac
  set -- "$called" "$@"
  ;;
keras-bert)
  set -- python train.py 'two words' "$@"
  ;;
*) set -- "$called" "$@" ;;
esac

check_image
clean_environment
find_runtime apptainer singularity
[ ! -e /dev/nvidiactl ] || flags+=(--nv)
[ ! -e /dev/kfd ] || flags+=(--rocm)

hand_in_matching \
  CUDA_VISIBLE_DEVICES \
  CUDA_DEVICE_ORDER \
  NVIDIA_VISIBLE_DEVICES \
  ROCR_VISIBLE_DEVICES \
  HIP_VISIBLE_DEVICES \
  'NCCL_*' \
  OMP_NUM_THREADS \
  ENVBUILD_RESULT \
  ENVBUILD_CHECKPOINT \
  MASTER_ADDR \
  MASTER_PORT \
  RANK \
  LOCAL_RANK \
  NODE_RANK \
  WORLD_SIZE \
  'OMPI_*' \
  'PMIX_*' \
  'PMI_*' \
  'PALS_*' \
  'MPI_*' \
  'I_MPI_*' \
  'UCX_*' \
  'SLURM_*' \
  JOB_ID \
  JOB_NAME \
  'SGE_*' \
  NSLOTS \
  NHOSTS \
  'PBS_*' \
  NCPUS \
  'WANDB_*'
hand_in MODE 'it'"'"'s'

make_scratch
binds+=(--bind "$scratch:/tmp:rw" --bind "$scratch:/var/tmp:rw")
folder=$PWD
case "$folder" in
/ | /bin | /bin/* | /etc | /etc/* | /lib | /lib/* | /lib64 | /lib64/* | /opt | /opt/* | /sbin | /sbin/* | /usr | /usr/* | /var/lib | /var/lib/*) folder=/tmp ;;
*)
  bind_path "$folder"
  protect_records "$folder"
  binds+=(${records[@]+"${records[@]}"})
  ;;
esac
binds+=(--mount '"type=bind","source=/data, old","destination=/data","ro"')

# what is downloaded and compiled stays in folders of the caller's (docs/howto-data.md)
caches=${ENVBUILD_CACHES:-${XDG_CACHE_HOME:-${HOME:-/}/.cache}/envbuild-caches}
case "$caches" in
none) ;;
*)
  for place in \
    "$caches/downloads=.cache" \
    "$caches/compiled/0123456789abcdef=.compiled" \
    "$caches/home/.insightface=.insightface"; do
    keep_folder "${place%=*}" "${place##*=}"
  done
  keep_variable XDG_CACHE_HOME .cache
  keep_variable HF_HOME .cache/huggingface
  keep_variable TORCH_HOME .cache/torch
  keep_variable KERAS_HOME .cache/keras
  keep_variable TFHUB_CACHE_DIR .cache/tfhub
  keep_variable TFDS_DATA_DIR .cache/tensorflow_datasets
  mkdir -p -- "$caches/downloads/nltk"
  keep_variable NLTK_DATA .cache/nltk
  keep_variable SCIKIT_LEARN_DATA .cache/scikit_learn
  keep_variable GENSIM_DATA_DIR .cache/gensim
  keep_variable CHAINER_DATASET_ROOT .cache/chainer
  keep_variable KAGGLEHUB_CACHE .cache/kagglehub
  keep_variable TRITON_CACHE_DIR .compiled/triton
  keep_variable TORCHINDUCTOR_CACHE_DIR .compiled/inductor
  keep_variable TORCH_EXTENSIONS_DIR .compiled/torch_extensions
  keep_variable CUDA_CACHE_PATH .compiled/cuda
  keep_variable JAX_COMPILATION_CACHE_DIR .compiled/xla
  keep_variable NUMBA_CACHE_DIR .compiled/numba
  keep_variable CUPY_CACHE_DIR .compiled/cupy
  ;;
esac

exec "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
  --cleanenv --containall --no-home --home /tmp --pwd "$folder" \
  "${binds[@]}" "$image" "$@"
