"""What activating a conda environment sets, found out once when the image is made.

Packages bring shell scripts for it (etc/conda/activate.d) and variables (etc/conda/env_vars.d). In
an image nobody activates: the runtime's own shell would have to understand them, and does not
(bash's words, functions). So they run once, in the image, without a network, and what they did to
the environment is written down as plain exports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from envbuild.build.conda.prefix import CondaPrefix
from envbuild.build.image.base_config import BaseConfig
from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import GIVEN, INSIDE, open_exchange, result_bytes
from envbuild.errors import IntegrityError, ToolFailedError
from envbuild.failures import explain_failure
from envbuild.formats.file_tree import TreeEntry, merge_parts
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Lock
from envbuild.names import Texts
from envbuild.parts.cache import CachedPart
from envbuild.parts.reader import read_file
from envbuild.parts.writer import Content
from envbuild.plan.conda import ACTIVATION, history_text
from envbuild.plan.quoting import quote_literal
from envbuild.plan.scripts.activate_conda import NAME, changed_variables
from envbuild.records import frozen_record
from envbuild.runtime import ExecOptions
from envbuild.script_files import read_script

SECONDS = 300.0
START, ACTIVATE = "start_activation.sh", "activate.sh"
SCRIPTS, VARIABLES = "/etc/conda/activate.d/", "/etc/conda/env_vars.d/"


@frozen_record
class Activation:
    """What activating does: lines of shell, and for people what could not be kept."""

    lines: Texts = ()
    not_kept: Texts = ()


def activation_scripts() -> dict[str, str]:
    """Return the scripts that activate an environment in the container, by their names there."""
    return {
        name: read_script("envbuild.build.in_base", f"scripts/{name}", given=GIVEN, results=INSIDE)
        for name in (START, ACTIVATE)
    }


def needs_activation(parts: Sequence[CachedPart], prefix: CondaPrefix) -> bool:
    """Tell whether a package brings something that activating would do."""
    folders = (f"{prefix.path}{SCRIPTS}", f"{prefix.path}{VARIABLES}")
    return any(
        entry.path.startswith(folders) and entry.kind in "fl"
        for part in parts
        for entry in part.part.entries
    )


def declared_variables(
    parts: Sequence[CachedPart], prefix: CondaPrefix, compressor: str
) -> dict[str, str]:
    """Return the variables that packages declare in JSON files.

    Raises IntegrityError for a file that declares none.
    """
    tree = merge_parts(part.part for part in parts)
    folder = f"{prefix.path}{VARIABLES}"
    found: dict[str, str] = {}
    for path in sorted(path for path in tree if path.startswith(folder)):
        data = read_file(tree, parts, path, compressor=compressor)
        if data is None or not path.endswith(".json"):
            continue
        try:
            declared = msgspec.json.decode(data, type=dict[str, str])
        except UNREADABLE as error:
            raise IntegrityError(f"declares no variables: {error}", where=f"/{path}") from error
        found |= {name: value for name, value in declared.items() if NAME.match(name)}
    return found


def capture_activation(
    inside: BaseContainer,
    prefix: CondaPrefix,
    config: BaseConfig,
    declared: Mapping[str, str],
    set_by_recipe: Collection[str],
) -> Activation:
    """Run an image's activation scripts and return what they and ``declared`` variables do.

    Raises ToolFailedError where one ends the shell.
    """
    folder = f"/{prefix.path}"
    first = {"CONDA_PREFIX": folder, "CONDA_DEFAULT_ENV": folder, **declared}
    exports = [f"export {name}={quote_literal(value)}" for name, value in first.items()]
    exports.append('export PATH="$CONDA_PREFIX/bin:$PATH"')
    with open_exchange(inside.folder) as between:
        for name, text in config.environment:
            between.write(f"base/{name}", text.encode())
        between.write("variables.sh", ("\n".join(exports) + "\n").encode())
        for name, text in activation_scripts().items():
            between.write(name, text.encode())
        clean = 'exec env -i PATH="$PATH" HOME=/root /bin/sh "$0"'
        argv = ("/bin/sh", "-c", clean, f"{GIVEN}/{START}")
        runtime, runner = inside.context.runtime, inside.context.runner
        command = runtime.exec_command(
            inside.image, argv, ExecOptions(binds=between.binds(), timeout=SECONDS, network=False)
        )
        result = runner(command, check=False)
        try:
            before, after = (
                _variables(result_bytes(between.out, name)) for name in ("before", "after")
            )
        except IntegrityError as error:
            failure = explain_failure(result)
            hint = "a script in etc/conda/activate.d ended the shell"
            raise ToolFailedError.of(result, failure.what, hint=failure.hint or hint) from error
        functions = _optional_lines(between.out)
    started = {name: value for name, value in before.items() if name not in declared}
    kept = tuple(changed_variables(started, after, set_by_recipe))
    not_kept = tuple(f"{name} (a function or alias)" for name in functions)
    return Activation(lines=kept, not_kept=not_kept)


def environment_contents(activation: Activation, lock: Lock, before: bytes) -> Iterator[Content]:
    """Yield the files that a whole environment has beside its packages.

    ``before`` is the history that a base's environment has already.
    """
    script = "\n".join(("#!/bin/sh", *activation.lines)) + "\n"
    yield TreeEntry(ACTIVATION.lstrip("/"), "f", 0o755), script.encode()
    # conda takes a folder for an environment by this file
    yield TreeEntry(history_path(lock), "f", 0o644), before + history_text(lock).encode()


def history_path(lock: Lock) -> str:
    """Return where an environment keeps its history, without the leading slash."""
    return f"{lock.conda_prefix}/conda-meta/history".lstrip("/")


def _variables(data: bytes) -> dict[str, str]:
    pairs = [item.partition("=") for item in data.decode("utf-8", "replace").split("\0") if item]
    return {name: value for name, _, value in pairs}


def _optional_lines(folder: Path) -> list[str]:
    try:
        data = result_bytes(folder, "functions")
    except IntegrityError:
        return []  # the shell was not bash
    return data.decode("utf-8", "replace").splitlines()
