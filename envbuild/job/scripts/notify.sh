# shellcheck shell=bash disable=SC2154,SC2317
# The command of --notify: once for a job, and once for an array, after its last task.
notify() {
  local codes variable tasks=@tasks@
  # what stopped before its time and goes back into the queue has not ended
  codes=$(awk -v most="$requeue" '/"reason":"",/ || substr($0, index($0, "\"runs\":") + 7) + 0 > most' @receipts@ |
    grep -o '"code":[0-9]*' | tr -cd '0-9\n' | sort -n)
  [ "$(wc -l <<<"$codes")" -ge "$tasks" ] || return 0
  # two tasks that end together may both be the last: a folder is made once, on every file system
  [ "$tasks" -eq 1 ] || mkdir -- @mark@ 2>/dev/null || return 0
  (
    for variable in "${!APPTAINERENV_@}" APPTAINER_CONFIG_FILE; do unset "$variable"; done
    @secrets@
    for variable in "${!APPTAINERENV_@}"; do export "${variable#APPTAINERENV_}=${!variable}"; done
    export ENVBUILD_JOB=$id ENVBUILD_NAME=$name ENVBUILD_CODE=${codes##*$'\n'} ENVBUILD_REASON=$reason
    # shellcheck disable=SC2016  # for the shell that it starts
    exec timeout 60 bash -c @command@ </dev/null
  ) || printf 'envbuild: the command of --notify failed (code %d)\n' $?
}
