"""Names that mean the same thing, a row each: architectures, and the kinds of bases.

A new one is a row here; a kind of base also gets a module that reads it, and a row in
base/sources.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from envbuild.records import frozen_record

Machine = Literal["x86_64", "aarch64"]
Platform = Literal["linux/amd64", "linux/arm64"]
CondaFolder = Literal["linux-64", "linux-aarch64"]

ChannelName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*\Z",
        max_length=100,
        description="The short name of a conda channel; settings give its address.",
    ),
]

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The name of a recipe (docs/recipe.md), and of jobs, layers and entries that are called like one."""
Texts = tuple[str, ...]
"""Texts in their order, such as names or the words of a command."""
Paths = tuple[Path, ...]
"""Files or folders in their order."""
Numbers = tuple[int, ...]
"""Whole numbers in their order, such as the parts of a version."""
Pairs = tuple[tuple[str, str], ...]
"""Two texts that belong together, such as names and values, in their order."""
Variables = Mapping[str, str]
"""Variables of an environment by name."""
DIRECT = "(direct)"
"""In place of the name of a package that requires another one: the recipe itself requires it."""


@frozen_record
class Architecture:
    """What one processor architecture is called.

    ``machine`` is uname's word (and that of wheels), ``platform`` an image index's, ``debian`` that
    of Debian packages, ``conda`` a channel's folder; ``lock_suffix`` ends the names of lock files.
    ``audit`` is what the kernel's audit.h calls the machine, ``socket_call`` its number of
    socket(), both hexadecimal (a written definition filters system calls by them).
    """

    machine: Machine
    platform: Platform
    debian: str
    conda: CondaFolder
    lock_suffix: str
    audit: str
    socket_call: str


ARCHITECTURES = (
    Architecture(
        machine="x86_64",
        platform="linux/amd64",
        debian="amd64",
        conda="linux-64",
        lock_suffix=".lock",
        audit="c000003e",
        socket_call="29",
    ),
    Architecture(
        machine="aarch64",
        platform="linux/arm64",
        debian="arm64",
        conda="linux-aarch64",
        lock_suffix=".aarch64.lock",
        audit="c00000b7",
        socket_call="c6",
    ),
)
BY_MACHINE: dict[str, Architecture] = {row.machine: row for row in ARCHITECTURES}
BY_PLATFORM: dict[str, Architecture] = {row.platform: row for row in ARCHITECTURES}
BY_DEBIAN: dict[str, Architecture] = {row.debian: row for row in ARCHITECTURES}
"""An image index says "amd64" and "arm64" as Debian does."""


@frozen_record
class BaseKind:
    """One kind of base.

    ``agent`` is the word behind "Bootstrap:" in a definition that starts from it.  ``in_registry``
    kinds are written NAME://IMAGE, ``in_file`` ones NAME:PATH.  ``is_sif`` holds one file system,
    the others layers.  ``dockerfile`` says that a Dockerfile can start from it.
    """

    name: str
    agent: str
    in_registry: bool = False
    in_file: bool = False
    is_sif: bool = False
    is_bootstrap: bool = False
    dockerfile: bool = False

    @property
    def is_project_file(self) -> bool:
        """Whether it is a file of the project, named by its path."""
        return self.is_sif and not self.in_registry

    @property
    def is_portable(self) -> bool:
        """Whether it is the same on every machine; others are files or engines of one."""
        return self.in_registry or self.is_bootstrap


BASE_KINDS: dict[str, BaseKind] = {
    row.name: row
    for row in (
        BaseKind(name="debian", agent="scratch", is_bootstrap=True),
        BaseKind(name="sif", agent="localimage", is_sif=True),
        BaseKind(name="docker", agent="docker", in_registry=True, dockerfile=True),
        BaseKind(name="oras", agent="oras", in_registry=True, is_sif=True),
        BaseKind(name="oci", agent="oci", in_file=True),
        BaseKind(name="oci-archive", agent="oci-archive", in_file=True),
        BaseKind(name="docker-archive", agent="docker-archive", in_file=True),
        BaseKind(name="docker-daemon", agent="docker-daemon", in_file=True, dockerfile=True),
    )
}
