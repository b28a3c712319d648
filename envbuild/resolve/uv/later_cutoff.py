"""Move a date that nobody chose where it hides a release without which there is no answer."""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress

from packaging.version import Version

from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.conflict.explain import (
    NAME,
    NO_WHEELS,
    WITHDRAWN,
    ConflictError,
    Problem,
    name_of,
)
from envbuild.resolve.dates import GRACE_DAYS, read_date
from envbuild.resolve.model import Request
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.requirements import Direct
from envbuild.resolve.uv.answer_checks.foreign_wheels import compiled_elsewhere
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.session import Session

PINNED_DAYS = 1
"""A pin is of its own day, and what goes with it mostly older."""
PIN = re.compile(r"==[^*,]+")


@frozen_record
class LaterDate:
    """A later ISO date, and why; ``patient`` is one that leaves others time to follow."""

    date: str
    reason: str
    patient: str


@frozen_record
class YoungerPartners:
    """Names with releases that the date is not to hide, and why."""

    releases: Pairs
    reason: str


def find_later_date(
    session: Session, conflict: ConflictError, problem: Problem, latest: str
) -> LaterDate | YoungerPartners | None:
    """Return the date to resolve at instead, None where the date is not what is in the way.

    Raises ConflictError where there is no release for this base at any date.

    The date is the day on which each of these requirements had a release that the couplings to the
    base allow, and a file for the base; unless that release is pinned, as long again as an old base
    is given.  Where couplings alone ask for younger releases, those are returned.
    """
    unfit = {name_of(package) for package, _ in NO_WHEELS.findall(conflict.text)}
    withdrawn = set(map(name_of, WITHDRAWN.findall(conflict.text)))
    absent = {*conflict.filtered, *unfit, *withdrawn}
    late = [direct for direct in problem.directs if direct.name in absent]
    if problem.as_of is None:
        return None
    if not late:
        return _younger_partners(session, conflict, problem, problem.as_of)
    # the oldest releases that fit tell the first day on which the requirements can be met
    question = Question(
        requirements=tuple(d.text for d in late),
        constraints=tuple(row.constraint for row in problem.couplings if row.binding),
        deps=False,
        soft=False,
        lowest=True,
    )
    found = session.ask(question)
    pins = [direct for direct in late if PIN.fullmatch(direct.specifier)]
    free = _dateless(late, pins, found, problem.as_of)
    if free is not None:
        return free
    days: dict[str, str] = {}
    for direct in late:
        if uploaded := found[direct.name].uploaded:
            days[direct.written] = uploaded
    written, day = max(days.items(), key=lambda item: item[1], default=("", ""))
    if not day:
        return None
    date = _days_after(day, PINNED_DAYS if pins == late else GRACE_DAYS, latest)
    if date <= problem.as_of:
        return None
    patient = _days_after(day, GRACE_DAYS, latest)
    return LaterDate(date=date, reason=f"{written} has no release before {day}", patient=patient)


def _dateless(
    late: Sequence[Direct], pins: Sequence[Direct], found: Mapping[str, Chosen], as_of: str
) -> YoungerPartners | None:
    """Return what the date does not count for: pins without a day, builds of every night."""
    undated = [direct for direct in pins if not found[direct.name].uploaded]
    # of nightly builds an index keeps the last months: the first day that it has tells nothing
    nightly = [
        direct
        for direct in late
        if direct not in pins and Version(found[direct.name].version).is_devrelease
    ]
    free = tuple((one.name, found[one.name].version) for one in undated or nightly)
    if undated:
        named = ", ".join(direct.written for direct in undated)
        reason = f"the index does not tell the day of {named}: the date does not count for it"
    else:
        named = ", ".join(f"{name} {version}" for name, version in free)
        reason = f"{named}: the oldest build that the index still has, younger than {as_of}"
    return YoungerPartners(releases=free, reason=reason) if free else None


def _younger_partners(
    session: Session, conflict: ConflictError, problem: Problem, as_of: str
) -> YoungerPartners | None:
    """Return what couplings ask for where only a release after the date fits the pins, else None.

    numpy 1.22.0 goes with numba 0.55, of which 0.55.2 is the first that allows it: five months
    younger.  All else stays at the date.
    """
    said = {name_of(word) for word in re.findall(NAME, conflict.text)}
    asked = {direct.name for direct in problem.directs}
    others = {name_of(row.turned) for row in problem.couplings if row.turned}
    directs = [direct for direct in problem.directs if direct.name in said | others]
    pins = tuple(direct.text for direct in directs if PIN.fullmatch(direct.specifier))
    rows = tuple(row.constraint for row in problem.couplings if row.binding)
    partners = {name_of(row) for row in rows} & said - asked - set(session.late)
    if not partners or not pins:
        return None
    question = Question(
        requirements=(*sorted(partners), *pins),
        constraints=rows,
        soft=False,
        lowest=True,
        binary=(":all:",),
    )
    try:
        found = session.ask(question)
    except ConflictError:
        return None
    younger = tuple(
        (name, one.version)
        for name, one in sorted(found.items())
        if name not in asked and one.uploaded >= as_of
    )
    if not partners & dict(younger).keys():
        return None
    named = ", ".join(f"{name} {version}" for name, version in younger)
    reason = f"{named}: the first that goes with {', '.join(pins)}, younger than {as_of}"
    return YoungerPartners(releases=younger, reason=reason)


def find_solved_date(
    request: Request, session: Session, task: Task, conflict: ConflictError
) -> str | None:
    """Return the first later ISO date that has an answer, in steps of the days of grace.

    The base stays as it is.  None where there is no answer today either, where a name is a trap
    (before the date it was somebody else's), and where the answer would have to be compiled, as its
    releases have wheels for other Pythons only.
    """
    first, latest = task.problem.as_of, request.latest
    if first is None or latest is None or first >= latest:
        return None
    if not request.later or conflict.traps:
        return None
    for constraints in dict.fromkeys((task.constraints, _turned_constraints(task, conflict))):
        question = Question(requirements=task.requirements, constraints=constraints)
        found = _first_solved(session, question, first, latest)
        if found is not None:
            break
    else:
        return None
    date, answer = found
    sources = [one for one in answer.values() if one.sdist and not one.wheels]
    if compiled_elsewhere(sources, session.indexes, session.context):
        return None
    return date


def _turned_constraints(task: Task, conflict: ConflictError) -> Texts:
    """Return the constraints with the other one of each couple bound.

    A later date may bring a release that needs no such bound: lightning-bolts 0.7 goes with the
    pytorch-lightning that 0.6 does not go with.
    """
    turned = {row.constraint: row.turned for row in conflict.couplings if row.turned}
    return tuple(turned.get(constraint, constraint) for constraint in task.constraints)


def _first_solved(
    session: Session, question: Question, first: str, latest: str
) -> tuple[str, Mapping[str, Chosen]] | None:
    """Return the first date after ``first`` at which a question has an answer, and the answer."""
    dates = [_days_after(first, GRACE_DAYS, latest)]
    while dates[-1] < latest:
        dates.append(_days_after(dates[-1], GRACE_DAYS, latest))
    answers: dict[str, Mapping[str, Chosen]] = {}

    def has_answer(date: str) -> bool:
        with suppress(ConflictError):
            answers[date] = session.ask(replace(question, as_of=date))
        return date in answers

    if not has_answer(latest):
        return None
    date = dates[bisect_left(dates[:-1], True, key=has_answer)]
    return date, answers[date]


def _days_after(day: str, days: int, latest: str) -> str:
    return min((read_date(day, "upload date") + dt.timedelta(days=days)).isoformat(), latest)
