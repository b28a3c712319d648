"""The GPU rule: a framework that the recipe names is the GPU's build, or an error says what lacks.

Without a GPU before it a solver takes the build for the CPU and says nothing; among GPU builds it
goes by the time of upload.  Here both are constraints: the build, and the target's CUDA version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rattler import MatchSpec, PackageRecord, RepoDataRecord

from envbuild.conda.model import CondaRequest, GpuTarget
from envbuild.conda.solve import Solver
from envbuild.conda.target import cuda_of_target, driver_too_old, toolkit_ranges
from envbuild.data.lookup import numbers
from envbuild.data.package_tables import load_conda
from envbuild.errors import NoSolutionError
from envbuild.names import Texts
from envbuild.recipe.conda import spec_name

PIN = "cuda-version"
ANY = "any"
"""The toolkit of a GPU build that does not tell its own."""
HOW_TO_SAY = (
    '[target] driver = "550.54.14" and gpu = ["A100"] in the recipe, or envbuild lock NAME '
    "--for SITE:PARTITION\nor write cpu = true under [base], if the image is for the CPU"
)
Records = list[RepoDataRecord]


@dataclass(frozen=True, kw_only=True)
class _Builds:
    """The GPU builds of one framework: build strings by toolkit; whether the recipe names it."""

    name: str
    asked: bool
    by_toolkit: dict[str, set[str]]

    def within(self, since: str, until: str) -> list[str]:
        """Return the toolkits of a range, newest first; last that of builds that tell none."""
        known = [toolkit for toolkit in self.by_toolkit if toolkit != ANY]
        fitting = [t for t in known if numbers(since) <= numbers(t) < numbers(until)]
        fitting.sort(key=numbers, reverse=True)
        return fitting + [ANY] * (ANY in self.by_toolkit)

    def constraint(self, toolkits: Sequence[str]) -> str:
        """Return the match spec of the builds of these toolkits."""
        builds: set[str] = set()
        for toolkit in toolkits:
            builds |= self.by_toolkit.get(toolkit, set())
        pattern = "|".join(re.escape(build) for build in sorted(builds))
        return f'{self.name}[build="^({pattern})$"]'


def solve_with_gpu(solver: Solver, keep: Records) -> tuple[Records, Texts]:
    """Return the records of an environment that obeys the rule, and notes.

    Raises NoSolutionError: no solution, or none with the GPU builds that the recipe asks for.
    """
    plain = solver.solve(keep=keep)
    request = solver.request
    # what a base holds is the base's: its own facts and checks judge it
    names = {record.name.normalized for record in plain} - request.held
    _refuse_held_cpu_build(plain, request)
    frameworks = sorted(names & load_conda().frameworks)
    if request.cpu or not (frameworks or PIN in names):
        return plain, ()
    builds = _gpu_builds(solver, frameworks)
    asked = [item for item in builds if item.asked]
    if cuda_of_target(request.target) is None:
        _refuse_unknown_target({item.name for item in asked}, plain, request)
        return plain, cpu_notes(plain)
    ranges = toolkit_ranges(request.target)
    if not ranges and (asked or PIN in names):
        _refuse_old_driver(asked[0].name if asked else PIN, request)
    found = _first_solution(solver, keep, builds, ranges)
    # frameworks that only came along may stay builds for the processor
    if found is None and len(asked) < len(builds):
        found = _first_solution(solver, keep, asked, ranges)
    if found is None and asked:
        raise NoSolutionError(_why_none(asked, request, ranges, solver), hint=HOW_TO_SAY)
    found = found or plain
    _refuse_other_cuda(found, request, ranges)
    return found, cpu_notes(found)


def _refuse_held_cpu_build(records: Records, request: CondaRequest) -> None:
    """Raise NoSolutionError for a framework that is asked for and that a base has for the CPU."""
    asked = request.held & _asked_names(request) & load_conda().frameworks
    for record in records:
        name = record.name.normalized
        if not request.cpu and name in asked - _chosen_names(request) and not gpu_toolkit(record):
            raise NoSolutionError(
                f"the base holds {name} {record.version} as a build for the CPU ({record.build}), "
                "which stays as it is",
                where="[conda] dependencies",
                hint="take a base without it, or write cpu = true under [base]",
            )


def gpu_toolkit(record: PackageRecord) -> str | None:
    """Return the CUDA toolkit ("12.6") of a build for the GPU, ANY where it tells none; None: CPU.

    The lower bound of what it requires tells, then its build string (cuda126_…), then its flags.
    """
    table = load_conda()
    build = re.search(table.builds, str(record.build))
    requires = {spec.split()[0]: spec for spec in record.depends if spec.strip()}
    of_gpu = bool(table.depends & set(requires) or build or table.flags & set(record.flags))
    if not of_gpu or "cpu" in record.flags:
        return None
    for name in (PIN, "cudatoolkit", "pytorch-cuda"):
        bound = re.search(r"(\d{1,9}\.\d+)", requires.get(name, ""))
        if bound:
            return bound[1]
    return f"{build[1]}.{build[2]}" if build and build[1] else ANY


def _gpu_builds(solver: Solver, frameworks: Sequence[str]) -> list[_Builds]:
    """Return the GPU builds of frameworks; those whose build the recipe chooses are left out."""
    found = {
        name: _Builds(name=name, asked=name in _asked_names(solver.request), by_toolkit={})
        for name in frameworks
        if name not in _chosen_names(solver.request)
    }
    for record in solver.records(list(found)):
        toolkit = gpu_toolkit(record)
        if toolkit is not None:
            builds = found[record.name.normalized].by_toolkit
            builds.setdefault(toolkit, set()).add(str(record.build))
    # what has no GPU build in these channels at all is no question, unless it is asked for
    return [item for item in found.values() if item.by_toolkit or item.asked]


def _first_solution(
    solver: Solver,
    keep: Records,
    builds: Sequence[_Builds],
    ranges: Sequence[tuple[str, str]],
) -> Records | None:
    for constraints in _constraint_sets(builds, ranges):
        try:
            records = solver.solve(constraints, keep)
        except NoSolutionError:
            continue
        names = {item.name for item in builds}
        ours = [record for record in records if record.name.normalized in names]
        if all(gpu_toolkit(record) is not None for record in ours):
            return records
    return None


def _constraint_sets(
    builds: Sequence[_Builds], ranges: Sequence[tuple[str, str]]
) -> Iterator[list[str]]:
    """Yield what to demand, best first: the newest toolkit that fits, and cuda-version at it."""
    for since, until in ranges:
        whole = f"{PIN} >={since},<{until}.0a0"
        if not builds:
            yield [whole]
            continue
        fitting = [(item, item.within(since, until)) for item in builds]
        if not all(toolkits for _, toolkits in fitting):
            continue
        others = [item.constraint(toolkits) for item, toolkits in fitting[1:]]
        first, toolkits = fitting[0]
        for toolkit in toolkits:
            own = first.constraint([toolkit])
            if toolkit != ANY:
                yield [f"{PIN} {toolkit}.*", own, *others]
            yield [whole, own, *others]


def _asked_names(request: CondaRequest) -> set[str]:
    names = {spec_name(spec) for spec in request.specs}
    return names | {load_conda().through.get(name, name) for name in names}


def _chosen_names(request: CondaRequest) -> set[str]:
    """Return the names whose build or flags the recipe itself says: "pytorch * cpu*"."""
    found = set()
    for spec in request.specs:
        parsed = MatchSpec(spec.rpartition("::")[2])
        if parsed.build is not None or "flags" in spec:
            found.add(spec_name(spec))
    return found


def _refuse_unknown_target(asked: set[str], plain: Records, request: CondaRequest) -> None:
    missing = "the driver of the nodes" if request.target.capabilities else "the nodes"
    for record in plain:
        if record.name.normalized in asked and gpu_toolkit(record) is None:
            raise NoSolutionError(
                f"{record.name.normalized} {record.version} would be the build {record.build}: GPU "
                f"builds need __cuda, and nothing says {missing}",
                where="[conda] dependencies",
                hint=HOW_TO_SAY,
            )


def _refuse_old_driver(name: str, request: CondaRequest) -> None:
    target = request.target
    needed = driver_too_old(target)
    cards = _cards(target.capabilities)
    raise NoSolutionError(
        f"no CUDA runs on these nodes: cards of capability {cards} need driver {needed}, they have "
        f"{target.driver}"
        if needed
        else f"no one CUDA has code for all cards of capability {cards} under driver "
        f"{target.driver}",
        where=f"[conda] dependencies, {name}",
        hint="correct [target], or make one image for each kind of node",
    )


def _why_none(
    asked: Sequence[_Builds],
    request: CondaRequest,
    ranges: Sequence[tuple[str, str]],
    solver: Solver,
) -> str:
    target = request.target
    for item in asked:
        if not item.by_toolkit:
            return f"the channels {', '.join(request.channels)} have no GPU build of {item.name}"
        if not any(item.within(since, until) for since, until in ranges):
            known = ", ".join(sorted((t for t in item.by_toolkit if t != ANY), key=numbers))
            return f"{item.name} has GPU builds for CUDA {known}; {_needed_cuda(target, ranges)}"
    constraints = next(_constraint_sets(asked, ranges))
    try:
        solver.solve(constraints)
    except NoSolutionError as error:
        return f"no GPU build of {asked[0].name} fits the rest: {error}"
    return f"no GPU build of {asked[0].name} fits the rest"


def _refuse_other_cuda(
    records: Records, request: CondaRequest, ranges: Sequence[tuple[str, str]]
) -> None:
    """Raise NoSolutionError where the recipe itself asks for a CUDA that the nodes do not run."""
    pins = [str(one.version) for one in records if one.name.normalized in {PIN} - request.held]
    for pin in pins:
        version = numbers(pin)
        if not any(numbers(since) <= version < numbers(until) for since, until in ranges):
            raise NoSolutionError(
                f"{PIN} {pin} is asked for; {_needed_cuda(request.target, ranges)}",
                where="[conda] dependencies",
                hint="leave the choice of CUDA to envbuild, or correct [target]",
            )


def _needed_cuda(target: GpuTarget, ranges: Sequence[tuple[str, str]]) -> str:
    spans = " or ".join(f">={since},<{until}" for since, until in ranges)
    cards = f" and cards of {_cards(target.capabilities)}" if target.capabilities else ""
    return f"driver {target.driver}{cards} need {spans}"


def _cards(capabilities: Sequence[int]) -> str:
    return ", ".join(f"{value // 10}.{value % 10}" for value in capabilities)


def cpu_notes(records: Records) -> Texts:
    """Say which frameworks will compute on the CPU."""
    names = load_conda().frameworks
    ours = [record for record in records if record.name.normalized in names]
    return tuple(
        f"{record.name.normalized} {record.version} is a build for the CPU ({record.build})"
        for record in ours
        if gpu_toolkit(record) is None
    )
