"""The tables of this folder: one record and one loader a file (see package_tables).

The head of each file says what its keys mean.  Unknown keys are errors: a test finds each slip.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from envbuild.names import Numbers, Texts
from envbuild.toml import convert, parse_toml

T = TypeVar("T")
Status = Literal["verified", "derived", "unverified"]


class TableRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every table: frozen, known keys only."""


class SourcedRow(TableRow, frozen=True):
    """A row that says where its fact stands."""

    source: str


class TableFile(TableRow, frozen=True):
    """A whole file that says which form it has."""

    schema: int


class Framework(TableRow, frozen=True):
    """A module that computes on the GPU; ``dists``, ``cpu``, ``protected`` are shell patterns.

    ``parts`` hold a part of it and are never replaced either; ``called`` is what people write for
    it where a base is chosen.  ``probe`` is the script that tries it on a GPU, None where there is
    none.  ``greater`` ones make what is built on them (RAPIDS) no framework of its own.  ``opens``
    are those of the CUDA libraries that it opens itself at run time, going on without the GPU if
    one is gone; ``opens_before`` is the release since which it finds them in wheels by a way of its
    own (entry_points.toml tries it); ``linked`` are linked libraries whose version counts,
    ``openers`` the objects that open them (shell patterns below site-packages, the first that is
    there counts), and ``before`` the objects that are loaded before.  ``with_cuda`` is the
    requirement that brings it with CUDA; with ``keras`` Keras computes with it.  ``plugins`` are
    the distributions that are its CUDA part, where that is no part of itself.  ``compiles`` are the
    tools that it needs to compile for the GPU, which it does in every program if
    ``always_compiles``; ``brings`` are the sonames of its own libraries, which others link.
    """

    name: str
    module: str
    dists: Texts
    probe: str | None = None
    parts: Texts = ()
    called: Texts = ()
    cpu: Texts = ()
    protected: Texts = ()
    opens: Texts = ()
    opens_before: str | None = None
    linked: Texts = ()
    openers: Texts = ()
    before: Texts = ()
    code: Texts = ()
    with_cuda: str | None = None
    greater: bool = False
    keras: bool = False
    plugins: Texts = ()
    compiles: Texts = ("ptxas", "libdevice.10.bc")
    always_compiles: bool = False
    brings: Texts = ()


class EntryPoint(SourcedRow, frozen=True):
    """A program that makes a package open its libraries (entry_points.toml)."""

    name: str
    dists: Texts
    module: str
    code: str
    cure: str
    beside: Texts = ()
    when: str = ""
    after: str = ""
    strict: bool = False
    asked: bool = False
    used: bool = False
    parts: bool = False
    takes: Texts = ()
    written: str = ""
    sets: str = ""
    calls: Texts = ()
    compiles: bool = False
    full: bool = False
    driver: bool = False


class EntryPointTable(TableRow, frozen=True):
    """The whole of entry_points.toml."""

    entry: tuple[EntryPoint, ...]


class ImportLine(TableRow, frozen=True):
    """A line that a package prints when it is imported without what it is for (import_lines.toml).

    ``told`` is its text in ``file`` of ``version`` (of ``wheel``); ``gpu``: nothing without one.
    """

    package: str
    says: str
    since: str
    version: str
    file: str
    told: str
    gpu: bool = False
    wheel: str = ""


class ImportLineTable(TableFile, frozen=True):
    """The whole of import_lines.toml."""

    line: tuple[ImportLine, ...]


class Variable(SourcedRow, frozen=True):
    """A variable that keeps packages from the GPU, or makes them slow (variables.toml)."""

    name: str
    values: Texts
    what: str
    packages: Texts = ()
    framework: str | None = None
    compiles: bool = False
    slow: bool = False


class VariableTable(TableRow, frozen=True):
    """The whole of variables.toml."""

    variable: tuple[Variable, ...]


class WheelBuild(TableRow, frozen=True):
    """What a release line was built for; ``sass`` and ``ptx`` are capabilities times ten."""

    framework: str
    version: str
    cuda: str
    source: str
    cudnn: str | None = None
    sass: Numbers = ()
    ptx: Numbers = ()


class ExclusiveGroup(TableRow, frozen=True):
    """Distributions of the same files: ``keep`` says which is wanted, ``fuller`` have all of it."""

    module: str
    dists: Texts
    keep: str
    fuller: Texts = ()


class FrameworkTable(TableRow, frozen=True):
    """The whole of frameworks.toml."""

    framework: tuple[Framework, ...]
    build: tuple[WheelBuild, ...]
    exclusive: tuple[ExclusiveGroup, ...]


class ToolkitLibraries(TableRow, frozen=True):
    """Sonames of the CUDA libraries since one toolkit."""

    since: str
    names: Texts


class GpuModel(TableRow, frozen=True):
    """A capability (times ten), its cards (``also``: rarer ones), its first and last toolkit."""

    capability: int
    names: str
    also: str = ""
    since: str | None = None
    until: str | None = None


class InitCode(TableRow, frozen=True):
    """One answer of cuInit."""

    code: int
    name: str
    cause: str
    cure: str


class CudaTable(TableRow, frozen=True):
    """The whole of cuda.toml: drivers, libraries, GPUs, answers of cuInit."""

    drivers: dict[str, str]
    families: dict[str, str]
    libraries: tuple[ToolkitLibraries, ...]
    gpu: tuple[GpuModel, ...]
    init: tuple[InitCode, ...]


class CudaSource(SourcedRow, frozen=True):
    """Where the CUDA libraries of a framework's wheels come from."""

    dists: Texts
    libraries: Texts = ()
    within: str | None = None
    plugin: str | None = None
    never: bool = False
    only: bool = False
    instead: str | None = None
    extras: Texts = ()
    since: str = "0"
    wheels: bool = False
    cuda: str = ""


class CudaSourceTable(TableFile, frozen=True):
    """The whole of gpu.toml."""

    framework: tuple[CudaSource, ...]


class OptionalObject(TableRow, frozen=True):
    """Shared objects (shell pattern over the path) whose libraries may be missing."""

    object: str
    reason: str


class LibraryProvider(TableRow, frozen=True):
    """Who has a library: a Debian package or a wheel."""

    soname: str
    debian: str | None = None
    wheel: str | None = None
    note: str | None = None


class SonameTable(TableRow, frozen=True):
    """The whole of sonames.toml."""

    driver: Texts
    rocm: Texts
    optional: tuple[OptionalObject, ...]
    provider: tuple[LibraryProvider, ...]


class ReleaseTable(TableFile, frozen=True):
    """The whole of releases.toml: when each release line of a framework came out."""

    source: str
    torch: dict[str, dt.date]
    tensorflow: dict[str, dt.date]
    jax: dict[str, dt.date]
    cupy: dict[str, dt.date]


class CatalogueSuite(TableRow, frozen=True):
    """A Debian release that is bootstrapped."""

    bootstrap: str
    python: str
    distro: str


class WheelLine(SourcedRow, frozen=True):
    """A release line of a framework, and the Python versions that it has Linux wheels for."""

    framework: str
    line: str
    requirement: str
    pythons: Texts


class CatalogueImage(SourcedRow, frozen=True):
    """An image; ``holds`` is its framework's own name, ``version`` the public version."""

    image: str
    status: Status
    framework: str | None = None
    holds: str | None = None
    version: str | None = None
    python: str | None = None
    distro: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    defect: str | None = None
    note: str | None = None


class Catalogue(TableFile, frozen=True):
    """The whole of catalogue.toml; ``glibc`` maps distributions to their C library."""

    suite: tuple[CatalogueSuite, ...]
    glibc: dict[str, str]
    wheels: tuple[WheelLine, ...]
    image: tuple[CatalogueImage, ...]


class CacheVariable(SourcedRow, frozen=True):
    """A variable, and the folder that it is set to; ``made`` where its program makes none."""

    variable: str
    keep: Literal["downloads", "compiled"]
    folder: str
    made: bool = False


class CacheTable(TableFile, frozen=True):
    """The whole of caches.toml."""

    checked: str
    cache: tuple[CacheVariable, ...]


class RuntimeFailure(TableRow, frozen=True):
    """A message of the container runtime, what it means and what to do about it."""

    pattern: str
    what: str
    hint: Texts
    error: Literal["space", "usage"] | None = None

    @property
    def advice(self) -> str:
        """What to do, as one text."""
        return "\n".join(self.hint)


class BuildFailure(TableRow, frozen=True):
    """A message of the build of a source archive, and what to do about it."""

    pattern: str
    hint: str


class FailureTable(TableRow, frozen=True):
    """The whole of failures.toml."""

    runtime: tuple[RuntimeFailure, ...]
    build: tuple[BuildFailure, ...]


class LogRule(SourcedRow, frozen=True):
    """One known message in the log of a job."""

    name: str
    pattern: str
    cause: str
    do: Texts
    example: str
    follows: Texts = ()


class LogTable(TableRow, frozen=True):
    """The whole of explain.toml."""

    rule: tuple[LogRule, ...]


def table_loader(name: str, kind: type[T]) -> Callable[[], T]:
    """Return the function that reads one of the files as this record, once a process."""

    @functools.cache
    def load_table() -> T:
        path = str(resources.files("envbuild.data") / name)
        text = Path(path).read_text("utf-8")
        return convert(parse_toml(text, path), kind, text=text, where=path)

    return load_table


load_failures = table_loader("failures.toml", FailureTable)
load_caches = table_loader("caches.toml", CacheTable)
load_catalogue = table_loader("catalogue.toml", Catalogue)
load_cuda = table_loader("cuda.toml", CudaTable)
load_cuda_sources = table_loader("gpu.toml", CudaSourceTable)
load_entry_points = table_loader("entry_points.toml", EntryPointTable)
load_variables = table_loader("variables.toml", VariableTable)
load_import_lines = table_loader("import_lines.toml", ImportLineTable)
load_frameworks = table_loader("frameworks.toml", FrameworkTable)
load_log_rules = table_loader("explain.toml", LogTable)
load_releases = table_loader("releases.toml", ReleaseTable)
load_sonames = table_loader("sonames.toml", SonameTable)
