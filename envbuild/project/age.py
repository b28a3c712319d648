"""How old a project is by the releases that it pins, and which Pythons those can be had for."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping

from envbuild.project.model import Release

FEWEST_DATED = 2
"""Releases with a day from which on they tell the age of a project."""
DATED_SHARE = 0.2
"""Share of its packages that they must be: one old pin among many packages says nothing."""
GRACE = dt.timedelta(days=30)
"""A project's pins may be a little older than the framework that they were tried with."""


def newest_pin(releases: Mapping[str, Release], packages: int) -> dt.date | None:
    """Return the day until which a framework may have come out: that of the newest release that is pinned or asked for.

    None where nothing is pinned, or too little to tell.
    """
    days = [release.day for release in releases.values() if release.day is not None]
    pinned = any(release.exact for release in releases.values())
    if not pinned or len(days) < FEWEST_DATED or len(days) < DATED_SHARE * packages:
        return None
    return max(days) + GRACE


def shared_pythons(releases: Mapping[str, Release]) -> tuple[str, ...]:
    """Return the Python series that most of the pinned releases can be had for; none where nothing is pinned."""
    counts = Counter(series for release in releases.values() if release.exact for series in release.pythons)
    most = max(counts.values(), default=0)
    return tuple(sorted((series for series in counts if counts[series] == most), key=lambda one: int(one[2:])))
