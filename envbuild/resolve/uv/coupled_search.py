"""Search, and again while what is new breaks couplings among itself."""

from __future__ import annotations

from envbuild.resolve.conflict.explain import ConflictError, name_of
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.pylock import new_versions
from envbuild.resolve.uv.answer_checks.new_couplings import broken_couplings
from envbuild.resolve.uv.passes import Passes, Task
from envbuild.resolve.uv.resolution import SearchAnswer, older_directs
from envbuild.resolve.uv.session import Session
from envbuild.resolve.uv.tasks import bound_by, moved_base_task, turned_task

MOST_ROUNDS = 4
"""How often couplings of what is new may ask for another answer."""


def search_coupled(session: Session, task: Task) -> SearchAnswer:
    """Return an answer that keeps the couplings of what it brings.  Raises ConflictError.

    Where the one of two cannot give way, the other one is asked to: a pinned opencv-python of
    before numpy 2 takes numpy 1.  So it is where that would cost an older release of what is asked
    for.  A coupling that cannot be kept is a conflict: what breaks it installs and then fails to
    import.
    """
    more: tuple[Coupling, ...] = ()
    turned: Task | None = None
    first: ConflictError | None = None
    before: SearchAnswer | None = None
    for _ in range(MOST_ROUNDS):
        try:
            answer = _search(session, task)
        except ConflictError as conflict:
            conflict.couplings = more
            if first is None and turned is None:
                turned = moved_base_task(task, conflict.text)
            if turned is None:
                raise (first or conflict) from None
            task, turned, first = turned, None, conflict
            continue
        if before is not None and turned is not None and older_directs(before, answer):
            answer = _turn_if_newer(session, before, answer, turned)
        task = answer.task
        asked = {direct.name for direct in task.problem.directs}
        rows = _first_rows(broken_couplings(new_versions(answer.chosen), task.problem.stubs, asked))
        if not rows:
            break
        before = answer
        more = (*more, *rows)
        turned = turned_task(task, rows)
        task = bound_by(task, rows)
    return answer


def _first_rows(rows: tuple[Coupling, ...]) -> tuple[Coupling, ...]:
    """Return the rows without those about a release that another row takes away.

    Where imgaug takes numpy 1, what goes with numpy 2 alone does not matter.
    """
    moving = {row.package for row in rows}
    staying = [row for row in rows if row.turned is None or name_of(row.turned) not in moving]
    return tuple(staying) or rows


def _search(session: Session, task: Task) -> SearchAnswer:
    search = Passes(session, task)
    return SearchAnswer(session=session, task=task, search=search, chosen=search.run())


def _turn_if_newer(
    session: Session, before: SearchAnswer, answer: SearchAnswer, turned: Task
) -> SearchAnswer:
    """Return the answer of a turned task, where it keeps couplings and what is asked for."""
    try:
        other = _search(session, turned)
    except ConflictError:
        return answer
    return answer if older_directs(before, other) or _broken_by(other) else other


def _broken_by(answer: SearchAnswer) -> tuple[Coupling, ...]:
    """Return the couplings that an answer breaks."""
    problem = answer.task.problem
    asked = {direct.name for direct in problem.directs}
    return broken_couplings(new_versions(answer.chosen), problem.stubs, asked)
