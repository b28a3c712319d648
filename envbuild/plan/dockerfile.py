"""Render a Definition as a Dockerfile; knows syntax, decides nothing.

Scripts are written to a file word by word (``printf … >script; sh script``): here-documents of a
Dockerfile are younger than many engines, and in this form every engine runs the same lines.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from envbuild.errors import UsageError
from envbuild.names import BASE_KINDS, Pairs
from envbuild.plan.model import Definition
from envbuild.plan.quoting import text_line
from envbuild.plan.root import STAGED, SUPPLIED_DEBIAN, TARGET
from envbuild.plan.shell import BUILD, SUPPLIED

LONGEST = 120_000
"""Bytes of one RUN.

Linux takes 131072 in one argument (MAX_ARG_STRLEN), and a shell gets it as one.
"""
BUILDER = "debian:bookworm"
"""The image on which a root is made; nothing of it comes into the root."""
FROM = frozenset(kind.agent for kind in BASE_KINDS.values() if kind.dockerfile)
"""What a definition can start from and a Dockerfile too."""


def render_dockerfile(
    definition: Definition, *, root: str | None = None, files: str | None = None
) -> str:
    """Return the Dockerfile; the same arguments give the same text.

    ``root`` is the tar of a bootstrapped root in the build's context (None: a stage of its own
    makes the root), ``files`` the folder with the verified packages there (None: the build
    downloads them). Raises UsageError for a base that no engine can start from.
    """
    staged = root is None and dict(definition.header)["Bootstrap"] == "scratch"
    mounts = _mount_options(files, staged=staged)
    blocks = ["".join(f"# {text_line(line)}".rstrip() + "\n" for line in definition.comment)]
    if staged:
        blocks.append(
            f"ARG BUILDER={BUILDER}\nFROM ${{BUILDER}} AS root\n"
            + _render_run(definition.setup, _mount_options(None))
        )
    # what stands before this FROM belongs to the stage that makes the root
    blocks.append(_render_base(definition.header, root))
    blocks.append(_render_pairs("ENV", definition.environment))
    if definition.path:
        # $PATH is the base's own, as the engine knows it
        blocks.append(f'ENV PATH={_quote_value(":".join(definition.path))[:-1]}:$PATH"\n')
    blocks.append(_render_pairs("LABEL", definition.labels))
    blocks.append(_render_run(definition.post, mounts))
    if definition.runscript:
        words = ["/bin/sh", "-c", "\n".join(definition.runscript), "sh"]
        blocks.append(f"ENTRYPOINT {json.dumps(words)}\n")
    return "\n".join(block for block in blocks if block)


def _render_base(header: Pairs, root: str | None) -> str:
    fields = dict(header)
    kind = fields["Bootstrap"]
    if kind == "scratch":
        return f"FROM scratch\n{f'ADD {root}' if root else f'COPY --from=root {TARGET}/'} /\n"
    if kind not in FROM:
        raise UsageError(
            f"a Dockerfile cannot start from {kind}: {fields['From']}",
            hint="take a base from a registry (docker://…), or build with --mode fakeroot",
        )
    if not re.fullmatch(r"[A-Za-z0-9._:/@\[\]-]+", fields["From"]):
        raise UsageError(f"{fields['From']!r} cannot be in a Dockerfile")
    return f"FROM {fields['From']}\nUSER root\n"


def _quote_value(value: str) -> str:
    """Quote a value so that the engine neither expands nor splits it."""
    if any(char in value for char in "\n\r\0"):
        raise UsageError(f"{value!r} has a line break, which a Dockerfile cannot carry in a value")
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _mount_options(files: str | None, *, staged: bool = False) -> str:
    """Return what a step sees beside the image.

    The verified files, or how to reach the network they come from.
    """
    if files is not None:
        return f"--mount=type=bind,source={files},target={SUPPLIED} "
    found = "--mount=type=secret,id=network --mount=type=secret,id=certificates "
    return found + (
        f"--mount=type=bind,from=root,source={STAGED},target={SUPPLIED_DEBIAN} " if staged else ""
    )


def _render_pairs(word: str, pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{word} {name}={_quote_value(value)}\n" for name, value in pairs)


def _render_run(lines: Sequence[str], mounts: str) -> str:
    if not lines:
        return ""
    # a shell's printf takes every line as one word, and sh reads them as they were
    words = " \\\n".join(f"    {shlex.quote(line)}" for line in lines)
    script = f"{BUILD}/script"
    text = f"RUN {mounts}mkdir -p {BUILD} && printf '%s\\n' \\\n{words} \\\n"
    text += f"    >{script} && /bin/sh {script}\n"
    if len(text.encode()) > LONGEST:
        raise UsageError(
            f"the build's script is {len(text.encode())} bytes long, a Dockerfile carries {LONGEST}",
            hint="build with --mode fakeroot",
        )
    return text
