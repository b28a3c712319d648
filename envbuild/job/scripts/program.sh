# shellcheck shell=bash disable=SC2034,SC2154
program=$(
  printf 'set -u\nsignal= child= early= begun=\ncd %q || exit 125\n' "$PWD"
  printf 'image=%q stamp=%q\n' "$image" "$stamp"
@token@
  declare -f \
@functions@
  cat <<'END'
trap "hand_on TERM" TERM
trap "hand_on USR1" USR1
@prepare@
enter "$@"
END
)
