"""The tables about Python packages and their names, typed: one record and one loader a file."""

from __future__ import annotations

import datetime as dt
import functools
from importlib import resources

from packaging.requirements import Requirement

from envbuild.data.tables import SourcedRow, TableFile, TableRow, table_loader
from envbuild.names import Texts


class PublishedCheck(TableRow, frozen=True):
    """Where a coupling is published: regular expressions for a file's path and its text.

    ``minimum`` and ``maximum`` find the bounds on the other one in a file of the package, or ``of``
    the framework.  ``says`` is in the next release that the row leaves out and not in the last that
    it admits, ``until`` the other way round.  ``through`` is a project whose metadata ties both.
    """

    file: str | None = None
    of: str = "package"
    minimum: str | None = None
    maximum: str | None = None
    says: str | None = None
    until: str | None = None
    through: str | None = None


class CouplingRow(TableRow, frozen=True):
    """One row of a rule: when the framework's version is so, the package is limited so."""

    when: str
    constrain: str
    also: str | None = None
    note: str | None = None
    sure: str | None = None
    check: str | None = None
    look: PublishedCheck | None = None


class CouplingRule(SourcedRow, frozen=True):
    """One coupling of a package (or of several exclusive ones) to a framework.

    It is void where the base holds ``unless``, or the user asks for it.  ``packages`` are wheels of
    the source-only ``built_from``, one of which a row chooses.  Rows of a ``partner_only`` rule do
    not bound the package: releases within them need ``also`` beside them.  What a rule with
    ``program`` breaks is a program of the framework, which only who asks for it starts.  ``check``
    and ``look`` say how a test compares its rows with what is published.
    """

    framework: str
    declared: str
    sure: str
    check: str
    rows: tuple[CouplingRow, ...]
    look: PublishedCheck | None = None
    package: str | None = None
    packages: Texts = ()
    unless: str | None = None
    built_from: str | None = None
    partner_only: bool = False
    program: bool = False


class CompanionTable(TableFile, frozen=True):
    """The whole of companions.toml."""

    rule: tuple[CouplingRule, ...]


class ExtraRule(SourcedRow, frozen=True):
    """An extra to ask for beside a framework, as it carries the bound of every release."""

    extra: str
    framework: str


class LossyAlias(TableRow, frozen=True):
    """What stands for a distribution though it holds less, best first, and what is missing then."""

    by: Texts
    missing: str


class ProtectedNames(TableRow, frozen=True, rename={"but": "except"}):
    """Patterns of distributions that are never replaced, beside the frameworks of frameworks.toml.

    ``lesser`` frameworks are such only in a base without a greater one; ``plugins`` are companions
    that run on the GPU themselves.
    """

    lesser: Texts
    companions: Texts
    cuda: Texts
    plugins: Texts = ()
    but: Texts = ()


class Impostors(SourcedRow, frozen=True):
    """Canonical names that are something else on a public index, and how that was found."""

    names: Texts


class AliasTable(TableFile, frozen=True):
    """The whole of aliases.toml."""

    source: str
    alias: dict[str, Texts]
    interchangeable: dict[str, Texts]
    lossy: dict[str, LossyAlias]
    exclusive: dict[str, Texts]
    extras: dict[str, ExtraRule]
    same_extra: dict[str, dict[str, str]]
    elsewhere: dict[str, str]
    impostors: Impostors
    protected: ProtectedNames


class BackendNeeds(SourcedRow, frozen=True):
    """What a build backend asks for; ``of`` limits it to a source package, ``where`` to tools."""

    name: str
    asks: Texts
    of: str | None = None
    where: str | None = None


class BackendTable(TableFile, frozen=True):
    """The whole of backends.toml."""

    backend: tuple[BackendNeeds, ...]


class MajorRelease(SourcedRow, frozen=True):
    """A release of ``package`` that broke what was published before the day ``since``.

    ``what`` says it of such a package; ``compiled`` limits it to extensions for Python, and of
    source archives to those whose code says what ``includes`` finds.
    """

    package: str
    before: str
    since: dt.date
    what: str
    compiled: bool = False
    includes: str = ""

    @property
    def bound(self) -> str:
        """What a broken package needs: "numpy<2"."""
        return f"{self.package}<{self.before}"


class MajorTable(TableFile, frozen=True):
    """The whole of majors.toml."""

    major: tuple[MajorRelease, ...]


class PythonSeries(TableRow, frozen=True):
    """One Python series and the day its support ended or will end."""

    version: str
    ends: dt.date


class PythonTable(TableFile, frozen=True):
    """The whole of pythons.toml."""

    source: str
    python: tuple[PythonSeries, ...]


class SameNames(TableRow, frozen=True):
    """Modules called as their distribution, but for some."""

    names: Texts
    but: dict[str, str]


class WrongName(TableRow, frozen=True):
    """A name that is not what its user means: ``use`` instead ("" for nothing), and why."""

    use: str
    why: str


class SystemNeeds(TableRow, frozen=True):
    """Debian packages to run with, and to build with.

    ``compiles`` is what it compiles with nvcc when it runs; ``source`` says where that stands.
    """

    packages: Texts = ()
    build: Texts = ()
    compiles: str | None = None
    source: str | None = None


class OldUse(SourcedRow, frozen=True):
    """What code says that runs with releases of ``package`` inside ``bounds`` alone.

    Those have wheels for Pythons inside ``python``, "" for all.
    """

    package: str
    bounds: str
    python: str
    says: str
    what: str

    @property
    def bound(self) -> str:
        """What such code needs: "numpy<1.24"."""
        return f"{self.package}{self.bounds}"


class NameList(TableRow, frozen=True):
    """Distributions by their canonical names."""

    names: Texts


class NameTable(TableFile, frozen=True):
    """The whole of names.toml; ``compiled`` are built for the GPU from source.

    ``asked`` are modules by what stands in code that needs them and does not import them, and
    ``written`` kinds of code by what stands in it.
    """

    source: str
    module: dict[str, str]
    asked: dict[str, str]
    written: dict[str, str]
    old: tuple[OldUse, ...]
    same: SameNames
    own: NameList
    wrong: dict[str, WrongName]
    system: dict[str, SystemNeeds]
    compiled: NameList
    transitive: NameList
    conda: dict[str, str]
    conda_same: NameList
    implies: dict[str, Texts]
    debian: dict[str, str]


class CondaTable(TableFile, frozen=True):
    """The whole of conda.toml, which says what its lists are."""

    frameworks: frozenset[str]
    through: dict[str, str]
    depends: frozenset[str]
    builds: str
    flags: frozenset[str]
    libraries: frozenset[str]
    elsewhere: frozenset[str]
    asked: frozenset[str]
    brought: Texts
    only_in: dict[str, dict[str, str]]


class CondaNameTable(TableFile, frozen=True):
    """The whole of conda_names.toml: distributions by conda's name."""

    distributions: dict[str, Texts]


load_conda = table_loader("conda.toml", CondaTable)
load_conda_names = table_loader("conda_names.toml", CondaNameTable)


class ModuleTable(TableFile, frozen=True):
    """The whole of imported_modules.toml, which says what it lists."""

    names: frozenset[str]


@functools.cache
def load_conda_same() -> frozenset[str]:
    """Read conda packages that are the distribution of the same name (conda_same.txt)."""
    return frozenset(_lines_of("conda_same.txt"))


@functools.cache
def load_modules() -> dict[str, str]:
    """Read modules by the distribution that is meant, found by counting (modules.txt)."""
    rows = (line.partition(" ") for line in _lines_of("modules.txt"))
    return {module: distribution for module, _, distribution in rows}


def _lines_of(name: str) -> list[str]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


class RemovedRow(SourcedRow, frozen=True):
    """Methods that a class had once, and functions that make its objects (removed.toml)."""

    holder: str
    names: Texts = ()
    made: Texts = ()


class RemovedTable(TableFile, frozen=True):
    """The whole of removed.toml."""

    removed: tuple[RemovedRow, ...]


class UndeclaredImport(TableRow, frozen=True):
    """Releases of a ``package`` (PEP 508) that import what their metadata does not require.

    ``imports`` is the distribution; ``ask`` is what to ask for, with {minor} of the package itself.
    ``file`` is a pattern of the files in which the import stands.  ``variable`` is one of the
    environment that names another framework.  What is ``only_told`` is never added.
    """

    package: str
    imports: str
    file: str
    asks: str | None = None
    module: str | None = None
    variable: str | None = None
    only_told: bool = False

    @property
    def name(self) -> str:
        """The canonical name of the package."""
        return Requirement(self.package).name

    @property
    def ask(self) -> str:
        """What to ask for."""
        return self.asks or self.imports


class UndeclaredTable(TableFile, frozen=True):
    """The whole of undeclared.toml."""

    source: str
    undeclared: tuple[UndeclaredImport, ...]


load_aliases = table_loader("aliases.toml", AliasTable)
load_backends = table_loader("backends.toml", BackendTable)
load_companions = table_loader("companions.toml", CompanionTable)
load_imported_modules = table_loader("imported_modules.toml", ModuleTable)
load_majors = table_loader("majors.toml", MajorTable)
load_names = table_loader("names.toml", NameTable)
load_pythons = table_loader("pythons.toml", PythonTable)
load_removed = table_loader("removed.toml", RemovedTable)
load_undeclared = table_loader("undeclared.toml", UndeclaredTable)
