#!/bin/bash
# keras-bert on local, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2317
set -u

cd "$PWD" || exit 125
id=$$
task=
mkdir -p -- logs || exit 125
receipt="logs/keras-bert-$id.json"
rm -f -- "$receipt"
exec >"logs/keras-bert-$id.log" 2>&1
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
  [ -z "$watch" ] || kill "$watch" 2>/dev/null
  printf '{"schema":1,"job":"%s","task":"%s","name":"%s","site":"%s","code":%d,"signal":"%s","node":"%s",' \
    "$id" "$task" keras-bert local "$code" "$signal" "$(hostname)" >"$receipt.part"
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
  'keras-bert for local, commit 3333333333333333333333333333333333333333' \
  'image keras-bert.sif sha256:1111111111111111111111111111111111111111111111111111111111111111' \
  'lock sha256:2222222222222222222222222222222222222222222222222222222222222222'
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
    CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | NVIDIA_VISIBLE_DEVICES | NCCL_* | OMP_NUM_THREADS | MASTER_ADDR | MASTER_PORT | RANK | LOCAL_RANK | NODE_RANK | WORLD_SIZE | OMPI_* | PMIX_* | PMI_* | PALS_* | MPI_* | I_MPI_* | UCX_*)
      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"
      ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r keras-bert.sif ] || fail "the image is not there on $(hostname): "keras-bert.sif
  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)
  if (umask 077 && mkdir -p -- \
      /home/you/.cache/envbuild-caches/downloads '/home/you/it'"'"'s/compiled/0123') 2>/dev/null &&
    [ -w /home/you/.cache/envbuild-caches/downloads ]; then
    mkdir -p -- "$scratch"/.cache "$scratch"/.compiled
    kept+=(--bind /home/you/.cache/envbuild-caches/downloads:"$scratch"/.cache:rw)
    kept+=(--bind '/home/you/it'"'"'s/compiled/0123':"$scratch"/.compiled:rw)
    for value in \
      XDG_CACHE_HOME=.cache HF_HOME=.cache/huggingface TRITON_CACHE_DIR=.compiled/triton \
      CUDA_CACHE_PATH=.compiled/cuda; do
      name=${value%%=*} value="$scratch"/${value#*=}
      export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"
    done
    [ ! -d /data/torch ] || { kept+=(--bind /data/torch:/data/torch:rw) && export {APPTAINER,SINGULARITY}ENV_TORCH_HOME=/data/torch; }
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --nv --cleanenv --no-mount cwd --home "$scratch" --pwd "$PWD" \
    --bind "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}:rw" \
    --bind "$PWD:$PWD:rw" ${kept[@]+"${kept[@]}"} \
    keras-bert.sif "$@"
  code=$?
  rm -rf -- "$scratch"
  return "$code"
}

# nobody else keeps the walltime here
{ sleep 3600 && kill -TERM $$; } >/dev/null 2>&1 &
watch=$!

command=(python train.py --data 'it'"'"'s data')

mapfile -t hosts < <(hostname)
[ "${#hosts[@]}" -eq 1 ] || fail "the allocation has ${#hosts[@]} nodes instead of 1"
export MASTER_ADDR=${hosts[0]}
export MASTER_PORT=$((10000 + (id + ${task:-0}) % 20000))
program=$(
  printf 'set -u\nchild=\ncd %q || exit 125\n' "$PWD"
  declare -f fail supervise node_local enter
  cat <<'END'
trap '[ -z "$child" ] || kill -TERM "$child"' TERM
:
enter "$@"
END
)
hostfile=${receipt%.json}.hosts
printf '%s slots=4\n' "${hosts[@]}" >"$hostfile"
world='import sys
try:
    from mpi4py import MPI
except ImportError:
    print("envbuild: the image has no mpi4py, so the number of ranks was not tested")
    sys.exit()
found, wanted = MPI.COMM_WORLD.allreduce(1), int(sys.argv[1])
if found != wanted:
    sys.exit("envbuild: a world of %d ranks instead of %d" % (found, wanted))
if MPI.COMM_WORLD.rank == 0:
    print("envbuild: %d ranks found each other" % found, flush=True)
'
# shellcheck disable=SC2016  # expanded by the shell in the container
supervise mpirun -np 4 --map-by "ppr:4:node" --bind-to none --hostfile "$hostfile" -x MASTER_ADDR -x MASTER_PORT bash -c "$program" world sh -c 'command -v python3 >/dev/null || exit 0
python3 -c "$1" "$2"' sh "$world" 4 ||
  fail "the ranks were not started, or do not find each other: see above; both MPIs must fit"
supervise mpirun -np 4 --map-by "ppr:4:node" --bind-to none --hostfile "$hostfile" -x MASTER_ADDR -x MASTER_PORT bash -c "$program" rank "${command[@]}"
exit
