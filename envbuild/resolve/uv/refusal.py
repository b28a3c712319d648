"""A refusal: a conflict as it travels, and as it is told once nothing else is left to try."""

from __future__ import annotations

from envbuild.errors import NoSolutionError
from envbuild.resolve.conflict.explain import (
    HEADING,
    ConflictError,
    clashes_of,
    name_of,
    no_solution,
)
from envbuild.resolve.conflict.local_builds import advise_local_builds
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
