"""A release without an extra that is asked for is no answer: look for one that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from packaging.version import Version

from envbuild.errors import NoSolutionError
from envbuild.names import Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.compose import pick_file
from envbuild.resolve.conflict.explain import HEADING, NO_EXTRA, ConflictError, name_of
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.platform import tag_order
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.sources.artifacts import describe_files
from envbuild.resolve.stubs import EXTRA, extras_named, parse_requirements
from envbuild.resolve.uv.query import Question
from envbuild.toml import closest

if TYPE_CHECKING:
    from envbuild.resolve.uv.passes import Task
    from envbuild.resolve.uv.session import Session

MOST_STEPS = 6
"""How many releases above one without the extra are looked at."""


@frozen_record
class MissingExtra:
    """A new package of an answer that has not the extra that a direct requirement asks for."""

    name: str
    version: str
    extra: str

    def __str__(self) -> str:
        """Say it for people."""
        return f"{self.name} {self.version} has no extra named {self.extra}"


def find_missing_extra(
    task: Task, warnings: Texts, answer: Mapping[str, Chosen]
) -> MissingExtra | None:
    """Return the first extra that is asked for and a new package lacks, by uv's warnings."""
    asked = {direct.name: direct.extras for direct in task.problem.directs}
    for warning in warnings:
        warned = NO_EXTRA.fullmatch(warning)
        chosen = answer.get(name_of(warned[1])) if warned else None
        if warned and chosen and not chosen.from_base and warned[2] in asked.get(chosen.name, ()):
            return MissingExtra(name=chosen.name, version=chosen.version, extra=warned[2])
    return None


def bound_for(session: Session, task: Task, lack: MissingExtra) -> Coupling:
    """Return the bound under which an answer has the extra, and why: above, else below.

    Raises NoSolutionError where no release has it, ConflictError where those that have it do not
    fit.
    """
    version, refused = lack.version, None
    # upwards first: an extra is mostly younger than the release that lacks it
    for _ in range(MOST_STEPS):
        bound = f"{lack.name}>{version}"
        try:
            found = _ask_bounded(session, task, bound)
        except ConflictError as conflict:
            refused = conflict
            break
        if find_missing_extra(task, session.warnings, found) is None:
            return _bound_row(bound, lack)
        version = found[lack.name].version
    # then back: an extra may have been taken out
    for bound in _older_bounds(lack):
        try:
            found = _ask_bounded(session, task, bound)
        except ConflictError:
            break
        if find_missing_extra(task, session.warnings, found) is None:
            return _bound_row(bound, lack)
    newest = session.newest(lack.name, as_of=task.problem.as_of)[lack.name]
    if refused is None or newest.version == version:
        raise _unknown_extra(session, task, replace(lack, version=version))
    refused.first_reasons = (
        f"{replace(lack, version=version)}, and that is the newest release that fits",
    )
    raise refused


def is_below(requires: Texts, extra: str | None, versions: Mapping[str, str]) -> bool:
    """Whether a version is below what an extra requires; a pin counts as a lower bound."""
    for requirement in parse_requirements(requires):
        version = versions.get(name_of(requirement.name))
        if extra is None or version is None or extra not in EXTRA.findall(str(requirement)):
            continue
        floors = [
            one.version for one in requirement.specifier if one.operator in (">=", "==", "~=", ">")
        ]
        if any(Version(version) < Version(floor.removesuffix(".*")) for floor in floors):
            return True
    return False


def _bound_row(bound: str, lack: MissingExtra) -> Coupling:
    reason = f"the extra {lack.extra}, which {lack.version} has not"
    return Coupling(package=lack.name, constraint=bound, reason=reason)


def _ask_bounded(session: Session, task: Task, bound: str) -> dict[str, Chosen]:
    constraints = (*task.constraints, bound)
    return session.ask(
        Question(
            requirements=task.requirements,
            constraints=constraints,
            as_of=task.problem.as_of,
            binary=task.binary,
        )
    )


def _older_bounds(lack: MissingExtra) -> Texts:
    """Return bounds that go back from a release: its line, its major version and the one before."""
    major, minor, *_ = (*Version(lack.version).release, 0)
    steps = [f"{major}.{minor}", *map(str, (major, major - 1)[:major])]
    return tuple(f"{lack.name}<{step}" for step in steps)


def _unknown_extra(session: Session, task: Task, lack: MissingExtra) -> NoSolutionError:
    """Return the error for an extra that no release of the date has, with those that there are."""
    known, _ = _newest_extras(session, lack.name, f"=={lack.version}", task.problem.as_of)
    what = f"{HEADING}\n- {lack}{closest(lack.extra, known)}"
    hint = f"leave [{lack.extra}] out of {lack.name}[{lack.extra}]"
    if task.problem.as_of is not None:
        later, newest = _newest_extras(session, lack.name, "", None)
        if lack.extra in later:
            what = (
                f"{HEADING}\n- {lack}; it is of before {task.problem.as_of}, and later ones are "
                "left out"
            )
            hint = (
                f"set as-of under [python] to a later date: {lack.name} {newest} has it\nor {hint}"
            )
    return NoSolutionError(what, hint=hint)


def _newest_extras(
    session: Session, name: str, bounds: str, as_of: str | None
) -> tuple[set[str], str]:
    """Return the extras of the newest release within bounds, and its version."""
    found = session.newest(name + bounds, as_of=as_of)[name]
    file = pick_file(found, tag_order(session.facts))
    about = describe_files([file], session.context)[file.sha256]
    return set(extras_named(about.requires)), found.version
