# shellcheck shell=bash disable=SC2154,SC2317
# An Apptainer without setuid serves an image's files to ordinary users by FUSE programs.  PBS and Grid Engine signal
# all processes of a job, and the files would be gone while the command still saves its state.  These programs leave a
# signal alone that they find ignored (libfuse, fuse_set_signal_handlers).  What is written in Go does not hand that on
# (os/signal), so a shell ignores the signals last.  It also ends the program when the runtime was killed outright.
keep_servers() {
  local built file own path places program found watcher folder=$scratch/.servers
  # nor does the kernel mount them for root who lacks a capability (find_runtime)
  [ "$EUID" -ne 0 ] || [[ " ${flags[*]-} " = *" --userns "* ]] || return 0
  built=$("$runtime" buildcfg 2>/dev/null)
  case $built in *APPTAINER_SUID_INSTALL=0*) ;; *) return 0 ;; esac
  file=$(sed -n 's/^APPTAINER_CONF_FILE=//p' <<<"$built")
  own=$(sed -n 's/^LIBEXECDIR=//p' <<<"$built")/apptainer/bin
  # the settings of 1.1 and later, in which the folder of programs can be named
  grep -qi 'binary path' "$file" 2>/dev/null && mkdir -p -- "$folder" || return 0
  path=$(sed -n 's/^[[:blank:]]*binary path[[:blank:]]*=[[:blank:]]*//p' "$file" | tail -n 1)
  # shellcheck disable=SC2016  # the runtime expands it
  path=${path:-'$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'}
  # the runtime's own folder has its place before the user's, else before all
  places=${path/\$PATH/"$own:$PATH"}
  [ "$places" != "$path" ] || places=$own:$path
  printf -v watcher %q "$(type -P tail)"
  for program in squashfuse_ll squashfuse fuse-overlayfs fuse2fs; do
    found=$(PATH=$places type -P "$program") || continue
    # there is no PATH; when the runtime is gone, the program's number may be another's, unless it is still the parent
    printf '#!/bin/sh\ntrap "" HUP TERM USR1 USR2\n%s\n%s\nexec %q "$@"\n' \
      "[ \$# -eq 0 ] || ($watcher --pid=\$PPID -f /dev/null && read -r _ _ _ parent _ </proc/self/stat &&" \
      "  [ \"\$parent\" = \$\$ ] && kill -KILL \$\$) </dev/null >/dev/null 2>&1 3<&- &" \
      "$found" >"$folder/$program" && chmod 700 "$folder/$program" || return 0
    # a disk from which nothing may be run
    [ -x "$folder/$program" ] || return 0
  done
  { sed '/^[[:blank:]]*binary path[[:blank:]]*=/d' "$file" && printf 'binary path = %s:%s\n' "$folder" "$path"; } \
    >"$folder/apptainer.conf" && export APPTAINER_CONFIG_FILE=$folder/apptainer.conf
}
