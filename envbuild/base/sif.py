"""Facts of a local image file: the probe runs in it through the container runtime."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from envbuild.base.digests import known_digest
from envbuild.base.facts import (
    cached_facts,
    iso_day,
    keep_facts,
    probe_text,
    python_off_path,
    read_probe,
)
from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.context import Context
from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.failures import explain_failure
from envbuild.formats.sif_reader import SifFile, image_digest, read_sif, require_base
from envbuild.host_python import open_host_python
from envbuild.run import Result
from envbuild.runtime import Bind, ExecOptions

INTERPRETERS = ("python3", "python")
PROBE_SECONDS = 600.0
"""A 10 GB image over a network file system takes minutes, others a second."""


def describe_sif(reference: BaseReference, context: Context) -> BaseFacts:
    """Return the facts of a ``.sif``, kept by its image digest.

    Raises UsageError for a file that cannot be a base, HostError where the container runtime does
    not work.
    """
    path = context.settings.cwd / Path(reference.name).expanduser()
    sif = read_sif(path)
    require_base(sif, platform.machine())
    digest = known_digest(path, context.store)
    kept = cached_facts(digest, context.store)
    if kept is not None:
        return structs.replace(kept, image=reference.text)
    with context.report.stage(f"read what {path.name} holds"):
        output = _run_probe(path, context, reference.text)
    facts = read_probe(output, image=reference.text, digest=digest, size=sif.size)
    facts = structs.replace(facts, created=_creation_day(facts, sif))
    keep_facts(facts, digest, context.store)
    return facts


def fetch_sif(reference: BaseReference, context: Context) -> Header:
    """Return the header for the locked file.  Raises IntegrityError for another file."""
    path = context.settings.cwd / Path(reference.name).expanduser()
    found = image_digest(path)
    if found != reference.digest:
        raise IntegrityError(
            f"is another image than was locked: its digest is {found}, the lock says {reference.digest}",
            where=path,
            hint="take this one: envbuild lock NAME",
        )
    return (("Bootstrap", "localimage"), ("From", str(path)))


def _run_probe(path: Path, context: Context, image: str) -> str:
    """Return what the probe printed in the image's own Python, or in this machine's."""
    for interpreter in INTERPRETERS:
        result = _probe_with((interpreter,), path, context)
        if result.code == 0:
            return result.stdout
        if not re.search(
            rf'"{interpreter}": executable file not found|{interpreter}: not found', result.stderr
        ):
            raise _probe_error(result, image)
    with open_host_python(context) as python:
        result = _probe_with(python.argv, path, context, "host", binds=python.binds)
    off_path = python_off_path(result.stdout) if result.code == 0 else None
    if off_path is not None:
        result = _probe_with((off_path,), path, context, "off-path")
    if result.code != 0:
        raise _probe_error(result, image)
    return result.stdout


def _probe_with(
    python: Sequence[str],
    path: Path,
    context: Context,
    *words: str,
    binds: Sequence[Bind] = (),
) -> Result:
    options = ExecOptions(stdin=probe_text(), timeout=PROBE_SECONDS, binds=binds)
    argv = (*python, "-s", "-B", "-", *words)
    return context.runner(context.runtime.exec_command(path, argv, options), check=False)


def _probe_error(result: Result, image: str) -> EnvbuildError:
    if re.search(r"SyntaxError|f-strings|ImportError|ModuleNotFoundError", result.stderr):
        return UsageError(
            f"the image's Python cannot run a script for Python 3.6: {result.last_lines(1)}",
            where=image,
            hint="take a newer tag of the image (TensorFlow 2.1 images need a tag that ends with -py3)",
        )
    return explain_failure(result)


def _creation_day(facts: BaseFacts, sif: SifFile) -> str | None:
    """Return the day of the image's content: from file times, not after the file's own."""
    packed = iso_day(sif.created) if sif.created > 0 else None
    return min(filter(None, (facts.created, packed)), default=None)
