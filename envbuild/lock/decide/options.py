"""What a lock is decided from: the recipe, how to lock it, and the day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from envbuild.base.model import BaseFacts
from envbuild.conda.model import NO_TARGET, CondaOptions, GivenArchive, GpuTarget
from envbuild.context import Context
from envbuild.lock.model import Lock
from envbuild.names import Pairs, Texts
from envbuild.recipe.model import Recipe, Source
from envbuild.records import frozen_record
from envbuild.resolve.dates import default_as_of


@frozen_record
class LockOptions:
    """How to lock: ``as_of`` over the recipe's, what to refresh; ``old`` is the last lock.

    ``keep`` are names and versions to prefer beside those of ``old``.
    ``bounds`` are constraints that no recipe has: those of the search for a lock that imports.
    ``resolver`` is the backend for the project's requirements; the framework and the installer are
    always uv's to find.  ``target`` are the nodes that conda's packages are chosen for,
    ``given`` conda packages that another tool has locked; without ``hints`` a refusal gives its
    reasons alone (resolve.model.Request).
    """

    as_of: str | None = None
    upgrade: Texts = ()
    upgrade_all: bool = False
    upgrade_system: bool = False
    old: Lock | None = None
    keep: Pairs = ()
    bounds: Texts = ()
    resolver: str = "uv"
    target: GpuTarget = NO_TARGET
    given: tuple[GivenArchive, ...] = ()
    hints: bool = True

    @property
    def refresh(self) -> bool:
        """Whether the index is to be asked even where its answer is still fresh."""
        return self.upgrade_all or bool(self.upgrade)

    @property
    def kept_versions(self) -> Pairs:
        """Names and versions to prefer: the old lock's, and ``keep``."""
        if self.old is None or self.upgrade_all:
            return self.keep
        locked = ((package.name, package.version) for package in self.old.installed)
        return (*locked, *self.keep)

    @property
    def for_conda(self) -> CondaOptions:
        """The options for conda's packages."""
        old = () if self.old is None or self.upgrade_all else self.old.conda
        kept = frozenset(package.file for package in old if package.name not in self.upgrade)
        return CondaOptions(target=self.target, as_of=self.as_of, keep=kept, given=self.given)


@dataclass(frozen=True, slots=True)
class LockTask:
    """A recipe to lock, how, and today's date: what every step of the decision reads."""

    source: Source
    options: LockOptions
    context: Context
    today: date

    @property
    def recipe(self) -> Recipe:
        """The recipe to lock."""
        return self.source.recipe

    @property
    def chosen_date(self) -> str | None:
        """The date that the command line or the recipe names, "none" too; None: nobody chose."""
        return self.options.as_of or self.recipe.python.as_of

    def as_of(self, facts: BaseFacts) -> str | None:
        """Return the date that packages are resolved as of: the chosen one, else the base's."""
        chosen = self.chosen_date
        if chosen is None:
            return default_as_of(facts, self.today)
        return None if chosen == "none" else chosen
