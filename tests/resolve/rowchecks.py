"""Compare one row of the couplings with what is published, in the way that the row names (data/companions.toml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.data.package_tables import CouplingRow, CouplingRule, PublishedCheck
from envbuild.resolve.couplings import TEMPLATE
from envbuild.resolve.stubs import parse_requirements

LOWER, UPPER = (">", ">=", "==", "~="), ("<", "<=", "==", "~=")
CUDAS = tuple(
    map(
        Version,
        ("10.0", "10.1", "10.2", "11.0", "11.1", "11.2", "11.8", "12.0", "12.4", "12.9", "13.0"),
    )
)
CUDNNS = tuple(map(Version, ("7.6", "8.0", "8.5", "8.9", "9.0", "9.1", "9.3", "9.10", "9.24")))
LIBRARIES = {"cuda": CUDAS, "cudnn": CUDNNS}
"""Frameworks that are no distributions, and versions of them."""
FIRST_BETA = "2024-03-11"
"""The day of numpy 2.0.0b1 on the index: nothing was compiled against numpy 2 before it."""
TRACED = re.compile(r"#\d+|https?://|[a-z]\.(?:ai|com|io|org)\b")


class Index(Protocol):
    """What a check asks of an index; ``Published`` is the real one."""

    def releases(self, name: str) -> list[Version]:
        """Return the final releases in order."""

    def requires(self, name: str, version: Version) -> tuple[str, ...]:
        """Return the Requires-Dist of a release."""

    def text(self, name: str, version: Version, member: str) -> str | None:
        """Return what files of a release hold whose path matches."""

    def knows_numpy_2(self, name: str, version: Version, member: str | None = None) -> bool | None:
        """Whether a release was compiled against numpy 2, None where that cannot be seen."""

    def uploaded(self, name: str, version: Version) -> str:
        """Return the ISO date of a release."""


def faults(rule: CouplingRule, row: CouplingRow, index: Index) -> list[str]:
    """Return what published files say against a row; a row that they say nothing about is a fault as well."""
    check, look = row.check or rule.check, row.look or rule.look
    frameworks = _frameworks(rule, row, index)
    if not frameworks:
        return [f"{row.when}: no such release"]
    if not Requirement(TEMPLATE.sub("1", row.constrain)).specifier:
        return _named(rule, row, frameworks, index)
    found = [
        f"{row.also} is not published" for _ in [0] if row.also and not index.releases(row.also)
    ]
    seen = False
    for versions in _groups(row, frameworks, index):
        edges = Edges(_filled(row.constrain, versions[-1]), index, follows="{" in row.constrain)
        said, wrong = CHECKS[check](rule, look, edges, versions, index)
        seen, found = (
            seen or said,
            found + [f"{row.when} -> {edges.wanted}: {text}" for text in wrong],
        )
    if check == "listed" and not TRACED.search(rule.source):
        found.append(f"{row.when}: its source names no page")
    return (
        found
        if seen or found
        else [f"{row.when} -> {row.constrain}: nothing that is published says so"]
    )


@dataclass(frozen=True)
class Pair:
    """A package and the framework of a rule, and where they are looked up."""

    rule: CouplingRule
    look: PublishedCheck | None
    name: str
    index: Index


class Edges:
    """The releases on both sides of a row's bounds: the outermost that it admits, and the next that it does not."""

    def __init__(self, wanted: Requirement, index: Index, *, follows: bool = False) -> None:
        self.wanted = wanted
        self.follows = follows  # another version for each of the framework: newer ones are for newer frameworks
        self.name = wanted.name
        releases = index.releases(wanted.name)
        inside = [v for v in releases if wanted.specifier.contains(v)]
        operators = {one.operator for one in wanted.specifier}
        low, high = bool(operators & set(LOWER)), bool(operators & set(UPPER))
        self.empty = not inside
        self.newest = releases[-1] if releases else None
        self.first = inside[0] if inside and low else None
        self.last = inside[-1] if inside and high else None
        self.below = max((v for v in releases if inside and low and v < inside[0]), default=None)
        self.above = min((v for v in releases if inside and high and v > inside[-1]), default=None)

    @property
    def inner(self) -> tuple[Version, ...]:
        """Return the outermost releases inside where the row has bounds, and the newest where it has none above."""
        newest = None if self.last is not None or self.follows else self.newest
        return tuple(dict.fromkeys(v for v in (self.first, self.last, newest) if v is not None))

    @property
    def none_wanted(self) -> bool:
        """Whether the row rules every release out."""
        return str(self.wanted.specifier) == "<0"

    def across(self) -> tuple[Version | None, Version | None]:
        """Return the nearest release inside and the one outside that a text is compared in: above, else below."""
        return (self.last, self.above) if self.last is not None else (self.first, self.below)


def _metadata(
    rule: CouplingRule,
    look: PublishedCheck | None,
    edges: Edges,
    frameworks: list[Version],
    index: Index,
) -> tuple[bool, list[str]]:
    """Bounds in metadata, or in code: what is inside fits one of the framework's releases, what is outside not all."""
    pair = Pair(rule, look, edges.name, index)
    if edges.none_wanted:
        fits = [_fits(pair, edges.newest, one) for one in _sample(frameworks)]
        return True, [] if fits and set(fits) == {False} else [
            f"{edges.name} {edges.newest} is not ruled out"
        ]
    if edges.empty:
        return True, ["no release is admitted"]
    said, wrong, sample = False, [], _sample(frameworks)
    inner = {inside: [_fits(pair, inside, one) for one in sample] for inside in edges.inner}
    wrong += [
        f"{edges.name} {inside} fits none of these"
        for inside, fits in inner.items()
        if set(fits) == {False}
    ]
    if edges.first is not None and edges.last is not None:
        ends = {
            0,
            len(sample) - 1,
        }  # patches in the middle have releases of their own in the middle
        alone = [sample[n] for n in sorted(ends) if {fits[n] for fits in inner.values()} == {False}]
        wrong += [
            f"neither {edges.first} nor {edges.last} fits {rule.framework} {one}" for one in alone
        ]
    for outside, side in ((edges.below, (UPPER, LOWER)), (edges.above, (LOWER, UPPER))):
        if outside is not None:
            fits = [_fits(pair, outside, one, side) for one in sample]
            said = said or False in fits
            if True in fits and False not in fits and None not in fits:
                wrong.append(f"{edges.name} {outside} fits all of these, and is left out")
    return said, wrong


def _code(
    rule: CouplingRule,
    look: PublishedCheck | None,
    edges: Edges,
    frameworks: list[Version],
    index: Index,
) -> tuple[bool, list[str]]:
    """A bound or a text in a file: the release beyond the row's edge has what the last one inside has not."""
    assert look is not None, rule
    if look.says is None and look.until is None:
        return _metadata(rule, look, edges, frameworks, index)
    if edges.none_wanted:
        text = index.text(edges.name, edges.newest, look.file or "") if edges.newest else None
        wrong = (
            []
            if look.says and _has(text, look.says)
            else [f"{edges.newest} does not say {look.says}"]
        )
        return True, wrong
    inside, outside = edges.across()
    if inside is None or outside is None:
        return False, []
    within, beyond = (index.text(edges.name, v, look.file or "") for v in (inside, outside))
    wrong = []
    for pattern, wanted in ((look.says, (False, True)), (look.until, (True, False))):
        if pattern is not None and (_has(within, pattern), _has(beyond, pattern)) != wanted:
            wrong.append(f"{pattern!r} is not what tells {edges.name} {inside} from {outside}")
    return True, wrong


def _abi(
    _rule: CouplingRule,
    look: PublishedCheck | None,
    edges: Edges,
    _frameworks: list[Version],
    index: Index,
) -> tuple[bool, list[str]]:
    """The extensions of the first release inside know numpy 2, those of the one before do not."""
    if edges.first is None or edges.below is None:
        return False, []
    wrong = [
        f"{edges.name} {version}: knows numpy 2: {knows}"
        for version, expected in ((edges.first, True), (edges.below, False))
        if (knows := index.knows_numpy_2(edges.name, version, look.file if look else None))
        is not expected
    ]
    return True, wrong


def _dates(
    _rule: CouplingRule,
    _look: PublishedCheck | None,
    edges: Edges,
    _frameworks: list[Version],
    index: Index,
) -> tuple[bool, list[str]]:
    """The first release inside is from after the first beta of numpy 2: for extensions too large to be looked into."""
    if edges.first is None:
        return False, []
    day = index.uploaded(edges.name, edges.first)
    return True, [] if day >= FIRST_BETA else [
        f"{edges.name} {edges.first} is of {day}, before numpy 2"
    ]


def _listed(
    _rule: CouplingRule,
    _look: PublishedCheck | None,
    edges: Edges,
    _frameworks: list[Version],
    _index: Index,
) -> tuple[bool, list[str]]:
    """Releases on both sides are there; what they do is told by a page that the source names."""
    outside = edges.below is not None or edges.above is not None
    if edges.empty or not outside:
        return True, [f"{'no release is admitted' if edges.empty else 'no release is left out'}"]
    return True, []


CHECKS = {"metadata": _metadata, "code": _code, "abi": _abi, "dates": _dates, "listed": _listed}


def _named(
    rule: CouplingRule, row: CouplingRow, frameworks: list[Version], index: Index
) -> list[str]:
    """A distribution for each version of CUDA: it is published, and its file says the version that its name says."""
    found = [f"{name} is not published" for name in rule.packages if not index.releases(name)]
    for version in frameworks:
        name = _filled(row.constrain, version).name
        digits = "".join(map(str, version.release[:2]))
        tag = re.sub(r"\D", "", name.rpartition("cuda")[2])
        if name not in rule.packages or not digits.startswith(tag):
            found.append(f"{name} is not for CUDA {version}")
    look = row.look or rule.look
    name = _filled(row.constrain, frameworks[-1]).name
    if look and look.says and (newest := index.releases(name)[-1:]):
        tag = name.rpartition("cuda")[2]
        wanted = look.says.replace("TAG", tag[:2] + "." + tag[2:])
        if not _has(index.text(name, newest[0], look.file or ""), wanted):
            found.append(f"{name} {newest[0]} does not say {wanted}")
    return found


def _fits(
    pair: Pair,
    version: Version | None,
    framework: Version,
    side: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> bool | None:
    """Whether a release fits one of the framework, by what either says of the other; None where neither says any.

    ``side`` are the operators that a bound needs to count as saying that a release outside of the row fits: what
    only says "not older than" knows nothing of newer ones.
    """
    rule, look, name, index = pair.rule, pair.look, pair.name, pair.index
    if version is None:
        return None
    said: list[bool] = []
    own = _bounds(name, version, rule.framework, index) if rule.framework not in LIBRARIES else []
    through = look.through if look and look.through else rule.framework
    others = (
        _bounds(through, framework, name, index) if framework in index.releases(through) else []
    )
    if look and look.file and (look.minimum or look.maximum):
        if look.of == "framework":
            others = _in_code(rule.framework, framework, look, index) or others
        else:
            own = _in_code(name, version, look, index) or own
    for bounds, on, operators in ((own, framework, side[0]), (others, version, side[1])):
        fits = any(bound.contains(on, prereleases=True) for bound in bounds)
        if bounds and (
            not fits or not operators or any(one.operator in operators for b in bounds for one in b)
        ):
            said.append(fits)
    return all(said) if said else None


def _bounds(name: str, version: Version, on: str, index: Index) -> list[SpecifierSet]:
    """Return the bounds that a release's metadata puts on another project; those of extras where there are no others.

    Extras cannot be used together (jax has one for its own CI): any of them will do.
    """
    found = [
        r
        for r in parse_requirements(index.requires(name, version))
        if canonicalize_name(r.name) == on and r.specifier
    ]
    plain = [r.specifier for r in found if r.marker is None or "extra" not in str(r.marker)]
    return plain or [r.specifier for r in found]


def _in_code(name: str, version: Version, look: PublishedCheck, index: Index) -> list[SpecifierSet]:
    text = index.text(name, version, look.file or "") or ""
    low, high = (
        re.search(pattern, text) if pattern else None for pattern in (look.minimum, look.maximum)
    )
    bounds = ",".join(
        f"{operator}{found[1]}" for operator, found in ((">=", low), ("<=", high)) if found
    )
    return [SpecifierSet(bounds)] if bounds else []


def _frameworks(rule: CouplingRule, row: CouplingRow, index: Index) -> list[Version]:
    """Return the releases of the framework that a row is about, in order."""
    bounds = Requirement(row.when).specifier
    known = LIBRARIES.get(rule.framework) or index.releases(rule.framework)
    return [version for version in known if bounds.contains(version)]


def _groups(row: CouplingRow, frameworks: list[Version], index: Index) -> list[list[Version]]:
    """Return the framework's releases of which a row says the same: all, or of a template the first, middle and last."""
    groups: dict[str, list[Version]] = {}
    for version in frameworks:
        groups.setdefault(str(_filled(row.constrain, version)), []).append(version)
    if len(groups) == 1:
        return list(groups.values())
    real = [
        group for wanted, group in groups.items() if not Edges(Requirement(wanted), index).empty
    ]
    return [real[0], real[len(real) // 2], real[-1]] if real else list(groups.values())[-1:]


def _sample(versions: list[Version]) -> list[Version]:
    return sorted({versions[0], versions[len(versions) // 2], versions[-1]})


def _filled(constrain: str, release: Version) -> Requirement:
    numbers = [*map(str, release.release), "0"]

    def fill(found: re.Match[str]) -> str:
        if found[2] == "minor2":
            return str(int(numbers[1]) + int(found[3] or 0))
        if found[2] == "nodot":
            return "".join(numbers[:2])
        return ".".join(numbers[:2]) if found[2] == "minor" else str(release)

    return Requirement(TEMPLATE.sub(fill, constrain))


def _has(text: str | None, pattern: str) -> bool:
    """Whether a file is there and holds a pattern."""
    return text is not None and re.search(pattern, text) is not None
