"""From uv's answer to the resolution: files, requirements and builds that fit each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from envbuild.names import DIRECT, Texts
from envbuild.records import frozen_record
from envbuild.resolve.compose import Parts, compose, pick_file
from envbuild.resolve.graph import Edge, walk_requirements
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.platform import marker_environment, tag_order
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.sources.builds import resolve_builds
from envbuild.resolve.sources.wheel_agreement import require_agreement
from envbuild.resolve.uv.answer_checks.squatted_names import refuse_registered_anew
from envbuild.resolve.uv.passes import Passes, Task
from envbuild.resolve.uv.session import Session
from envbuild.resolve.versions import is_older


@frozen_record
class SearchAnswer:
    """What one search found, and the session and task that it was found with."""

    session: Session
    task: Task
    search: Passes
    chosen: Mapping[str, Chosen]


def make_resolution(request: Request, answer: SearchAnswer, notes: Texts) -> Resolution:
    """Check an answer's files against each other, and return it as the resolution of a request.

    Raises IntegrityError where the index and the files disagree, NoSolutionError for a name that
    another owner has taken, or where a build has no answer.
    """
    session, search, chosen = answer.session, answer.search, answer.chosen
    order = tag_order(request.facts)
    new = [package for package in chosen.values() if not package.from_base]
    files = {package.name: pick_file(package, order) for package in new}
    origins: dict[str, str] = {}
    if request.indexes:
        origins = session.origins({package.name: package.version for package in new})
    abouts = describe_files(files.values(), session.context)
    # from here on the files speak for themselves: uv went by what the index says of them
    edges = _find_edges(session, answer.task, files, abouts)
    require_agreement(edges, chosen, files, abouts, session.context)
    refuse_registered_anew(session, edges, files)
    builds = resolve_builds(session, answer=chosen, files=files, abouts=abouts, as_of=request.as_of)
    parts = Parts(
        problem=answer.task.problem,
        wanted=(*answer.task.wanted, *filter(None, (request.framework,))),
        facts=request.facts,
        answer=chosen,
        files=files,
        abouts=abouts,
        origins=origins,
    )
    return compose(
        parts,
        build=builds,
        held=search.held_back(chosen),
        notes=(
            *notes,
            *search.warnings,
            *_computed_notes(chosen, files, abouts),
            *_late_notes(session, chosen, dict(request.younger)),
            *search.notes,
        ),
    )


def _find_edges(
    session: Session, task: Task, files: Mapping[str, Candidate], abouts: Mapping[str, About]
) -> tuple[Edge, ...]:
    """Return the requirements in force, as the chosen files and the base themselves have them."""
    requires = {name: stub.requires for name, stub in session.stubs.by_name.items()}
    requires |= {name: abouts[file.sha256].requires for name, file in files.items()}
    return walk_requirements(
        [(DIRECT, text) for text in task.requirements], requires, marker_environment(session.facts)
    )


def _computed_notes(
    chosen: Mapping[str, Chosen], files: Mapping[str, Candidate], abouts: Mapping[str, About]
) -> Iterator[str]:
    """Yield notes about archives whose requirements only a build would tell for this base."""
    sources = {
        "packed": "setup.py, which is not run: taken are those of its author's machine",
        "built": "setup.py: taken are those of the wheel that an image's build made of it",
    }
    for name, file in sorted(files.items()):
        source = sources.get(abouts[file.sha256].read_from)
        if source is not None:
            yield f"{name} {chosen[name].version} computes its requirements in {source}"


def _late_notes(
    session: Session, chosen: Mapping[str, Chosen], younger: Collection[str]
) -> Iterator[str]:
    for name in session.late:
        if name in chosen and name not in younger:
            yield f"{name} {chosen[name].version}: there is none from before the date"


def older_directs(
    answer: SearchAnswer, other: SearchAnswer, but: Collection[str] = ()
) -> list[str]:
    """Return the direct requirements that another answer has in an older release."""
    names = [d.name for d in answer.task.problem.directs if d.name not in but]
    held = {name: answer.chosen[name].version for name in names if name in answer.chosen}
    return [name for name, version in held.items() if is_older(other.chosen, name, version)]
