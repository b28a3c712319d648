# shellcheck shell=bash disable=SC2043  # @folders@ stands for several
node_local() {
  local folder
  for folder in @folders@; do
    if [ -n "$folder" ] && [ -d "$folder" ] && [ -w "$folder" ]; then
      printf "%s\n" "$folder"
      return
    fi
  done
  printf '/tmp\n'
}
