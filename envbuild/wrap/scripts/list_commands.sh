# shellcheck shell=sh
# Runs inside the image, with the text of list_commands.py as $0.  An image of conda tools alone has no Python: then the
# text of a record tells what is in its bin.
python=$(command -v python3 || command -v python) && exec "$python" -c "$0" "$@"
printf '['
grep -hos '"bin/[^/"]*"' "$@" /dev/null | sort -u | sed 's,bin/,,' | paste -sd,
printf ']'
