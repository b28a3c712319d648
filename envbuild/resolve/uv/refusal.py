"""A refusal: a conflict as it travels, and as it is told once nothing else is left to try."""

from __future__ import annotations

import re
from collections.abc import Collection

from envbuild.errors import NoSolutionError
from envbuild.names import Texts
from envbuild.net.index import index_variable
from envbuild.resolve.conflict.explain import (
    HEADING,
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
    read = gather_clashes(session, conflict, problem)
    known = {(name_of(clash.subject), clash.stub.name) for clash in read}
    also = (
        c for c in clashes_of(conflict, problem) if (name_of(c.subject), c.stub.name) not in known
    )
    clashes = tuple(dict.fromkeys((*read, *also)))
    if not hints:
        return no_solution(conflict, problem, clashes)
    advice = (
        *advise_local_builds(problem, session.indexes),
        *suggest_changes(session, task, conflict, clashes),
    )
    return no_solution(conflict, problem, clashes, advice)


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
