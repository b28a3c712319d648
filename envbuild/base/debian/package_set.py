"""A base made of Debian packages: which ones, of which day, over which other base."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from envbuild.base.model import DebianPackage
from envbuild.records import frozen_record
from envbuild.store.hashing import digest_of


@frozen_record
class Bootstrap:
    """A base made from Debian packages: everything that its bytes depend on.

    ``created`` is the release's date (ISO); all times in the root are at most that day's midnight
    (UTC).  ``over`` is the root that this one starts from, whose packages are among these:
    installing a few more takes a third of the time.
    """

    suite: str
    created: str
    packages: tuple[DebianPackage, ...]
    over: Bootstrap | None = None

    @property
    def digest(self) -> str:
        """Return ``sha256:…`` over suite, date, packages, and the root that it starts from."""
        own = bootstrap_digest(self.suite, self.created, self.packages)
        if self.over is None:
            return own
        # "/dev": roots that stores keep from before were made without it, so scripts in them may
        # have failed unseen
        return digest_of(f"{self.over.digest}\n{own}\n/dev\n".encode())

    @property
    def added(self) -> tuple[DebianPackage, ...]:
        """Return the packages that are to be installed."""
        there = {package.sha256 for package in self.over.packages} if self.over else set()
        return tuple(package for package in self.packages if package.sha256 not in there)

    @property
    def epoch(self) -> int:
        """Return the date as seconds since 1970."""
        return int(datetime.fromisoformat(self.created).replace(tzinfo=timezone.utc).timestamp())


def bootstrap_digest(suite: str, created: str, packages: Iterable[DebianPackage]) -> str:
    """Return ``sha256:…`` over suite, date and "name version sha256" of each package, sorted."""
    lines = sorted(f"{package.name} {package.version} {package.sha256}" for package in packages)
    text = "\n".join([f"debian {suite}", created, *lines]) + "\n"
    return digest_of(text.encode())
