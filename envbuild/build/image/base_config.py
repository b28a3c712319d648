"""What an image keeps of its base beside files: variables, what it runs, labels."""

from __future__ import annotations

import json
from collections.abc import Sequence

from envbuild.formats.file_tree import Tree
from envbuild.formats.oci import OciConfig
from envbuild.names import Pairs
from envbuild.parts.cache import CachedPart
from envbuild.parts.reader import read_file
from envbuild.plan.quoting import quote_literal
from envbuild.records import frozen_record

HOME = ".singularity.d"


@frozen_record
class BaseConfig:
    """``environment`` are scripts below env/ by name, ``runscript`` is the base's own.

    ``labels`` are the image's.
    """

    environment: Pairs = ()
    runscript: str | None = None
    labels: Pairs = ()


NO_CONFIG = BaseConfig()


def config_of_oci(config: OciConfig) -> BaseConfig:
    """Return what an OCI image's configuration asks for, said as the container runtime says it."""
    return BaseConfig(
        environment=(("10-docker2singularity.sh", _export_script(config.environment)),),
        runscript=_run_script(config),
        labels=tuple(sorted(config.labels.items())),
    )


def config_of_tree(tree: Tree, kept: Sequence[CachedPart], *, compressor: str) -> BaseConfig:
    """Return what the files of a SIF's root ask for; those below env/ stay where they are."""

    def text(name: str) -> str | None:
        data = read_file(tree, kept, f"{HOME}/{name}", compressor=compressor)
        return None if data is None else data.decode("utf-8", "replace")

    own = text("env/90-environment.sh")
    return BaseConfig(
        environment=(("90-environment.sh", own),) if own else (),
        runscript=text("runscript"),
        labels=tuple(sorted(parse_labels(text("labels.json") or "").items())),
    )


def parse_labels(text: str) -> dict[str, str]:
    """Return the labels of a file that an image brought; none of one that is damaged."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found = data.items() if isinstance(data, dict) else ()
    return {key: value for key, value in found if isinstance(value, str)}


def _export_script(environment: dict[str, str]) -> str:
    """Return a script that sets variables as the runtime does.

    PATH always, others where they are not set.
    """
    lines = ["#!/bin/sh"]
    for name, value in environment.items():
        if not name.isidentifier() or not name.isascii():
            # names as "a.b" are allowed in an image's configuration
            continue  # no shell could set it
        export = f"export {name}={quote_literal(value)}"
        lines.append(export if name == "PATH" else f'[ -n "${{{name}:-}}" ] || {export}')
    return "\n".join(lines) + "\n"


def _run_script(config: OciConfig) -> str:
    """Return a script that runs the entry point with the given arguments, or the image's own."""
    entry = command = ""
    if config.config is not None:
        entry = " ".join(map(quote_literal, config.config.entrypoint or ()))
        command = " ".join(map(quote_literal, config.config.cmd or ()))
    default = ""
    if command or not entry:
        default = f'if [ "$#" -eq 0 ]; then set -- {command or "/bin/sh"}; fi\n'
    return f'#!/bin/sh\n{default}exec {entry} "$@"\n'
