"""What a resolver is asked and what it answers."""

from __future__ import annotations

from typing import Protocol

from envbuild.base.model import BaseFacts
from envbuild.names import DIRECT, Pairs, Texts
from envbuild.records import frozen_record
from envbuild.resolve.outcome import HeldBack, Moved, Provided


@frozen_record
class Request:
    """One question to a resolver.

    ``requirements`` are PEP 508 strings as the user wrote them; ``as_of`` is an ISO date or None,
    ``latest`` the ISO date up to which it may be moved where a direct requirement has no release
    before it (None: the date is the user's own), and with ``later`` also where there is a solution
    at a later date only; ``indexes`` are names of extra indexes (their URLs
    come from the settings); ``keep`` maps names to versions to prefer (an old lock); ``upgrade``
    are names that ``keep`` does not hold; ``bounds`` are constraints that are no requirements
    ("keras<=2.3.1"); ``protect`` are names in the facts that must not be replaced, on top of those
    that data says; ``framework`` is the requirement of one that was chosen for the facts and is not
    installed yet: what it requires and the facts do not hold is resolved here; ``from_source`` are
    names whose wheels are left alone, so that they are built; ``refresh`` asks the index even where
    the answer is still fresh; ``archives`` are file names of sdists and where they lie on this
    machine: their packages are taken from there alone; ``younger`` are names with releases that
    ``as_of`` does not hide; ``alone`` asks for the newest release of each requirement and not for
    what that requires; without ``hints`` a refusal gives its reasons and not what would help,
    which takes seconds to find.
    """

    requirements: Texts
    facts: BaseFacts
    as_of: str | None = None
    latest: str | None = None
    later: bool = True
    indexes: Texts = ()
    keep: Pairs = ()
    upgrade: Texts = ()
    protect: Texts = ()
    framework: str | None = None
    bounds: Texts = ()
    from_source: Texts = ()
    refresh: bool = False
    archives: Pairs = ()
    younger: Pairs = ()
    hints: bool = True
    alone: bool = False


@frozen_record
class FoundFile:
    """One chosen file of the index; ``url`` only serves to ask for its size.

    ``size`` is in bytes; ``uploaded`` is an ISO date or None; ``index`` is the name of an extra
    index or None.
    """

    file: str
    sha256: str
    size: int
    url: str
    uploaded: str | None = None
    index: str | None = None


@frozen_record
class Found:
    """One package to install: the best wheel for the base, else the sdist.

    ``via`` are the names of the packages that require it, ``(direct)`` among them for a direct
    requirement. ``requires`` are the PEP 508 strings of its metadata, ``requires_python`` a version
    specifier or None.
    """

    name: str
    version: str
    file: FoundFile
    via: Texts = ()
    requires: Texts = ()
    requires_python: str | None = None

    @property
    def is_direct(self) -> bool:
        """Whether the recipe itself requires it."""
        return DIRECT in self.via

    @property
    def is_sdist(self) -> bool:
        """Whether it has to be built from source."""
        return not self.file.file.endswith(".whl")


@frozen_record
class Resolution:
    """The answer: ``packages`` by name; ``build`` are the build requirements of its sdists.

    ``ancient`` are those held back to a release of long before the base, which hardly fits it.
    ``as_of`` is the ISO date that it was resolved at in the end.
    """

    packages: tuple[Found, ...]
    build: tuple[Found, ...] = ()
    provided: tuple[Provided, ...] = ()
    moved: tuple[Moved, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    ancient: tuple[HeldBack, ...] = ()
    notes: Texts = ()
    as_of: str | None = None


class Resolver(Protocol):
    """A backend: one file each, listed in ``resolve/backends.py``."""

    def __call__(self, request: Request) -> Resolution:
        """Resolve.  Raises NoSolutionError, NetworkError, UsageError for a bad requirement."""
