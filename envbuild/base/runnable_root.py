"""A base that can be run before a build, for tools that need its own Python."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from envbuild.base.model import BaseFacts
from envbuild.base.reference import parse_reference
from envbuild.base.sources import fetch_base
from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.names import ARCHITECTURES, BY_MACHINE
from envbuild.run import Command
from envbuild.store.atomic import os_errors_as
from envbuild.store.sealed import is_sealed

UNPACK_SECONDS = 600.0
MOUNTED = ("dev", "proc", "sys", "tmp", "mnt")
"""What a runtime mounts over has to be there; a root's tar has no /dev."""


def runnable_root(facts: BaseFacts, folder: Path, context: Context) -> Path:
    """Return what the runtime can start: an image file, a layout (``oci:…``) or a folder.

    A bootstrap's root is unpacked into ``folder``, which has to be empty.  Raises UsageError for
    facts whose image is no base, HostError for a bootstrap that the store has not got, and what
    bringing an image raises.
    """
    reference = parse_reference(facts.image)
    if reference.kind.is_bootstrap:
        return _unpack_root(facts, folder, context)
    locked = structs.replace(
        reference,
        platform=BY_MACHINE.get(facts.machine, ARCHITECTURES[0]).platform,
        digest=facts.digest,
    )
    header = dict(fetch_base(locked, context))
    return Path(f"oci:{header['From']}" if header["Bootstrap"] == "oci" else header["From"])


def _unpack_root(facts: BaseFacts, folder: Path, context: Context) -> Path:
    kept = context.store.base(facts.digest or "none")
    if not is_sealed(kept):
        raise HostError(
            f"the store has no root of {facts.image}",
            where=kept,
            hint="envbuild base inspect makes it",
        )
    argv = ("tar", "-xf", str(kept), "-C", str(folder), "--no-same-owner", "--exclude=./dev/*")
    context.runner(Command(argv=argv, timeout=UNPACK_SECONDS))
    with os_errors_as(folder):
        for name in MOUNTED:
            (folder / name).mkdir(exist_ok=True)
    return folder
