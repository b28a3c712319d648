"""The newest releases of an index for a base's Python and machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import NoSolutionError
from envbuild.names import DIRECT
from envbuild.resolve.compose import found_file, pick_file
from envbuild.resolve.conflict.explain import HEADING, MISSING, ConflictError, mentioned_names
from envbuild.resolve.model import Found, Resolution
from envbuild.resolve.platform import tag_order
from envbuild.resolve.sources.artifacts import About
from envbuild.resolve.stubs import Stubs
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.session import Session


def newest_releases(
    names: Collection[str], facts: BaseFacts, *, indexes: Mapping[str, str], context: Context
) -> dict[str, str]:
    """Return the newest version of each name; one that the index no longer has is left out.

    ``indexes`` maps names to URLs in the order in which they are asked, "default" last.
    """
    with context.store.outside(context.settings.tmpdir) as place:
        session = Session(
            folder=place, facts=facts, stubs=Stubs({}), indexes=indexes, context=context
        )
        return _ask_newest(session, sorted(names))


def find_alone(session: Session, task: Task) -> Resolution:
    """Return the newest release of each requirement, without sizes and what they require.

    Raises NoSolutionError.
    """
    date, bounds = task.problem.as_of, task.constraints
    try:
        answer = session.newest(*task.wanted, as_of=date, constraints=bounds)
    except ConflictError:
        raise NoSolutionError(HEADING) from None
    order = tag_order(session.facts)
    packages = (
        Found(
            name=name,
            version=one.version,
            file=found_file(pick_file(one, order), About(size=0)),
            via=(DIRECT,),
        )
        for name, one in answer.items()
    )
    return Resolution(packages=tuple(packages))


def _ask_newest(session: Session, names: list[str]) -> dict[str, str]:
    try:
        found = session.newest(*names)
    except ConflictError as conflict:
        # uv ends at what is missing: that is left out, and the rest is asked for again
        gone = {*MISSING.findall(conflict.text), *mentioned_names(conflict.text)} & set(names)
        return _ask_newest(session, [name for name in names if name not in gone]) if gone else {}
    return {name: chosen.version for name, chosen in found.items()}
