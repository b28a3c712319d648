# shellcheck shell=bash disable=SC2154,SC2317

check_image() {
  [ -r "$image" ] || fail "the image is not there on $(hostname): $image"
  # an image may be made anew while its job waits; the digest in log and receipt is that of the submission
  [ -z "$stamp" ] || [ "$(stat -L -c '%s %Y' -- "$image")" = "$stamp" ] ||
    fail "the image has changed since the job was submitted: $image; submit it again"
}
