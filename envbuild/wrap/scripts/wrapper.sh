# shellcheck shell=bash disable=SC2154,SC2317
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
