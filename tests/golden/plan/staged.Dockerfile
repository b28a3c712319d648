# app: an example
# ·%post is a comment here

ARG BUILDER=debian:bookworm
FROM ${BUILDER} AS root
RUN --mount=type=secret,id=network --mount=type=secret,id=certificates mkdir -p /.envbuild && printf '%s\n' \
    'set -eu' \
    'mkdir /target' \
    >/.envbuild/script && /bin/sh /.envbuild/script

FROM scratch
COPY --from=root /target/ /

ENV LC_ALL="C.UTF-8"
ENV ODD="a \"b\" \$c \\d"

LABEL envbuild.recipe="app"

RUN --mount=type=secret,id=network --mount=type=secret,id=certificates --mount=type=bind,from=root,source=/debian,target=/mnt/debian mkdir -p /.envbuild && printf '%s\n' \
    'set -eu' \
    'cat >/x <<'"'"'END'"'"'' \
    'it'"'"'s $HOME \' \
    '# no comment' \
    END \
    'echo "done"' \
    >/.envbuild/script && /bin/sh /.envbuild/script

ENTRYPOINT ["/bin/sh", "-c", "if [ \"$#\" -gt 0 ]; then\n    exec \"$@\"\nfi\nexec python", "sh"]
