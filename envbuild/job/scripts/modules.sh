# shellcheck shell=bash disable=SC2317
load_module() {
  local before=${LOADEDMODULES-}
  module load "$1" || fail "module load $1 failed"
  # Environment Modules 3 answers 0 to all, and knows neither of these; what it has loaded is in its list
  if [ -n "${LMOD_CMD-}${MODULES_CMD-}" ] || [ -z "${LOADEDMODULES+set}" ] || [ "$LOADEDMODULES" != "$before" ]; then
    return 0
  fi
  case :$LOADEDMODULES: in
  *:"$1":* | *:"$1"/*) ;;
  *) fail "module load $1 failed; loaded are: ${LOADEDMODULES:-none}" ;;
  esac
}
