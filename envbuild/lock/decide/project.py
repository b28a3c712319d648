"""Resolve the project's requirements against its base, perhaps with another framework release."""

from __future__ import annotations

from contextlib import suppress

from packaging.utils import canonicalize_name

from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.decide.base import add_framework
from envbuild.lock.decide.base_description import BaseDescription, brought_alone
from envbuild.lock.decide.framework import is_pinned, other_release, refuse_line
from envbuild.lock.decide.options import LockTask
from envbuild.names import Texts
from envbuild.progress import SilentStage
from envbuild.recipe.model import Source
from envbuild.records import replace
from envbuild.resolve.backends import PAGE, RESOLVERS
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.sources.source_trees import SourceTree
from envbuild.toml import closest


def resolve_project(
    task: LockTask, base: BaseDescription, lines: Texts, trees: tuple[SourceTree, ...]
) -> tuple[BaseDescription, Resolution]:
    """Return the project's resolution and the base, perhaps with another framework release.

    ``lines`` are the requirements; those of source ``trees`` have a name and an exact version.
    Raises NoSolutionError about the release that was chosen first.
    """
    if not base.facts.python:
        return base, Resolution(packages=())

    request = _project_request(task, base, lines, trees)
    dated = f" as of {request.as_of}" if request.as_of else ""
    title = f"resolve the requirements{dated}"
    if request.framework is None or is_pinned(request.framework):
        return base, _resolve(task, request, title)
    # the framework was chosen by itself: another release of its line may suit the project,
    # so that a later date and what else would help are looked for last
    at_date = replace(request, hints=False, later=False)
    try:
        found = _resolve(task, at_date, title)
    except NoSolutionError as refusal:
        first = refusal
    else:
        return base, _resolve(task, request, title) if found.ancient else found
    resolver = RESOLVERS[task.options.resolver](task.context, SilentStage())
    pin = every = None
    try:
        pin = other_release(at_date, base, resolver)
    except NoSolutionError as refusal:
        every = refusal
    if pin is not None:
        with suppress(NoSolutionError):
            return _resolve_with(pin, task, base, lines, trees)
    if not request.hints and request.latest is None:
        raise refuse_line(first, every, request.framework)
    try:
        return base, _resolve(task, request, title)
    except NoSolutionError as refusal:
        raise refuse_line(refusal, every, request.framework) from None


def _resolve_with(
    pin: str, task: LockTask, base: BaseDescription, lines: Texts, trees: tuple[SourceTree, ...]
) -> tuple[BaseDescription, Resolution]:
    """Return the base with a framework's exact release, and the resolution on it."""
    other = add_framework(replace(base, facts=base.under or base.facts), task, bounds=(pin,))
    request = replace(_project_request(task, other, lines, trees), hints=False)
    resolution = _resolve(task, request, f"resolve the requirements with {pin}")
    note = (
        f"{pin} is taken, not {base.facts.framework}: the requirements have no solution with that "
        "one"
    )
    return other, replace(resolution, notes=(note, *resolution.notes))


def refuse_unused(source: Source, resolution: Resolution) -> None:
    """Raise UsageError for a name in from-source that no package has."""
    known = {found.name for found in resolution.packages}
    for name in source.recipe.python.from_source:
        if canonicalize_name(name) not in known:
            raise UsageError(
                f'[python] from-source names "{name}", which no requirement brings'
                f"{closest(canonicalize_name(name), known)}",
                where=source.path,
                hint="write it into dependencies too, or leave it out",
            )


def _project_request(
    task: LockTask, base: BaseDescription, lines: Texts, trees: tuple[SourceTree, ...]
) -> Request:
    recipe, options = task.recipe, task.options
    # a date that nobody chose may be moved; one of the recipe or the command line may not
    latest = task.today.isoformat() if task.chosen_date is None else None
    return Request(
        requirements=lines,
        archives=tuple((tree.file, str(tree.path)) for tree in trees),
        facts=base.bare or base.facts,
        indexes=recipe.python.indexes,
        as_of=task.as_of(base.facts),
        latest=latest,
        keep=(*brought_alone(base, lines), *options.kept_versions),
        upgrade=options.upgrade,
        refresh=options.refresh,
        bounds=options.bounds,
        protect=base.protect,
        framework=recipe.base.framework if base.framework else None,
        from_source=recipe.python.from_source,
        hints=options.hints,
    )


def _resolve(task: LockTask, request: Request, title: str) -> Resolution:
    with task.context.report.stage(title, unit=PAGE) as stage:
        return RESOLVERS[task.options.resolver](task.context, stage)(request)
