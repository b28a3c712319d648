#!/bin/sh
home=${0%/*}/..
exec "$home/lib/loader" --argv0 "$0" --library-path "$home/lib" "$home/bin/python" "$@"
