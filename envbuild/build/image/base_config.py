"""What an image keeps of its base beside files: variables, what it runs, labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.formats.file_tree import Tree
from envbuild.formats.oci import Config
from envbuild.parts.cache import KeptPart
from envbuild.parts.reader import read_file
from envbuild.plan.quoting import literal

HOME = ".singularity.d"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inherited:
    """``environment`` are scripts below env/ by name, ``runscript`` is the base's own; ``labels`` are the image's."""

    environment: tuple[tuple[str, str], ...] = ()
    runscript: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


NOTHING = Inherited()


def of_config(config: Config) -> Inherited:
    """Return what an OCI image's configuration asks for, said as the container runtime says it."""
    return Inherited(
        environment=(("10-docker2singularity.sh", _exports(config.environment)),),
        runscript=_runscript(config),
        labels=tuple(sorted(config.labels.items())),
    )


def of_tree(tree: Tree, kept: Sequence[KeptPart], *, compressor: str) -> Inherited:
    """Return what the files of a SIF's root ask for; those below env/ stay where they are."""

    def text(name: str) -> str | None:
        data = read_file(tree, kept, f"{HOME}/{name}", compressor=compressor)
        return None if data is None else data.decode("utf-8", "replace")

    own = text("env/90-environment.sh")
    return Inherited(
        environment=(("90-environment.sh", own),) if own else (),
        runscript=text("runscript"),
        labels=tuple(sorted(labels_of(text("labels.json") or "").items())),
    )


def labels_of(text: str) -> dict[str, str]:
    """Return the labels of a file that an image brought; none of one that is damaged."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found = told.items() if isinstance(told, dict) else ()
    return {key: value for key, value in found if isinstance(value, str)}


def _exports(environment: dict[str, str]) -> str:
    """Return a script that sets variables as the runtime does: PATH always, others where they are not set."""
    lines = ["#!/bin/sh"]
    for name, value in environment.items():
        if not name.isidentifier() or not name.isascii():
            continue  # no shell could set it
        export = f"export {name}={literal(value)}"
        lines.append(export if name == "PATH" else f'[ -n "${{{name}:-}}" ] || {export}')
    return "\n".join(lines) + "\n"


def _runscript(config: Config) -> str:
    """Return a script that runs the entry point with the arguments given, or with the image's own."""
    told = config.config
    entry = " ".join(map(literal, (told.entrypoint if told else None) or ()))
    command = " ".join(map(literal, (told.cmd if told else None) or ()))
    default = (
        f'if [ "$#" -eq 0 ]; then set -- {command or "/bin/sh"}; fi\n'
        if command or not entry
        else ""
    )
    return f'#!/bin/sh\n{default}exec {entry} "$@"\n'
