"""Move a date that nobody chose where a direct requirement has no release before it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from envbuild.resolve.conflict.explain import NO_WHEELS, WITHDRAWN, ConflictError, Problem, name_of
from envbuild.resolve.dates import GRACE_DAYS, read_date
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.session import Session

PINNED_DAYS = 1
"""A pin is of its own day, and what goes with it mostly older."""
PIN = re.compile(r"==[^*,]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Later:
    """A later ISO date, and why; ``patient`` is one that leaves others time to follow."""

    date: str
    reason: str
    patient: str


def find_later_date(
    session: Session, conflict: ConflictError, problem: Problem, latest: str
) -> Later | None:
    """Return the date to resolve at instead, None where the date is not what is in the way.

    Raises ConflictError where there is no release for this base at any date.

    It is the day on which each of these requirements had a release that the couplings to the base
    allow, and a file for the base; unless that release is pinned, as long again as an old base is
    given.
    """
    unfit = {name_of(package) for package, _ in NO_WHEELS.findall(conflict.text)}
    withdrawn = set(map(name_of, WITHDRAWN.findall(conflict.text)))
    absent = {*conflict.filtered, *unfit, *withdrawn}
    late = [direct for direct in problem.directs if direct.name in absent]
    if not late or problem.as_of is None:
        return None
    # the oldest releases that fit tell the first day on which the requirements can be met
    question = Question(
        requirements=tuple(d.text for d in late),
        constraints=tuple(row.constraint for row in problem.couplings if row.binding),
        deps=False,
        soft=False,
        lowest=True,
    )
    found = session.ask(question)
    days: dict[str, str] = {}
    for direct in late:
        chosen = found[direct.name]
        uploads = [
            file.uploaded
            for file in (*chosen.wheels, chosen.sdist)
            if file is not None and file.uploaded
        ]
        if uploads:
            days[direct.written] = min(uploads)
    written, day = max(days.items(), key=lambda item: item[1], default=("", ""))
    if not day:
        return None
    pinned = all(PIN.fullmatch(direct.specifier) for direct in late)
    date, patient = (
        _days_after(day, days, latest)
        for days in (PINNED_DAYS if pinned else GRACE_DAYS, GRACE_DAYS)
    )
    if date <= problem.as_of:
        return None
    return Later(date=date, reason=f"{written} has no release before {day}", patient=patient)


def _days_after(day: str, days: int, latest: str) -> str:
    return min((read_date(day, "upload date") + dt.timedelta(days=days)).isoformat(), latest)
