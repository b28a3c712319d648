# shellcheck shell=bash disable=SC2034,SC2154,SC2317
sample_use() {
  command -v python3 >/dev/null || return 0
  python3 -I - "$use" @words@ <<'END' 7<&- &
@program@
END
  sampler=$!
  # else bash would print all of it where it is killed before it has begun
  disown "$sampler"
}
