"""Notice ancient releases: an early one that names no bounds fits everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from envbuild.errors import HostError
from envbuild.records import replace
from envbuild.resolve.conflict.explain import ConflictError
from envbuild.resolve.dates import read_date
from envbuild.resolve.pylock import Chosen, new_versions
from envbuild.resolve.uv.query import Question
from envbuild.resolve.versions import adds_previews, is_older

OLD_DAYS = 730
SECONDS = 10.0
MOST = 4
Ask = Callable[[Question], dict[str, Chosen]]


def without_ancient(
    answer: dict[str, Chosen], last: Question, fixed: Collection[str], ask: Ask
) -> dict[str, Chosen]:
    """Return an answer in which no package is ancient only to keep another one as it is.

    ``last`` is the question that the answer is to; ``fixed`` are direct requirements and what the
    base holds, which are not tried.  Nothing that is new may become older by it, and none of it a
    preview that was a release.
    """
    old = [name for name in _old_names(answer) if name not in fixed]
    if not old:
        return answer
    # without dependencies uv lists releases only: one quick question about all of them
    alone = replace(last, requirements=tuple(old), seed=(), deps=False, soft=False, seconds=SECONDS)
    try:
        newest = ask(alone)
    except (ConflictError, HostError):
        return answer
    behind = [
        name for name in old if name in newest and is_older(answer, name, newest[name].version)
    ]
    for name in behind[:MOST]:
        floor = f"{name}>{answer[name].version}"
        try:
            found = ask(replace(last, constraints=(*last.constraints, floor), seconds=SECONDS))
        except (ConflictError, HostError):
            continue
        others = new_versions(answer)
        # what pulls another package back is no gain
        worse = any(is_older(found, other, version) for other, version in others.items())
        if not worse and not adds_previews(answer, found):
            answer, last = found, replace(last, constraints=(*last.constraints, floor))
    return answer


def _old_names(answer: Mapping[str, Chosen]) -> list[str]:
    """Return what was uploaded long before the newest package of an answer, in order."""
    days = {name: one.uploaded for name, one in answer.items() if one.uploaded}
    if not days:
        return []
    latest = max(days.values())
    end = read_date(latest, "upload date")
    return sorted(
        name for name, day in days.items() if (end - read_date(day, name)).days > OLD_DAYS
    )
