# app: an example
# ·%post is a comment here

FROM lab/app@sha256:1111111111111111111111111111111111111111111111111111111111111111
USER root

ENV LC_ALL="C.UTF-8"
ENV ODD="a \"b\" \$c \\d"

LABEL envbuild.recipe="app"

RUN --mount=type=bind,source=files,target=/mnt/envbuild mkdir -p /.envbuild && printf '%s\n' \
    'set -eu' \
    'cat >/x <<'"'"'END'"'"'' \
    'it'"'"'s $HOME \' \
    '# no comment' \
    END \
    'echo "done"' \
    >/.envbuild/script && /bin/sh /.envbuild/script

ENTRYPOINT ["/bin/sh", "-c", "if [ \"$#\" -gt 0 ]; then\n    exec \"$@\"\nfi\nexec python", "sh"]
