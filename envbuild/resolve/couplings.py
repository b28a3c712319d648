"""What no metadata declares, from data: protected names, aliases, companions, extras."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.data.lookup import is_framework
from envbuild.data.package_tables import CouplingRow, CouplingRule, load_aliases, load_companions
from envbuild.resolve.stubs import Stubs, base_distributions, parse_requirements

TEMPLATE = re.compile(r"\{([a-z0-9-]+)\.(minor2|minor|public|nodot)(?:\+(\d+))?\}")
GOES_WITH = " goes with "
NO_RELEASE = "<0"
NARROW = ("==", "~=", "===")
"""Pins that leave no other release, or patches alone."""
LIBRARIES = {
    "cuda": re.compile(r"nvidia-cuda-runtime(-cu\d+)?"),
    "cudnn": re.compile(r"nvidia-cudnn-cu\d+"),
}
"""NVIDIA's wheels of the libraries that rules compare with."""


class Coupling(msgspec.Struct, frozen=True, kw_only=True):
    """One row that holds for a base: a PEP 508 ``constraint``; memory alone is not ``binding``.

    ``turned`` is a constraint on the other one of the two, under which the row does not hold.
    One that is ``partner_only`` bounds nothing: releases within it need ``also`` beside them.
    ``program_of`` is the framework of which only a program fails.
    """

    package: str
    constraint: str
    reason: str
    binding: bool = True
    also: str | None = None
    note: str | None = None
    turned: str | None = None
    partner_only: bool = False
    program_of: str | None = None

    def admits(self, version: str) -> bool:
        """Whether a version of the package is within the constraint."""
        return requirement_admits(self.constraint, version)

    def lacks_partner(self, versions: Mapping[str, str]) -> bool:
        """Whether what it asks for beside its package is missing."""
        if self.also is None or self.also in versions or self.package not in versions:
            return False
        return not self.partner_only or self.admits(versions[self.package])

    @property
    def sentence(self) -> str:
        """What it asks for, and why: "numpy<2 goes with torch 2.2.0 (the source of the row)"."""
        return f"{self.constraint}{GOES_WITH}{self.reason}"


def without_source(sentence: str) -> str:
    """Return the sentence of a coupling without its source; any other text as it is."""
    return sentence.partition(" (")[0] if GOES_WITH in sentence else sentence


def protected_names(facts: BaseFacts, extra: Collection[str] = ()) -> frozenset[str]:
    """Return the canonical names in the base that are never replaced.

    They are the frameworks, their companions and CUDA wheels by data, what a framework's own
    metadata pins narrowly (gast==0.2.2, numpy~=1.19.2, triton==3.1.0), and ``extra``.  What it
    bounds widely may move within the bounds, which every resolution keeps.
    """
    patterns = load_aliases().protected
    dists = base_distributions(facts)
    frameworks = {name for name in dists if is_framework(name)}
    if facts.framework:
        frameworks |= {canonicalize_name(facts.framework.split()[0])} & set(dists)
    if not any(is_framework(name, greater=True) for name in dists):
        frameworks |= {name for name in dists if _matches_any(name, patterns.lesser, patterns.but)}
    found = set(frameworks)
    found |= {
        name
        for name in dists
        if _matches_any(name, (*patterns.companions, *patterns.cuda), patterns.but)
    }
    for name in frameworks:
        for requirement in parse_requirements(dists[name].requires):
            # the bounds of an extra count for who asks for the extra
            if requirement.marker is not None and "extra" in str(requirement.marker):
                continue
            if any(specifier.operator in NARROW for specifier in requirement.specifier):
                found.add(canonicalize_name(requirement.name))
    found |= {canonicalize_name(name) for name in extra}
    return frozenset(found & set(dists))


def runs_on_gpu(name: str) -> bool:
    """Whether a name is a framework's, or of what it runs on a GPU with (CUDA, triton, plugins)."""
    patterns = load_aliases().protected
    if is_framework(name):
        return True
    return _matches_any(name, (*patterns.cuda, *patterns.plugins), patterns.but)


def _matches_any(name: str, patterns: Collection[str], but: Collection[str]) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in but):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def couplings_for(
    facts: BaseFacts, stubs: Stubs, asked: Collection[str] = ()
) -> tuple[Coupling, ...]:
    """Return the rows whose framework the base holds at a version that they are about.

    A row about what the base holds and protects is left out, and one that the base itself breaks:
    the base is a fact. ``asked`` are the names of the direct requirements.
    """
    versions = framework_versions(facts, stubs)
    found = rows_for(versions, versions, asked)
    open_ones = (
        coupling
        for coupling in found
        if not coupling.partner_only and not _settled_by_base(coupling, stubs)
    )
    return (*open_ones, *_numpy_major(stubs))


def rows_for(
    frameworks: Collection[str], versions: Mapping[str, str], asked: Collection[str] = ()
) -> list[Coupling]:
    """Return the rows about these frameworks that hold at these public versions."""
    found: list[Coupling] = []
    for rule in load_companions().rule:
        if rule.framework not in frameworks or rule.unless in versions or rule.unless in asked:
            continue
        for row in rule.rows:
            if requirement_admits(row.when, versions[rule.framework]):
                found += _coupling_rows(rule, row, versions)
    return found


def built_for(names: Collection[str], facts: BaseFacts, stubs: Stubs) -> dict[str, str]:
    """Return by source-only name what has wheels for the base's CUDA (cupy-cuda12x)."""
    versions = framework_versions(facts, stubs)
    found: dict[str, str] = {}
    for rule in load_companions().rule:
        source = rule.built_from
        if source is None or source not in names or source in stubs.by_name:
            continue
        if rule.framework not in versions:
            continue
        for row in rule.rows:
            if requirement_admits(row.when, versions[rule.framework]):
                found[source] = _fill_template(row.constrain, versions)
    return found


def framework_versions(facts: BaseFacts, stubs: Stubs) -> dict[str, str]:
    """Return the public versions that rules compare with: every stub, "cuda" and "cudnn".

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


def requirement_admits(requirement: str, version: str) -> bool:
    """Whether a requirement admits a version, previews too."""
    return Requirement(requirement).specifier.contains(version, prereleases=True)


def _coupling_rows(
    rule: CouplingRule, row: CouplingRow, versions: Mapping[str, str]
) -> list[Coupling]:
    text = _fill_template(row.constrain, versions)
    wanted = Requirement(text)
    reason = f"{rule.framework} {versions[rule.framework]} ({rule.source})"
    binding = (row.sure or rule.sure) != "memory"
    # of wheels for several CUDA versions one is chosen:
    # the others get a bound that no release meets
    if rule.packages and not wanted.specifier:
        return [
            Coupling(
                package=name,
                constraint=f"{name}{NO_RELEASE}",
                reason=reason,
                binding=binding,
                note=row.note,
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
            turned=_turned_bound(row.when),
            partner_only=rule.partner_only,
            program_of=rule.framework if rule.program else None,
        )
    ]


def _turned_bound(when: str) -> str | None:
    """Return the constraint under which a condition does not hold ("numpy>=2": "numpy<2")."""
    condition = Requirement(when)
    # a row about "numpy>=2" does not hold below its floor: that is where numpy may give way to
    floors = [one.version for one in condition.specifier if one.operator == ">="]
    if floors:
        return f"{condition.name}<{floors[0]}"
    ceilings = [one.version for one in condition.specifier if one.operator == "<"]
    return f"{condition.name}>={ceilings[0]}" if ceilings else None


def _fill_template(constraint: str, versions: Mapping[str, str]) -> str:
    """Return a row's constraint with the base's versions in place of ``{torch.minor2}``."""
    return TEMPLATE.sub(lambda field: _fill_field(field, versions), constraint)


def _fill_field(found: re.Match[str], versions: Mapping[str, str]) -> str:
    # templates leave out the epoch ("1!2.0", PEP 440)
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
    return stub is not None and (stub.hard or not coupling.admits(stub.public))


def _numpy_major(stubs: Stubs) -> tuple[Coupling, ...]:
    """Freeze numpy's major version: what is compiled against it often declares no cap."""
    stub = stubs.by_name.get("numpy")
    if stub is None or stub.hard:
        return ()
    limit = int(stub.public.split(".")[0]) + 1
    reason = f"numpy {stub.real} of the base: what it holds was compiled against that major version"
    return (Coupling(package="numpy", constraint=f"numpy<{limit}", reason=reason),)


def extras_for(names: Collection[str], stubs: Stubs) -> dict[str, str]:
    """Return the extra to ask for by direct name where the base holds its framework."""
    rules = load_aliases().extras
    return {
        name: rules[name].extra
        for name in sorted(names)
        if name in rules and rules[name].framework in stubs.by_name and name not in stubs.by_name
    }
