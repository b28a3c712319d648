# shellcheck shell=bash disable=SC2016,SC2034,SC2154,SC2317
enter() {
  local variable value runtime scratch code flags=() records=()@arrays@
  clean_environment
  find_runtime @programs@
@environment@
  make_scratch
  keep_servers
  check_image
  protect_records "$PWD"
@caches@
@stage@
  begun= && : >"$scratch/.begun" && exec 6<"$scratch/.begun" && begun=/dev/fd/6
  # shellcheck disable=SC2016  # the image's shell expands it
  @run@
  code=$? own=$code
  if [ "$code" -ne 0 ] && [ -n "$begun" ] && [ ! -s "$begun" ]; then
    printf 'envbuild: error: the container did not start: see above\n' >&2
    code=125
  fi
  exec 6<&-
  rm -rf -- "$scratch"
@unstage@
  return "$code"
}
