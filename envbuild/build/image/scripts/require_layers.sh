#!/bin/sh
# shellcheck disable=SC2043
for envbuild_layer in @keys@; do
    if [ ! -e "/.envbuild/layer/$envbuild_layer" ]; then
        echo "envbuild: a layer of this image is missing or damaged ($envbuild_layer)" >&2
        echo "  what to do: start it without --unsquash and --underlay, or make it one partition where it is whole:" >&2
        echo "              envbuild flatten IMAGE" >&2
        exit 78
    fi
done
unset envbuild_layer
