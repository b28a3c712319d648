"""What is known about frameworks, CUDA and shared libraries: the tables of ``data/``, typed."""

from __future__ import annotations

import fnmatch
import re
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec

from envbuild.toml import convert, parse_toml

T = TypeVar("T")


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every table of data: frozen, known keys only."""


class Framework(_Row, frozen=True):
    """A module that computes on the GPU; ``dists``, ``cpu`` and ``protected`` are shell patterns of distributions.

    ``opens`` are those of the CUDA libraries that it opens itself at run time, going on without the GPU if one is gone.
    """

    name: str
    module: str
    dists: tuple[str, ...]
    probe: str
    cpu: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


class Build(_Row, frozen=True):
    """What the wheels of one release line were built for; ``sass`` and ``ptx`` are capabilities times ten."""

    framework: str
    version: str
    cuda: str
    source: str
    cudnn: str | None = None
    sass: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()


class Exclusive(_Row, frozen=True):
    """Distributions that write the same files; ``keep`` says which one people usually want."""

    module: str
    dists: tuple[str, ...]
    keep: str


class Frameworks(_Row, frozen=True):
    """The whole of frameworks.toml."""

    framework: tuple[Framework, ...]
    build: tuple[Build, ...]
    exclusive: tuple[Exclusive, ...]


class Libraries(_Row, frozen=True):
    """Sonames of the CUDA libraries since one toolkit."""

    since: str
    names: tuple[str, ...]


class Gpu(_Row, frozen=True):
    """A compute capability (times ten), cards that have it, and the toolkits that compile for it."""

    capability: int
    names: str
    also: str = ""
    since: str | None = None
    until: str | None = None


class InitCode(_Row, frozen=True):
    """One answer of cuInit."""

    code: int
    name: str
    cause: str
    cure: str


class Cuda(_Row, frozen=True):
    """The whole of cuda.toml."""

    drivers: dict[str, str]
    families: dict[str, str]
    libraries: tuple[Libraries, ...]
    gpu: tuple[Gpu, ...]
    init: tuple[InitCode, ...]


class Optional(_Row, frozen=True):
    """Shared objects (shell pattern over the path) whose libraries may be missing."""

    object: str
    reason: str


class Provider(_Row, frozen=True):
    """Who has a library: a Debian package or a wheel."""

    soname: str
    debian: str | None = None
    wheel: str | None = None
    note: str | None = None


class Sonames(_Row, frozen=True):
    """The whole of sonames.toml."""

    driver: tuple[str, ...]
    optional: tuple[Optional, ...]
    provider: tuple[Provider, ...]


@cache
def frameworks() -> Frameworks:
    """Return the table of frameworks."""
    return _read("frameworks.toml", Frameworks)


@cache
def cuda() -> Cuda:
    """Return the tables of CUDA."""
    return _read("cuda.toml", Cuda)


@cache
def sonames() -> Sonames:
    """Return the tables of shared libraries."""
    return _read("sonames.toml", Sonames)


def _read(name: str, kind: type[T]) -> T:
    text = resources.files("envbuild.data").joinpath(name).read_text("utf-8")
    data: Any = parse_toml(text, name)
    return convert(data, kind, text=text, where=name)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparing drivers and toolkits: "12.5.1" gives (12, 5, 1)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a name matches one of the shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def framework_of(dist: str) -> Framework | None:
    """Return the framework that a distribution (canonical name) provides."""
    return next((item for item in frameworks().framework if matches(dist, item.dists)), None)


def build_of(framework: str, version: str) -> Build | None:
    """Return what a release was built for: its own row, else that of its release line."""
    rows = [row for row in frameworks().build if row.framework == framework]
    release = version.split("+", maxsplit=1)[0]
    line = ".".join(release.split(".")[:2])
    return next((row for wanted in (release, line) for row in rows if row.version == wanted), None)


def cuda_libraries(toolkit: str) -> tuple[str, ...]:
    """Return the sonames that a program built for a toolkit opens; empty for one older than the table."""
    wanted = (*numbers(toolkit), 0)[:2]  # "12" stands for all of 12
    fitting = [row for row in cuda().libraries if numbers(row.since) <= wanted]
    return max(fitting, key=lambda row: numbers(row.since)).names if fitting else ()


@cache
def opened_by(framework: Framework) -> tuple[str, ...]:
    """Return every soname that some release of a framework opens at run time, for any toolkit and cuDNN."""
    names = {name for row in cuda().libraries for name in row.names}
    names |= {f"libcudnn.so.{numbers(row.cudnn)[0]}" for row in frameworks().build if row.cudnn}
    return tuple(sorted(name for name in names if matches(name, framework.opens)))


def oldest_driver(toolkit: str) -> str | None:
    """Return the oldest driver that runs machine code of a toolkit (None: not known)."""
    major, minor = (*numbers(toolkit), 0, 0)[:2]
    if str(major) in cuda().families and (major, minor) != (11, 0):
        return cuda().families[str(major)]
    return cuda().drivers.get(f"{major}.{minor}")


def cuda_of_driver(driver: str) -> str | None:
    """Return the newest toolkit that a driver came with or after (None: older than the table)."""
    fitting = [
        toolkit for toolkit, needed in cuda().drivers.items() if numbers(needed) <= numbers(driver)
    ]
    return max(fitting, key=numbers) if fitting else None


def newest_toolkit(driver: str) -> str | None:
    """Return the newest toolkit whose machine code a driver runs (None: older than the table)."""
    fitting = [
        toolkit
        for toolkit in cuda().drivers
        if numbers(oldest_driver(toolkit) or "") <= numbers(driver)
    ]
    return max(fitting, key=numbers) if fitting else None


def runs_on(capability: int, sass: tuple[int, ...], ptx: tuple[int, ...]) -> str | None:
    """Return how code runs on a GPU: "sass" (machine code), "ptx" (compiled at first use) or None (not at all).

    Machine code runs on the same major capability and an equal or higher minor one; portable code on every GPU from
    its own capability up (CUDA programming guide, "Application Compatibility").
    """
    if any(code // 10 == capability // 10 and code <= capability for code in sass):
        return "sass"
    return "ptx" if any(code <= capability for code in ptx) else None


def gpu_names(capability: int) -> str:
    """Return cards with a capability, for messages ("V100"); the bare capability where none is known."""
    return next(
        (row.names for row in cuda().gpu if row.capability == capability),
        f"capability {capability / 10}",
    )


def from_driver(soname: str) -> bool:
    """Tell whether a library belongs to the driver of the machine and never to the image."""
    return matches(soname, sonames().driver)


def may_lack(path: str) -> str | None:
    """Return why a shared object's libraries may be missing, or None where they must not."""
    return next(
        (row.reason for row in sonames().optional if fnmatch.fnmatchcase(path, row.object)), None
    )


def provider_of(soname: str) -> Provider | None:
    """Return who has a library."""
    return next(
        (row for row in sonames().provider if fnmatch.fnmatchcase(soname, row.soname)), None
    )
