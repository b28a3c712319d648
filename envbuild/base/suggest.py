"""Choose a base by framework, Python, CUDA, GPU, driver and glibc, with reasons."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envbuild.base.catalogue import CatalogueEntry, catalogue_entries
from envbuild.base.gpu_names import capability_of
from envbuild.data.lookup import (
    compiles_for,
    framework_called,
    numbers,
    oldest_driver,
    released,
    runs_on,
)
from envbuild.data.tables import load_cuda, load_frameworks
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.store.units import join_numbers

SUITES = ("debian:bookworm", "debian:trixie", "debian:bullseye")
"""Bootstraps in the order in which they are proposed where several fit."""
OLDEST_PYTHON = (3, 6)
"""Probes and the installer need it."""
OLD_CUDA = (11,)
"""Torch before 1.13 from the index is for CUDA 10.2, without code for an A100."""
PATCHES = (0, 5, 9, 18)
"""Numbers that stand for all patches of a Python of which only the minor version is known."""
MOST_PATCHES = 60
"""Releases that a line may have: jax 0.4 had 38."""
USUAL_CUDA = 12
"""Newer CUDA needs a newer driver than many clusters have: not proposed unasked."""


class BaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a base must do; None: anything.

    ``framework`` is a name with bounds ("torch>=2.1,<2.5"); ``python`` a version or bounds ("3.9",
    ">=3.8,<3.11"); ``cuda`` a version or a part of one ("11", "12.1"); ``gpu`` a card ("A100") or a
    capability ("8.0"); ``driver`` the version of the oldest driver that it must run on; ``glibc``
    the oldest C library that will do; ``node_glibc`` the C library of the node, which refuses
    nothing: an image brings its own.  ``pythons`` are the Python series of which one must be held
    ("3.9"); ``until`` is the day after which the framework's release line must not have come out.
    """

    framework: str | None = None
    python: str | None = None
    cuda: str | None = None
    gpu: str | None = None
    driver: str | None = None
    glibc: str | None = None
    node_glibc: str | None = None
    pythons: Texts = ()
    until: dt.date | None = None


class BaseMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A base that fits; ``framework`` is for a bootstrap's recipe, ``driver`` the oldest."""

    entry: CatalogueEntry
    framework: str | None
    driver: str | None
    reasons: Texts
    cautions: Texts


class RejectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many bases were left out for which reason, the commonest first."""

    counts: tuple[tuple[str, int], ...]


def suggest_bases(wish: BaseQuery) -> tuple[tuple[BaseMatch, ...], RejectionCounts]:
    """Return the bases that fit, best first, and why the others do not.

    Best is: no known defect, the version that was asked for, made on this machine, the newest
    framework. Raises UsageError for a framework, GPU or version that is none.
    """
    asked = _Matcher(wish)
    fitting: list[tuple[tuple[object, ...], BaseMatch]] = []
    refused: Counter[str] = Counter()
    for entry in catalogue_entries():
        why = asked.refuses(entry)
        if why is not None:
            refused[why] += 1
            continue
        choice = asked.choice(entry)
        fitting.append((asked.rank(choice), choice))
    fitting.sort(key=lambda pair: pair[0])
    return tuple(choice for _, choice in fitting), RejectionCounts(
        counts=tuple(refused.most_common())
    )


def base_driver(entry: CatalogueEntry, capability: int | None = None) -> str | None:
    """Return the oldest driver that a base runs on: its maker's word, else what its CUDA demands.

    On a GPU for which it has portable code only, that is the driver of its own toolkit: only that
    can compile it.
    """
    if entry.driver:
        return entry.driver
    if not entry.cuda:
        return None
    if capability is None or entry.build is None or _has_machine_code(entry, capability):
        return oldest_driver(entry.cuda)
    return load_cuda().drivers.get(join_numbers(numbers(entry.cuda)[:2]))


def framework_name(text: str, *, greater: bool = False) -> str | None:
    """Return the framework (or greater one) of the catalogue that a requirement asks for."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", text)
    return framework_called(canonicalize_name(match[1]), greater=greater) if match else None


class _Matcher:
    """A wish, read once."""

    def __init__(self, wish: BaseQuery) -> None:
        self.wish = wish
        self.name, self.bounds = _framework_bounds(wish.framework)
        self.python = _parse_python(wish.python)
        self.capability = capability_of(wish.gpu) if wish.gpu else None
        for option, value in (
            ("--driver", wish.driver),
            ("--cuda", wish.cuda),
            ("--glibc", wish.glibc),
        ):
            if value is not None and not re.fullmatch(r"\d+(\.\d+)*", value):
                raise UsageError(f"{option} {value}: write a version such as 12.1")

    def refuses(self, entry: CatalogueEntry) -> str | None:
        """Return why a base does not fit, None where it does."""
        if entry.python is None or numbers(entry.python) < OLDEST_PYTHON:
            return "has no Python 3.6 or newer"
        if entry.framework is None or (self.name and entry.framework != self.name):
            return "holds another framework" if entry.framework else "holds no framework"
        near = self._exact(entry) or (not entry.is_bootstrap and self._same_line(entry))
        if self.bounds is not None and not near:
            return f"holds another version than {self.wish.framework}"
        if self.python is not None and not holds_python(self.python, entry.python):
            return f"its Python is not {self.wish.python}"
        return (
            self._refused_by_age(entry)
            or self._refused_by_cuda(entry)
            or self._refused_by_glibc(entry)
        )

    def _refused_by_age(self, entry: CatalogueEntry) -> str | None:
        series = join_numbers(numbers(entry.python or "")[:2])
        if self.wish.pythons and series not in self.wish.pythons:
            return f"its Python is none of {', '.join(self.wish.pythons)}"
        until, day = self.wish.until, released(entry.framework, entry.version)
        return f"came out after {until}" if until and day and day > until else None

    def _refused_by_glibc(self, entry: CatalogueEntry) -> str | None:
        wanted = self.wish.glibc
        if wanted and entry.glibc and numbers(entry.glibc) < numbers(wanted):
            return f"its glibc is older than {wanted}"
        return None

    def _refused_by_cuda(self, entry: CatalogueEntry) -> str | None:
        wish = self.wish
        asked, has = numbers(wish.cuda or ""), numbers(entry.cuda or "")
        if has[: len(asked)] != asked:
            return f"its CUDA is not {wish.cuda}"
        driver = base_driver(entry, self.capability)
        if wish.driver and (driver is None or numbers(driver) > numbers(wish.driver)):
            return f"needs a newer driver than {wish.driver}"
        if self.capability is not None and not has_code_for(entry, self.capability):
            return f"has no code for {wish.gpu}"
        return None

    def _exact(self, entry: CatalogueEntry) -> bool:
        if self.bounds is None:
            return True
        version = entry.version or "0"
        # a bootstrap's line may hold any release of it
        releases = (
            [f"{version}.{patch}" for patch in range(MOST_PATCHES)]
            if entry.is_bootstrap
            else [version]
        )
        return any(self.bounds.contains(release, prereleases=True) for release in releases)

    def _same_line(self, entry: CatalogueEntry) -> bool:
        exact = self._exact_version()
        if exact is None:
            return False
        held = numbers(entry.version or "0")
        return held[:2] == numbers(exact)[:2]

    def _exact_version(self) -> str | None:
        pins = [one.version for one in self.bounds or () if one.operator in ("==", "===")]
        return pins[0] if pins and "*" not in pins[0] else None

    def choice(self, entry: CatalogueEntry) -> BaseMatch:
        """Say why a base that fits does, and what to beware of."""
        driver = base_driver(entry, self.capability)
        cautions = [f"known defect: {entry.defect}"] if entry.defect else []
        if not self._exact(entry):
            cautions.append(f"holds {entry.version}, not {self.wish.framework}")
        if entry.note:
            cautions.append(entry.note)
        if self._older_than_the_node(entry):
            cautions.append(
                f"glibc {entry.glibc} is older than the node's {self.wish.node_glibc}: CUDA runs, but programs of the "
                "node that are bound in do not start"
            )
        if entry.status != "verified":
            cautions.append(
                f"{entry.status}, not opened: look with envbuild base inspect {entry.reference}"
            )
        return BaseMatch(
            entry=entry,
            framework=self._requirement(entry),
            driver=driver,
            reasons=tuple(self._reasons(entry, driver)),
            cautions=tuple(cautions),
        )

    def _older_than_the_node(self, entry: CatalogueEntry) -> bool:
        own, node = entry.glibc, self.wish.node_glibc
        if not own or not node:
            return False
        return numbers(own) < numbers(node)

    def _requirement(self, entry: CatalogueEntry) -> str | None:
        """Return a bootstrap's framework, at the very release where one was asked for."""
        exact = self._exact_version()
        if entry.requirement and exact and "+" not in exact and len(numbers(exact)) > 2:
            return f"{entry.requirement.partition('==')[0]}=={exact}"
        return entry.requirement

    def _reasons(self, entry: CatalogueEntry, driver: str | None) -> list[str]:
        reasons = [f"{entry.holds}, Python {entry.python}"]
        if entry.cuda:
            reasons.append(f"CUDA {entry.cuda}" + (f", driver {driver} or newer" if driver else ""))
        if self.capability is not None:
            code = "machine code" if _has_machine_code(entry, self.capability) else "code"
            reasons.append(
                f"{code} for {self.wish.gpu} (compute capability {self.capability / 10})"
            )
        if entry.is_bootstrap:
            reasons.append("made on this machine from Debian packages and wheels")
        return reasons

    def rank(self, choice: BaseMatch) -> tuple[object, ...]:
        """Return what sorts the best first."""
        entry = choice.entry
        suite = SUITES.index(entry.reference) if entry.reference in SUITES else len(SUITES)
        made_here = 0
        if not entry.is_bootstrap:
            made_here = 1
        elif numbers(entry.cuda or "11") < OLD_CUDA:
            made_here = 2
        new_cuda = not self.wish.driver and numbers(entry.cuda or "0") >= (USUAL_CUDA + 1,)
        release = (*numbers(entry.version or "0"), 0, 0)[:3]
        version = tuple(-number for number in release)
        return (
            entry.defect is not None,
            not self._exact(entry),
            made_here,
            new_cuda,
            entry.driver
            is not None,  # a vendor's image only where nothing else fits: several times the size
            version,
            suite,
            ("verified", "derived", "unverified").index(entry.status),
            entry.note is not None,
            entry.reference,
        )


def has_code_for(entry: CatalogueEntry, capability: int) -> bool:
    """Whether a base has machine code for a GPU, or portable code for an older one.

    Where only the CUDA of a base is known, its toolkit must compile for that GPU.
    """
    build = entry.build
    if build is not None and (build.sass or build.ptx):
        return runs_on(capability, build.sass, build.ptx) is not None
    if entry.cuda is None:
        return True
    row = next((row for row in load_cuda().gpu if row.capability == capability), None)
    return row is None or compiles_for(entry.cuda, row)


def _has_machine_code(entry: CatalogueEntry, capability: int) -> bool:
    """Whether there is machine code for a GPU."""
    return entry.build is not None and runs_on(capability, entry.build.sass, ()) == "sass"


def _framework_bounds(text: str | None) -> tuple[str | None, SpecifierSet | None]:
    if text is None:
        return None, None
    try:
        requirement = Requirement(
            re.sub(r"^(\s*[A-Za-z][\w.-]*)\s+(\d[\w.]*)\s*$", r"\1==\2", text)
        )
    except NO_REQUIREMENT as error:
        raise UsageError(
            f"--framework {text}: write a name with bounds, such as torch>=2.1"
        ) from error
    name = framework_name(requirement.name)
    if name is None:
        known = ", ".join(row.name for row in load_frameworks().framework if row.called)
        raise UsageError(
            f"the catalogue knows no framework {requirement.name!r}", hint=f"known: {known}"
        )
    return name, _widen_patch(requirement.specifier) if requirement.specifier else None


def _widen_patch(bounds: SpecifierSet) -> SpecifierSet:
    """Read "==2.5" as any release of that line: nobody means 2.5.0 alone by it."""
    widened = []
    for bound in bounds:
        is_line = bound.operator == "==" and re.fullmatch(r"\d+(\.\d+)?", bound.version)
        widened.append(f"=={bound.version}.*" if is_line else str(bound))
    return SpecifierSet(",".join(widened))


def _parse_python(text: str | None) -> SpecifierSet | None:
    if text is None:
        return None
    bounds = text
    if re.fullmatch(r"\d+\.\d+", text):
        bounds = f"=={text}.*"
    elif text[:1] not in "<>=!~":
        bounds = f"=={text}"
    try:
        found = SpecifierSet(bounds)
        # only then are its numbers read, which may be too long
        holds_python(found, "3.10")
    except ValueError as error:
        raise UsageError(
            f"--python {text}: write a version such as 3.10, or bounds such as >=3.8,<3.11"
        ) from error
    return found


def holds_python(bounds: SpecifierSet, version: str) -> bool:
    """Whether a Python fits; of one whose patch is not known, any patch may be there."""
    parts = numbers(version)
    known = [version]
    if len(parts) == 2:
        known = [f"{parts[0]}.{parts[1]}.{patch}" for patch in PATCHES]
    return any(bounds.contains(one, prereleases=True) for one in known)
