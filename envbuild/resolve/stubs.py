"""Stub wheels: metadata without files, so that a resolver can reason about the base.

A stub's version is the base's own, taken leniently, with the local part ``base``:
``2.4.0a0+f70b.nv24.6`` becomes ``2.4.0+f70b.nv24.6.base``.  Vendors build from a branch and mark it
aN or devN, which PEP 440 sorts before the final release; people mean the release.  The local part
makes it win over the same version of an index.

Hard stubs (protected distributions, and aliases of them) go into a flat index listed first: the
resolver never asks another index for those names.  Soft stubs are find-links: preferred where they
fit, replaced where they do not.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base.model import BaseFacts, Dist
from envbuild.names import Texts, Variables
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.records import frozen_record
from envbuild.resolve.platform import marker_environment
from envbuild.store.anchored import anchored
from envbuild.store.atomic import is_older
from envbuild.store.hashing import hash_text
from envbuild.store.layout import Store, remove_tree

MARK = "base"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
EXTRA = re.compile(r"""extra\s*==\s*['"]([A-Za-z0-9._-]+)['"]""")
STUBS_SECONDS = 30 * 86400
"""How long the stubs of a base are kept."""
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every archive member, so that the same facts give the same bytes."""


@frozen_record
class Stub:
    """One stub wheel.

    ``version`` is the lenient one, ``real`` what the base says; ``requires`` are PEP 508 strings;
    ``hard`` distinguishes the flat index from find-links; ``alias_of`` is the distribution that an alias
    stands in for; ``chosen`` says that the recipe's framework brings it, so that it is not in the
    base yet.
    """

    name: str
    version: str
    real: str
    requires: Texts = ()
    hard: bool = False
    alias_of: str | None = None
    chosen: bool = False

    @property
    def holder(self) -> str:
        """Who has it, for people."""
        return "the recipe's framework brings" if self.chosen else "the base holds"

    @property
    def public(self) -> str:
        """The lenient version without its local part, as users write versions."""
        return self.version.partition("+")[0]


@dataclass(frozen=True, slots=True)
class Stubs:
    """All stubs of one base by canonical name, and notes about what could not be taken."""

    by_name: Mapping[str, Stub]
    notes: Texts = ()

    @property
    def roots(self) -> Texts:
        """Names that are required in every resolution: the bounds of protected ones always hold."""
        return tuple(
            sorted(name for name, stub in self.by_name.items() if stub.hard and not stub.alias_of)
        )

    def with_aliases(self, aliases: Mapping[str, tuple[str, str]], own: Mapping[str, str]) -> Stubs:
        """Return these and aliases (to real name and version); ``own`` are their versions."""
        more = {
            alias: Stub(
                name=alias,
                version=lenient_version(own[alias]),
                real=own[alias],
                requires=(f"{real}=={version}",),
                hard=True,
                alias_of=real,
            )
            for alias, (real, version) in aliases.items()
        }
        return Stubs({**self.by_name, **more}, self.notes)

    def hard(self, name: str) -> bool:
        """Whether a canonical name is protected."""
        stub = self.by_name.get(name)
        return stub is not None and stub.hard


def lenient_version(version: str) -> str:
    """Return the version that a stub carries; raises packaging's InvalidVersion."""
    own = Version(version)
    epoch = f"{own.epoch}!" if own.epoch else ""
    release = ".".join(map(str, own.release))
    post = f".post{own.post}" if own.post is not None else ""
    local = f"{own.local}.{MARK}" if own.local else MARK
    return f"{epoch}{release}{post}+{local}"


def _lenient_or_none(version: str) -> str | None:
    try:
        return lenient_version(version)
    except ValueError:
        return None


def is_stub(version: str) -> bool:
    """Whether a version in a resolver's answer is one of a stub."""
    local = version.partition("+")[2]
    return local == MARK or local.endswith(f".{MARK}")


def plan_stubs(
    facts: BaseFacts,
    *,
    protected: Collection[str],
    aliases: Mapping[str, Texts],
    whole: Collection[str] = (),
) -> Stubs:
    """Decide the stubs of a base: one for each distribution and each possible alias.

    ``protected`` are canonical names that must not be replaced; ``aliases`` maps a wanted name to
    patterns (fnmatch) of distributions that provide the same modules, best first; what is ``whole``
    keeps all that it requires.
    """
    notes: list[str] = []
    versions: dict[str, str] = {}
    dists: dict[str, Dist] = {}
    for name, dist in base_distributions(facts).items():
        if not NAME.fullmatch(dist.name):
            notes.append(
                f"{ascii(dist.name)[:80]} of the base is left out: no distribution has such a name"
            )
            continue
        if (version := _lenient_or_none(dist.version)) is None:
            notes.append(
                f"{dist.name} {ascii(dist.version)[1:-1][:80]} of the base is left out: its "
                "version is not PEP 440"
            )
            continue
        versions[name], dists[name] = version, dist
    alias_of: dict[str, str] = {}
    for alias, reals in aliases.items():
        real = first_match(reals, dists)
        if alias not in dists and real:
            alias_of[alias] = real
    # what asks for an alias gets the version of what stands for it
    known = versions | {alias: versions[real] for alias, real in alias_of.items()}
    hard = {name for name in dists if name in protected} | set(alias_of.values())
    environment = marker_environment(facts)
    stubs: dict[str, Stub] = {}
    for name, dist in dists.items():
        requires = _requires_by_name(dist)
        if name in hard and name not in whole:
            requires = _met_requires(dist, known, environment, own_cuda=facts.cuda is not None)
        stubs[name] = Stub(
            name=name,
            version=versions[name],
            real=dist.version,
            requires=requires,
            hard=name in hard,
            chosen=name in whole,
        )
    for alias, real in alias_of.items():
        stubs[alias] = Stub(
            name=alias,
            version=versions[real],
            real=dists[real].version,
            requires=(f"{real}=={versions[real]}",),
            hard=True,
            alias_of=real,
        )
    return Stubs(stubs, tuple(notes))


def _requires_by_name(dist: Dist) -> Texts:
    return tuple(
        str(requirement)
        for requirement in parse_requirements(dist.requires)
        if requirement.url is None
    )


def base_distributions(facts: BaseFacts) -> dict[str, Dist]:
    """Return the base's distributions by canonical name; the first of two wins."""
    found: dict[str, Dist] = {}
    for dist in facts.dists:
        found.setdefault(canonicalize_name(dist.name), dist)
    return found


def first_match(patterns: Texts, present: Collection[str]) -> str | None:
    """Return the first name that matches; of several for one pattern the last by alphabet."""
    for pattern in patterns:
        if "*" not in pattern:
            if pattern in present:
                return pattern
        elif found := fnmatch.filter(present, pattern):
            return max(found)
    return None


def extras_named(requires: Iterable[str]) -> list[str]:
    """Return the extras that requirements belong to, sorted: those that their markers name."""
    return sorted(set(EXTRA.findall("\n".join(requires))))


def parse_requirements(requires: Texts) -> list[Requirement]:
    """Parse requirement strings; what is not PEP 508 (old metadata has it) is left out."""
    return [
        requirement for text in requires if (requirement := _parse_requirement(text)) is not None
    ]


@functools.lru_cache(maxsize=16384)
def _parse_requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except NO_REQUIREMENT:
        return None


def _met_requires(
    dist: Dist, known: Mapping[str, str], environment: Variables, *, own_cuda: bool
) -> Texts:
    """Keep what the base satisfies: a vendor's torch does not ask for wheels it lacks.

    What belongs to an extra stays, because it is only asked for by name; CUDA wheels go where the
    base has its own.
    """
    kept = []
    for requirement in parse_requirements(dist.requires):
        name = canonicalize_name(requirement.name)
        # an address would lead around the index
        if requirement.url is not None:
            continue
        if requirement.marker and "extra" in str(requirement.marker):
            if name in known or not (own_cuda and name.startswith("nvidia-")):
                kept.append(str(requirement))
        elif requirement.marker and not requirement.marker.evaluate(dict(environment)):
            continue
        elif name in known and requirement.specifier.contains(known[name], prereleases=True):
            kept.append(str(requirement))
    return tuple(kept)


def write_stubs(stubs: Stubs, folder: Path) -> None:
    """Write the stub wheels into ``hard`` and ``soft``; the same stubs give the same bytes."""
    for kind in ("hard", "soft"):
        (folder / kind).mkdir()
    for stub in stubs.by_name.values():
        write_wheel(
            folder / ("hard" if stub.hard else "soft"), stub.name, stub.version, stub.requires
        )


def kept_stubs(stubs: Stubs, store: Store) -> Path:
    """Return a folder of the store that holds the stub wheels, written where it lacks them.

    The same stubs are in the same place every time, so that uv knows what it has read of them.
    """
    rows = sorted((s.name, s.version, s.requires, s.hard) for s in stubs.by_name.values())
    final = store.folder("stubs") / hash_text(json.dumps(rows))[:32]
    if final.is_dir():
        with suppress(OSError):  # another user's
            os.utime(final)
        return final
    with suppress(OSError):
        # stubs of bases that nobody has asked about for a month
        for old in final.parent.iterdir():
            if is_older(old, STUBS_SECONDS):
                with anchored(old, store.root) as path:
                    remove_tree(path)
    with store.work("stubs") as work:
        made = work / "made"
        made.mkdir()
        write_stubs(stubs, made)
        for path in (made, *made.rglob("*")):
            # a lab's store is read by others, whatever the umask
            path.chmod(0o755 if path.is_dir() else 0o644)
        with suppress(OSError):  # another process was quicker
            made.rename(final)
    return final


def write_wheel(folder: Path, name: str, version: str, requires: Texts) -> Path:
    """Write one wheel that has metadata and no files."""
    stem = f"{name.replace('-', '_')}-{version}"
    wheel = "Wheel-Version: 1.0\nGenerator: envbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (
            ("METADATA", metadata_text(name, version, requires)),
            ("WHEEL", wheel),
            ("RECORD", ""),
        ):
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{member}", EARLIEST), text)
    return path


def metadata_text(name: str, version: str, requires: Texts) -> str:
    """Return the METADATA of a wheel (core metadata 2.1)."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras_named(requires)]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "\n".join([*lines, ""])
