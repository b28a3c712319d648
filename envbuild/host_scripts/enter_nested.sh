# shellcheck shell=sh disable=SC2154,SC2016
# An ordinary user's namespace may map its own ids further, which newuidmap does not know of.
trap : INT TERM
mkfifo "$stash/pid" "$stash/go"
{
    read -r pid <"$stash/pid"
    for map in uid_map gid_map; do echo "0 1 @ids@" >"/proc/$pid/$map"; done
    echo go >"$stash/go"
} &
code=0
unshare --user --keep-caps sh -c \
    'echo $$ >"$1/pid"; read -r _ <"$1/go"; shift; exec "$@"' sh "$stash" "$@" || code=$?
# what was written is the caller's again: nobody else could remove it
number=0
while [ $number -lt "$count" ]; do
    number=$((number + 1))
    eval "path=\$path$number kind=\$kind$number"
    if [ "$kind" = rw ]; then chown -R -h 0:0 "$path"; fi
done
exit "$code"
