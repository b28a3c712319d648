"""What no metadata declares, from data: protected distributions, aliases, companions, extras that carry bounds."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.resolve.stubs import Stubs, distributions, parsed
from envbuild.toml import convert, parse_toml

T = TypeVar("T")
TEMPLATE = re.compile(r"\{([a-z0-9-]+)\.(minor2|minor|public|nodot)(?:\+(\d+))?\}")
UPPER = ("<", "<=", "==", "~=", "===")
LIBRARIES = {
    "cuda": re.compile(r"nvidia-cuda-runtime(-cu\d+)?"),
    "cudnn": re.compile(r"nvidia-cudnn-cu\d+"),
}
"""NVIDIA's wheels of the libraries that rules compare with."""


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a coupling stands that metadata does not declare: regular expressions for a file's path and its text.

    ``minimum`` and ``maximum`` find the bounds on the other one in a file of the package, or ``of`` the framework.
    ``says`` is in the next release that the row leaves out and not in the last that it admits, ``until`` the other way
    round.  ``through`` is a project whose metadata ties both.
    """

    file: str | None = None
    of: str = "package"
    minimum: str | None = None
    maximum: str | None = None
    says: str | None = None
    until: str | None = None
    through: str | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a rule: when the framework's version is so, the package is limited so."""

    when: str
    constrain: str
    also: str | None = None
    note: str | None = None
    sure: str | None = None
    check: str | None = None
    look: Look | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One coupling of a package (or of several that exclude each other) to a framework, with its source.

    It is void where the base holds ``unless``, or the user asks for it.  ``packages`` are wheels of the source-only
    ``built_from``, one of which a row chooses.  ``check`` and ``look`` say how a test compares
    its rows with what is published.
    """

    framework: str
    declared: str
    sure: str
    source: str
    check: str
    rows: tuple[Row, ...]
    look: Look | None = None
    package: str | None = None
    packages: tuple[str, ...] = ()
    unless: str | None = None
    built_from: str | None = None


class Companions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of data/companions.toml."""

    schema: int
    rule: tuple[Rule, ...]


class ExtraRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An extra to ask for when a framework is in the base, because it carries the bound of every release."""

    extra: str
    framework: str
    source: str


class Lossy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands for a distribution though it holds less, best first, and what is missing then."""

    by: tuple[str, ...]
    missing: str


class Protected(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"but": "except"}
):
    """Patterns of distributions that are never replaced.

    ``lesser`` frameworks are such only in a base that none of ``greater`` is in; ``plugins`` are companions that run
    on the GPU themselves.
    """

    frameworks: tuple[str, ...]
    greater: tuple[str, ...]
    lesser: tuple[str, ...]
    companions: tuple[str, ...]
    cuda: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


class Impostors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Canonical names that are something else on a public index, and how that was found."""

    names: tuple[str, ...]
    source: str


class Aliases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of data/aliases.toml."""

    schema: int
    source: str
    alias: dict[str, tuple[str, ...]]
    interchangeable: dict[str, tuple[str, ...]]
    lossy: dict[str, Lossy]
    exclusive: dict[str, tuple[str, ...]]
    extras: dict[str, ExtraRule]
    elsewhere: dict[str, str]
    impostors: Impostors
    protected: Protected


class Coupling(msgspec.Struct, frozen=True, kw_only=True):
    """One row that holds for a base: ``constraint`` is PEP 508; what is known from memory only is not ``binding``.

    ``turned`` is a constraint on the other one of the two, under which the row does not hold.
    """

    package: str
    constraint: str
    reason: str
    binding: bool = True
    also: str | None = None
    note: str | None = None
    turned: str | None = None


def data_path(name: str) -> Path:
    """Return the path of one of envbuild's own data files."""
    return Path(str(resources.files("envbuild") / "data" / name))


@functools.cache
def load_companions() -> Companions:
    """Read data/companions.toml."""
    return _load("companions.toml", Companions)


@functools.cache
def load_aliases() -> Aliases:
    """Read data/aliases.toml."""
    return _load("aliases.toml", Aliases)


def _load(name: str, kind: type[T]) -> T:
    path = data_path(name)
    text = path.read_text("utf-8")
    return convert(parse_toml(text, str(path)), kind, text=text, where=str(path))


def protected_names(facts: BaseFacts, extra: Collection[str] = ()) -> frozenset[str]:
    """Return the canonical names in the base that are never replaced.

    They are the frameworks, their companions and CUDA wheels by data, what a framework's own metadata pins from
    above (numpy<2, gast==0.2.2, triton==3.1.0), and ``extra``.
    """
    from packaging.utils import canonicalize_name

    patterns = load_aliases().protected
    dists = distributions(facts)
    frameworks = {name for name in dists if is_framework(name)}
    if facts.framework:
        frameworks |= {canonicalize_name(facts.framework.split()[0])} & set(dists)
    if not any(_matches(name, patterns.greater, patterns.but) for name in dists):
        frameworks |= {name for name in dists if _matches(name, patterns.lesser, patterns.but)}
    found = set(frameworks)
    found |= {
        name
        for name in dists
        if _matches(name, (*patterns.companions, *patterns.cuda), patterns.but)
    }
    for name in frameworks:
        for requirement in parsed(dists[name].requires):
            if requirement.marker is not None and "extra" in str(requirement.marker):
                continue
            if any(specifier.operator in UPPER for specifier in requirement.specifier):
                found.add(canonicalize_name(requirement.name))
    found |= {canonicalize_name(name) for name in extra}
    return frozenset(found & set(dists))


def is_framework(name: str) -> bool:
    """Whether a canonical name is one of the distributions that compute on the GPU."""
    patterns = load_aliases().protected
    return _matches(name, patterns.frameworks, patterns.but)


def computes(name: str) -> bool:
    """Whether a canonical name is a framework's, or of what it runs on a GPU with: CUDA libraries, triton, plugins."""
    patterns = load_aliases().protected
    return _matches(name, (*patterns.frameworks, *patterns.cuda, *patterns.plugins), patterns.but)


def _matches(name: str, patterns: Collection[str], but: Collection[str]) -> bool:
    return any(fnmatchcase(name, p) for p in patterns) and not any(
        fnmatchcase(name, p) for p in but
    )


def couplings(facts: BaseFacts, stubs: Stubs, asked: Collection[str] = ()) -> tuple[Coupling, ...]:
    """Return the rows whose framework the base holds at a version that they are about.

    A row about what the base holds and protects is left out, and one that the base itself breaks: the base is a fact.
    ``asked`` are the names of the direct requirements.
    """
    versions = framework_versions(facts, stubs)
    found = rows_for(versions, versions, asked)
    return tuple(
        coupling for coupling in found if not _settled_by_base(coupling, stubs)
    ) + _numpy_major(stubs)


def rows_for(
    frameworks: Collection[str], versions: Mapping[str, str], asked: Collection[str] = ()
) -> list[Coupling]:
    """Return the rows about these frameworks that hold at these public versions."""
    found: list[Coupling] = []
    for rule in load_companions().rule:
        if rule.framework not in frameworks or rule.unless in versions or rule.unless in asked:
            continue
        for row in rule.rows:
            if _holds(row.when, versions[rule.framework]):
                found += _couple(rule, row, versions)
    return found


def built_for(names: Collection[str], facts: BaseFacts, stubs: Stubs) -> dict[str, str]:
    """Return by source-only name the distribution that has wheels of it for the base's CUDA (cupy: cupy-cuda12x)."""
    versions = framework_versions(facts, stubs)
    return {
        rule.built_from: TEMPLATE.sub(lambda found: _fill(found, versions), row.constrain)
        for rule in load_companions().rule
        if rule.built_from is not None
        and rule.built_from in names
        and rule.built_from not in stubs.by_name
        if rule.framework in versions
        for row in rule.rows
        if _holds(row.when, versions[rule.framework])
    }


def framework_versions(facts: BaseFacts, stubs: Stubs) -> dict[str, str]:
    """Return the public versions that rules compare with: every stub, "cuda" and "cudnn" where the base tells them.

    A base that says nothing of itself has them where it holds NVIDIA's wheels.
    """
    versions = {name: stub.public for name, stub in stubs.by_name.items()}
    for library, said in (("cuda", facts.cuda), ("cudnn", facts.cudnn)):
        found = said or next(
            (versions[name] for name in versions if LIBRARIES[library].fullmatch(name)), ""
        )
        if re.fullmatch(r"\d+(\.\d+)*", found):
            versions[library] = found
    return versions


def _holds(when: str, version: str) -> bool:
    from packaging.requirements import Requirement

    return Requirement(when).specifier.contains(version, prereleases=True)


def _couple(rule: Rule, row: Row, versions: Mapping[str, str]) -> list[Coupling]:
    from packaging.requirements import Requirement

    text = TEMPLATE.sub(lambda found: _fill(found, versions), row.constrain)
    wanted = Requirement(text)
    reason = f"{rule.framework} {versions[rule.framework]} ({rule.source})"
    binding = (row.sure or rule.sure) != "memory"
    if rule.packages and not wanted.specifier:
        return [
            Coupling(
                package=name, constraint=f"{name}<0", reason=reason, binding=binding, note=row.note
            )
            for name in rule.packages
            if name != wanted.name
        ]
    return [
        Coupling(
            package=wanted.name,
            constraint=text,
            reason=reason,
            binding=binding,
            also=row.also,
            note=row.note,
            turned=_turned(row.when),
        )
    ]


def _turned(when: str) -> str | None:
    """Return the constraint under which a condition does not hold ("numpy>=2": "numpy<2"); a range's lower side."""
    from packaging.requirements import Requirement

    condition = Requirement(when)
    floors = [one.version for one in condition.specifier if one.operator == ">="]
    if floors:
        return f"{condition.name}<{floors[0]}"
    ceilings = [one.version for one in condition.specifier if one.operator == "<"]
    return f"{condition.name}>={ceilings[0]}" if ceilings else None


def _fill(found: re.Match[str], versions: Mapping[str, str]) -> str:
    version = versions[found[1]].partition("!")[2] or versions[found[1]]
    numbers = [*version.split("."), "0"]
    if found[2] == "public":
        return version
    if found[2] == "nodot":
        return "".join(numbers[:2])
    if found[2] == "minor2":
        return str(int(numbers[1]) + int(found[3] or 0))
    return ".".join(numbers[:2])


def _settled_by_base(coupling: Coupling, stubs: Stubs) -> bool:
    stub = stubs.by_name.get(coupling.package)
    return stub is not None and (stub.hard or not _holds(coupling.constraint, stub.public))


def _numpy_major(stubs: Stubs) -> tuple[Coupling, ...]:
    """Freeze numpy's major: what is compiled against it often declares no cap (pandas 1.5.3, scikit-learn 1.2.0)."""
    stub = stubs.by_name.get("numpy")
    if stub is None or stub.hard:
        return ()
    limit = int(stub.public.split(".")[0]) + 1
    reason = f"numpy {stub.real} of the base: what it holds was compiled against that major version"
    return (Coupling(package="numpy", constraint=f"numpy<{limit}", reason=reason),)


def extras_for(names: Collection[str], stubs: Stubs) -> dict[str, str]:
    """Return the extra to ask for by direct name, because the base holds the framework that it is about."""
    rules = load_aliases().extras
    return {
        name: rules[name].extra
        for name in sorted(names)
        if name in rules and rules[name].framework in stubs.by_name and name not in stubs.by_name
    }
