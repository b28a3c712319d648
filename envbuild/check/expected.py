"""What an image of a recipe and its lock should hold; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from envbuild.check.model import Level
from envbuild.check.target import Target
from envbuild.data import lookup
from envbuild.data.tables import Framework, load_frameworks
from envbuild.limits import SCRIPT, read_whole
from envbuild.lock.model import Lock
from envbuild.names import Texts
from envbuild.recipe.model import Recipe
from envbuild.records import field, frozen_record, replace
from envbuild.store.hashing import digest_of


@frozen_record
class CheckBasis:
    """What an image is checked against.

    ``recipe`` and ``lock`` are None for an image on its own; ``script`` is the recipe's own check,
    a file; ``records`` maps canonical names of the base's distributions to the sha256 (hex) of
    their RECORD, where the base's facts are known; ``target`` is the kind of node that the image is
    meant for; ``project`` is the folder with the user's own Python, which is looked through;
    ``needed`` maps modules that it needs to the file that imports them; ``level`` is how deep to
    look.
    """

    recipe: Recipe | None = None
    lock: Lock | None = None
    script: Path | None = None
    records: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None
    project: Path | None = None
    needed: Mapping[str, str] = field(default_factory=dict)
    level: Level = "quick"


@frozen_record
class Expected(CheckBasis):
    """What the image should hold, and what that was worked out from.

    ``framework`` is the one that must be there and ``version`` the locked one; ``asked`` are the
    requirements as written; ``direct`` are the names of the direct requirements (canonical),
    ``conditional`` those of them for some systems only, ``imports`` further modules of the recipe;
    ``locked`` maps canonical names to versions, ``conda`` names of conda packages to version and
    build; ``conda_prefix`` is their folder, "" for one that the image may have, None for none;
    ``wheels`` are the names of what is put over the base; ``alone`` says that neither a recipe nor a
    lock is at hand, ``no_python`` that the image has no Python, and is looked at with this
    machine's.
    """

    framework: Framework | None = None
    version: str | None = None
    asked: Texts = ()
    direct: Texts = ()
    conditional: Texts = ()
    imports: Texts = ()
    locked: Mapping[str, str] = field(default_factory=dict)
    conda: Mapping[str, str] = field(default_factory=dict)
    conda_prefix: str | None = None
    wheels: frozenset[str] = frozenset()
    protected: Texts = ()
    alone: bool = False
    no_python: bool = False

    @property
    def wants_cpu(self) -> bool:
        """Whether a build without CUDA of the framework was asked for by name."""
        if self.framework is None:
            return False
        words = re.findall(r"[\w.-]+", " ".join(self.asked))
        named = any(lookup.matches(canonicalize_name(word), self.framework.cpu) for word in words)
        return named or any("+cpu" in line for line in self.asked)

    def for_framework(self, framework: Framework) -> Expected:
        """Return the same expectations of another framework."""
        version = _locked_version(self.locked, framework)
        return replace(self, framework=framework, version=version)


def _locked_version(locked: Mapping[str, str], framework: Framework) -> str | None:
    found = [version for name, version in locked.items() if lookup.matches(name, framework.dists)]
    return found[0] if found else None


def derive_expected(basis: CheckBasis) -> Expected:
    """Work out what an image of this recipe and lock should hold."""
    recipe, lock = basis.recipe, basis.lock
    locked = _locked(lock) if lock else {}
    direct = _direct(recipe, lock)
    framework = _framework(recipe, lock, locked, direct)
    version = _locked_version(locked, framework) if framework else None
    asked = (
        *(recipe.python.dependencies if recipe else ()),
        *(lock.direct if lock else ()),
        *_named(recipe),
    )
    lines = [line for line in _lines(recipe, lock) if ";" in line]
    conditional = tuple(requirement_name(line) or "" for line in lines)
    imports = recipe.check.imports if recipe else ()
    installed = lock.installed if lock else ()
    conda = lock.conda if lock else ()
    given = {one.name: getattr(basis, one.name) for one in fields(basis)}
    return Expected(
        **given,
        framework=framework,
        version=version,
        asked=asked,
        direct=direct,
        conditional=conditional,
        imports=imports,
        locked=locked,
        conda={p.name: f"{p.version} {p.build}" for p in conda},
        conda_prefix=_conda_prefix(lock),
        wheels=frozenset(canonicalize_name(p.name) for p in installed),
        protected=_protected(lock),
        alone=recipe is None and lock is None,
        no_python=lock is not None and not lock.python_version,
    )


def _conda_prefix(lock: Lock | None) -> str | None:
    if lock is None:
        return ""
    return lock.conda_prefix if lock.conda or lock.base.conda_prefix else None


def requirement_name(line: str) -> str | None:
    """Return the canonical name that a PEP 508 line asks for, None for a path or a bare URL."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:$|[\[<>=!~;(@,\s])", line)
    return canonicalize_name(found[1]) if found else None


def _locked(lock: Lock) -> dict[str, str]:
    versions = {
        canonicalize_name(item.alias_of or item.name): item.version for item in lock.provided
    }
    versions.update({canonicalize_name(item.name): item.version for item in lock.installed})
    return dict(sorted(versions.items()))


def _direct(recipe: Recipe | None, lock: Lock | None) -> Texts:
    """Return the direct distributions.

    One that another stands for in the base comes under the other's name.
    """
    names = [name for name in map(requirement_name, _lines(recipe, lock)) if name]
    aliases: dict[str, str] = {}
    if lock is not None:
        names += [canonicalize_name(p.name) for p in lock.python if p.source is not None]
        for item in lock.provided:
            if item.alias_of:
                aliases[canonicalize_name(item.name)] = canonicalize_name(item.alias_of)
    return tuple(dict.fromkeys(aliases.get(name, name) for name in names))


def _lines(recipe: Recipe | None, lock: Lock | None) -> Texts:
    if recipe is not None:
        return recipe.python.dependencies
    return () if lock is None else lock.direct


def _named(recipe: Recipe | None) -> Texts:
    if recipe is None:
        return ()
    return tuple(text for text in (recipe.check.framework, recipe.base.framework) if text)


def _framework(
    recipe: Recipe | None, lock: Lock | None, locked: Mapping[str, str], direct: Texts
) -> Framework | None:
    """Return the framework in question.

    [check], [base], the lock's base, a direct requirement or any locked package names it.
    """
    named = [*_named(recipe), lock.base.framework if lock and lock.base.framework else ""]
    names = [name for name in map(requirement_name, named) if name]
    known = [found for found in map(lookup.framework_of, [*names, *direct, *locked]) if found]
    tried = [found for found in known if found.probe is not None]
    return next(iter([*tried, *known]), None)


def _protected(lock: Lock | None) -> Texts:
    """Return patterns of the distributions whose files must be as they were installed."""
    locked = (
        [canonicalize_name(item.name) for item in lock.python if item.group == "framework"]
        if lock
        else []
    )
    return tuple(dict.fromkeys([*locked, *frameworks_patterns()]))


def frameworks_patterns() -> Texts:
    """Return the patterns of all known frameworks, for an image of which nothing else is known."""
    patterns: list[str] = []
    for item in load_frameworks().framework:
        patterns += (*item.dists, *item.protected)
    return tuple(patterns)


def asked_digest(recipe: Recipe | None, script: Path | None) -> str | None:
    """Return ``sha256:…`` over what a recipe itself wants checked.

    So a kept verdict is not taken for another.
    """
    if recipe is None:
        return None
    text = msgspec.json.encode(recipe.check, order="sorted") + (
        read_whole(script, SCRIPT) if script else b""
    )
    return digest_of(text)
