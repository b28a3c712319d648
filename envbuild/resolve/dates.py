"""The date to resolve at: an old base needs the packages of its time."""

from __future__ import annotations

import datetime as dt

from envbuild.base.model import BaseFacts
from envbuild.data.package_tables import load_pythons
from envbuild.errors import UsageError
from envbuild.resolve.platform import python_minor
from envbuild.store.units import join_numbers

OLD_MONTHS = 18
GRACE_DAYS = 90


def default_as_of(facts: BaseFacts, today: dt.date) -> str | None:
    """Return the ISO date of an old base, its creation + 90 days; None for a young one.

    Old is: created more than 18 months before ``today``, or a Python past its end.  A base without
    a creation date is resolved at today's packages.  The date is never later than ``today``.
    """
    if facts.created is None:
        return None
    created = read_date(facts.created, facts.image)
    if created >= _months_before(today, OLD_MONTHS) and not _python_ended(facts, today):
        return None
    # other projects follow a new framework within weeks, not on the day of its image
    return min(created + dt.timedelta(days=GRACE_DAYS), today).isoformat()


def read_date(text: str, where: str) -> dt.date:
    """Read the date of an ISO date or time.  Raises UsageError."""
    try:
        return dt.date.fromisoformat(text[:10])
    except ValueError as error:
        raise UsageError(f"{text!r} is not a date such as 2024-06-10", where=where) from error


def _python_ended(facts: BaseFacts, today: dt.date) -> bool:
    minor = join_numbers(python_minor(facts))
    return any(
        release.version == minor and release.ends < today for release in load_pythons().python
    )


def _months_before(day: dt.date, months: int) -> dt.date:
    # every month has a 28th
    count = day.year * 12 + day.month - 1 - months
    return dt.date(count // 12, count % 12 + 1, min(day.day, 28))
