"""Make a task of a request, and change it: more couplings, the other one of two giving way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.errors import NoSolutionError
from envbuild.names import Texts
from envbuild.records import replace
from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.conflict.explain import HEADING, Problem, mentioned_names, name_of
from envbuild.resolve.couplings import (
    NO_RELEASE,
    Coupling,
    built_for,
    couplings_for,
    extras_for,
    framework_versions,
    protected_names,
)
from envbuild.resolve.model import Request
from envbuild.resolve.platform import marker_environment
from envbuild.resolve.requirements import Direct, read_directs
from envbuild.resolve.stubs import Stubs, extras_named, parse_requirements, plan_stubs
from envbuild.resolve.uv.passes import Task

CUDA_EXTRA = re.compile(r"cu(?:da)?[-_]?(1\d)")
"""The CUDA version in the name of an extra: cuda11_local, cu12."""


def make_task(request: Request, *, built: bool = True, extras: bool = True) -> tuple[Task, Texts]:
    """Return what is searched for, and notes about what was left out of it.

    Raises UsageError, and NoSolutionError for an extra of another CUDA that the base lacks.
    With ``built`` a source-only package is asked for under the name of its wheels for the base's
    CUDA, with ``extras`` packages are asked for with those that carry bounds.
    """
    facts = request.facts
    stubs = plan_stubs(
        facts,
        protected=protected_names(facts, request.protect),
        aliases=stand_ins(),
        whole=request.protect if request.framework else (),
    )
    directs, notes = read_directs(
        request.requirements, environment=marker_environment(facts), stubs=stubs
    )
    _refuse_other_cuda(directs, stubs, _base_cuda(request, stubs))
    if built:
        directs, told = _take_wheels(directs, facts, stubs)
        notes += told
    names = {direct.name for direct in directs}
    added = extras_for(names, stubs) if extras else {}
    directs = tuple(replace(direct, added=added.get(direct.name)) for direct in directs)
    rows = _rows_for(request, names, stubs)
    problem = Problem(
        directs=directs,
        stubs=stubs,
        couplings=rows,
        as_of=request.as_of,
        facts=facts,
        framework=request.framework,
    )
    asked = [row.also for row in rows if row.package in names]
    also = [other for other in asked if other and other not in stubs.by_name]
    binding = [row.constraint for row in rows if row.binding]
    younger = [f"{name}=={version}" for name, version in request.younger]
    task = Task(
        problem=problem,
        roots=(*stubs.roots, *_unbound_framework(request.framework)),
        wanted=(*also, *(direct.text for direct in directs)),
        constraints=(*request.bounds, *binding, *younger),
        keep=tuple(pin for pin in request.keep if pin[0] not in request.upgrade),
    )
    return task, (*stubs.notes, *notes)


def _take_wheels(
    directs: tuple[Direct, ...], facts: BaseFacts, stubs: Stubs
) -> tuple[tuple[Direct, ...], Texts]:
    """Return the requirements with source-only packages under the names of their wheels, and notes.

    cupy is source only: its wheels have names of their own, one for each CUDA.
    """
    plain = {direct.name for direct in directs if not direct.extras}
    wheels = built_for(plain, facts, stubs)
    taken = tuple(_by_wheels(direct, wheels) for direct in directs)
    replaced = [direct.instead for direct in taken if direct.instead]
    notes = [f"{wheels[name]} stands for {name}, which is source only" for name in replaced]
    return taken, tuple(notes)


def _rows_for(request: Request, names: set[str], stubs: Stubs) -> tuple[Coupling, ...]:
    """Return the couplings of what is asked for."""
    rows = couplings_for(request.facts, stubs, names)
    # a row that leaves no release is about the wheels: what is compiled in the base fits it
    compiled = set(map(canonicalize_name, request.from_source))
    return tuple(
        row
        for row in rows
        if row.package not in compiled or not row.constraint.endswith(NO_RELEASE)
    )


def _base_cuda(request: Request, stubs: Stubs) -> str:
    """Return the major version of CUDA: the base's, else by the extra of a chosen framework."""
    held = framework_versions(request.facts, stubs).get("cuda", "").partition(".")[0]
    chosen = Requirement(request.framework).extras if request.framework else ()
    named = [CUDA_EXTRA.match(extra) for extra in sorted(chosen)]
    return held or next((found[1] for found in named if found), "")


def _refuse_other_cuda(directs: Iterable[Direct], stubs: Stubs, cuda: str) -> None:
    """Raise NoSolutionError for an extra that the base's release lacks, for another CUDA."""
    for direct in directs:
        if not cuda or not stubs.hard(direct.name):
            continue
        stub = stubs.by_name[direct.name]
        known = set(map(canonicalize_name, extras_named(stub.requires)))
        named = {extra: CUDA_EXTRA.match(extra) for extra in direct.extras}
        asked = {extra: found[1] for extra, found in named.items() if found and found[1] != cuda}
        lacking = next((extra for extra in asked if canonicalize_name(extra) not in known), None)
        if lacking is None:
            continue
        raise NoSolutionError(
            f"{HEADING}\n- {stub.name} {stub.real} has no extra named {lacking}; {stub.holder} CUDA "
            f"{cuda}",
            hint=(
                f"write {direct.name}{direct.specifier} to keep CUDA {cuda}\nor take a base with "
                f"CUDA {asked[lacking]}"
            ),
        )


def _by_wheels(direct: Direct, wheels: Mapping[str, str]) -> Direct:
    """Return a direct requirement under the name of its wheels, where it has such."""
    if direct.name not in wheels or direct.extras:
        return direct
    return replace(direct, name=wheels[direct.name], instead=direct.name)


def _unbound_framework(framework: str | None) -> Texts:
    """Return a chosen framework with its extras: of its own release there is one stub."""
    found = []
    for requirement in parse_requirements((framework,) if framework else ()):
        extras = ",".join(sorted(requirement.extras))
        found.append(f"{requirement.name}[{extras}]" if extras else requirement.name)
    return tuple(found)


def bound_by(task: Task, rows: tuple[Coupling, ...]) -> Task:
    """Return a task that keeps to more couplings, with what they ask for beside their packages."""
    problem = replace(task.problem, couplings=(*task.problem.couplings, *rows))
    also = dict.fromkeys(row.also for row in rows if row.also and row.also not in task.wanted)
    return replace(
        task,
        problem=problem,
        wanted=(*filter(None, also), *task.wanted),
        constraints=(*task.constraints, *(row.constraint for row in rows)),
    )


def turned_task(task: Task, rows: tuple[Coupling, ...]) -> Task | None:
    """Return a task in which each row's other side gives way; None where one cannot."""
    bounds = [row.turned for row in rows if row.turned is not None]
    if len(bounds) < len(rows):
        return None
    hard = task.problem.stubs.hard
    if any(hard(name_of(bound)) for bound in bounds):
        return None
    return replace(task, constraints=(*task.constraints, *dict.fromkeys(bounds)))


def moved_base_task(task: Task, text: str) -> Task | None:
    """Return a task in which packages of the base give way whose couplings a conflict speaks of.

    ``text`` is the conflict's derivation.  A numpy 2 that nothing protects becomes numpy 1 for
    a pinned matplotlib 3.7.  None where no such package may move.
    """
    problem, said = task.problem, mentioned_names(text)
    stubs = problem.stubs
    others = {row.turned: name_of(row.turned) for row in problem.couplings if row.turned}
    # the base's CUDA and cuDNN are facts, and no packages
    held = stubs.by_name
    soft = {row: name for row, name in others.items() if name in held and not held[name].hard}
    bounds = [row.turned for row in problem.couplings if row.turned in soft and row.package in said]
    moving = {soft[bound] for bound in bounds if bound}
    if not moving:
        return None
    kept = tuple(row for row in problem.couplings if soft.get(row.turned or "") not in moving)
    dropped = {row.constraint for row in problem.couplings} - {row.constraint for row in kept}
    constraints = [line for line in task.constraints if line not in dropped]
    return replace(
        task,
        problem=replace(problem, couplings=kept),
        constraints=(*constraints, *dict.fromkeys(filter(None, bounds))),
    )
