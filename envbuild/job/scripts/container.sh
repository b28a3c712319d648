# shellcheck shell=bash disable=SC2154,SC2317
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
