"""A refusal: a conflict as it travels, and as it is told once nothing else is left to try."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from envbuild.errors import NoSolutionError
from envbuild.names import Texts
from envbuild.net.index import index_variable
from envbuild.resolve.conflict.explain import (
    HEADING,
    Clash,
    ConflictError,
    Problem,
    clashes_of,
    name_of,
    no_solution,
)
from envbuild.resolve.conflict.metadata import gather_clashes, with_others
from envbuild.resolve.conflict.suggestions import suggest_changes
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.session import Session


class UnexplainedError(NoSolutionError):
    """A conflict before it is explained, which takes seconds: another attempt may still succeed."""

    def __init__(self, session: Session, task: Task, conflict: ConflictError) -> None:
        super().__init__(HEADING)
        self.session = session
        self.task = task
        self.conflict = conflict


def refusal_error(refusal: UnexplainedError, *, hints: bool) -> NoSolutionError:
    """Return the error that tells a conflict: who wants what; with ``hints`` what would help."""
    session, task = refusal.session, refusal.task
    problem = task.problem
    conflict = with_others(session, refusal.conflict, problem)
    # from files, then in uv's words: of those about one pair the first is told
    found = (*gather_clashes(session, conflict, problem), *clashes_of(conflict, problem))
    pairs: dict[tuple[str, str], Clash] = {}
    for clash in _of_newest_releases(found):
        pairs.setdefault((name_of(clash.subject), clash.stub.name), clash)
    clashes = tuple(pairs.values())
    if not hints:
        return no_solution(conflict, problem, clashes)
    advice = (
        *advise_local_builds(problem, session.indexes),
        *suggest_changes(session, task, conflict, clashes),
    )
    return no_solution(conflict, problem, clashes, advice)


def _of_newest_releases(clashes: Iterable[Clash]) -> list[Clash]:
    """Return the clashes of the newest releases that are told of, for each package.

    A resolver goes through all releases; what the newest one needs is what a user wants to know.
    """
    newest: dict[str, Version] = {}
    releases = {clash: _first_release(clash.subject) for clash in clashes}
    for clash, release in releases.items():
        name = name_of(clash.subject)
        newest[name] = max(release, newest.get(name, release))
    return [
        clash for clash, release in releases.items() if release == newest[name_of(clash.subject)]
    ]


def _first_release(subject: str) -> Version:
    """Return the first release of what a clash is about: 0.12.0 of "deepcell>=0.12.0,<1"."""
    try:
        bounds = Requirement(subject).specifier
    except InvalidRequirement:
        return Version("0")
    lower = [Version(one.version) for one in bounds if one.operator in (">=", ">", "==")]
    return max(lower, default=Version("0"))


LOCAL = re.compile(r"==\s*[^,;\s=]*\+([A-Za-z0-9][A-Za-z0-9.]*)")


def advise_local_builds(problem: Problem, indexes: Collection[str]) -> Texts:
    """Return how to name the index of such builds, where the recipe names none yet."""
    # a build of what the base holds is refused, whatever index has it
    free = [one.written for one in problem.directs if one.name not in problem.stubs.by_name]
    found = LOCAL.search("\n".join(free))
    if found is None or len(indexes) > 1:
        return ()
    name = found[1]
    advice = (
        f'name the index of the builds "+{name}": indexes = ["{name}"] under [python], '
        f"and its address on this machine: export {index_variable(name)}=https://…"
    )
    return (advice,)
