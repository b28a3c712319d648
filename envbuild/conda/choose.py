"""From a request to the packages of an environment."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rattler import RepoDataRecord

from envbuild.conda.gpu import cpu_notes, solve_with_gpu
from envbuild.conda.model import CondaFound, CondaRequest, CondaSolution
from envbuild.conda.solve import Solver, open_solver, refuse_vendor_records
from envbuild.conda.target import virtual_packages
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError, UsageError
from envbuild.names import Texts
from envbuild.net.channels import channel_urls
from envbuild.records import replace
from envbuild.settings import Settings

T = TypeVar("T")


def choose_conda(request: CondaRequest, context: Context) -> CondaSolution:
    """Return the packages of an environment.

    Raises NoSolutionError in the solver's words or those of the GPU rule, NetworkError, UsageError
    for a channel that is not allowed, IntegrityError for a record that no lock may hold.
    """
    solver, (records, notes) = _ask_in_turn(request, _choose_records, context)
    there = {item.key for item in request.installed}
    brought = [record for record in records if _key_of(record) not in there]
    refuse_vendor_records(brought, context)
    found = sorted((solver.found(record) for record in brought), key=lambda item: item.name)
    refuse_licenses(found, context.settings)
    names = {item.name for item in found}
    virtual = tuple(
        f"{name}={version}" if build == "0" else f"{name}={version}={build}"
        for name, version, build in virtual_packages(request)
    )
    replaced = tuple(item for item in request.installed if item.name in names)
    return CondaSolution(packages=tuple(found), virtual=virtual, notes=notes, replaced=replaced)


def _ask_in_turn(
    request: CondaRequest, question: Callable[[Solver], T], context: Context
) -> tuple[Solver, T]:
    """Return the solver whose channels answered, and its answer; each address is tried in turn."""
    turns = max(len(channel_urls(context.settings, name)) for name in request.channels)
    turn = 0
    while True:
        solver = open_solver(request, context, turn)
        try:
            return solver, question(solver)
        except NetworkError as error:
            turn += 1
            if turn == turns:
                raise
            context.report.say(f"{error}; asking the next address")


def _key_of(record: RepoDataRecord) -> tuple[str, str, str]:
    return record.name.normalized, str(record.version), str(record.build)


def _choose_records(solver: Solver) -> tuple[list[RepoDataRecord], Texts]:
    request = solver.request
    if request.given:
        return _take_given(solver)
    keep, free = _kept_records(solver), replace(request, movable=frozenset())
    if not request.installed:
        return solve_with_gpu(solver, keep)
    # a base stays as it is where that can be; only then what may move of it does
    try:
        return solve_with_gpu(replace(solver, request=free), keep)
    except NoSolutionError:
        if not request.movable:
            raise
        return solve_with_gpu(solver, keep)


def _take_given(solver: Solver) -> tuple[list[RepoDataRecord], Texts]:
    """Return the channels' records of a given environment, whose hashes they must have."""
    given = {archive.file: archive for archive in solver.request.given}
    records = solver.solve(more=[archive.spec for archive in given.values()])
    more = sorted(record.file_name for record in records if record.file_name not in given)
    if more:
        raise NoSolutionError(
            f"what is given is not whole: it also needs {', '.join(more[:5])}",
            hint="the recipe may ask for more than the list has; or lock without --from",
        )
    for record in records:
        archive = given[record.file_name]
        known = {record.sha256.hex() if record.sha256 else None, record.md5 and record.md5.hex()}
        hashes = {archive.sha256, archive.md5} - {None}
        if hashes and not hashes <= known:
            raise IntegrityError(
                "the channel offers another file of that name than the list", where=archive.file
            )
    return records, cpu_notes(records)


def locked_records(
    request: CondaRequest, sums: Mapping[str, str], context: Context
) -> tuple[Solver, list[RepoDataRecord]]:
    """Return the channels' records of locked archives; ``sums`` has sha256 by file name.

    Raises NetworkError for what the channels no longer have.
    """
    solver = open_solver(request, context)
    names = sorted({file.rsplit("-", 2)[0] for file in sums})
    found = {
        record.file_name: record
        for record in solver.records(names)
        if record.sha256 is not None and record.sha256.hex() == sums.get(record.file_name)
    }
    gone = sorted(set(sums) - set(found))
    if gone:
        raise NetworkError(
            f"the channels no longer list {', '.join(gone[:5])}",
            where=", ".join(request.channels),
            hint="--format conda-explicit and environment need no channel",
        )
    return solver, [found[file] for file in sums]


def newest_versions(
    request: CondaRequest, names: Sequence[str], context: Context
) -> Mapping[str, str]:
    """Return the newest version of each name that the channel which has it first offers."""
    newest: dict[str, RepoDataRecord] = {}
    owner: dict[str, str] = {}
    _, records = _ask_in_turn(request, lambda solver: solver.records(names), context)
    for record in records:
        name = record.name.normalized
        # the channels come in their order, and the first that has a name owns it
        if owner.setdefault(name, record.channel) != record.channel:
            continue
        if name not in newest or newest[name].version < record.version:
            newest[name] = record
    return {name: str(record.version) for name, record in newest.items()}


def _kept_records(solver: Solver) -> list[RepoDataRecord]:
    """Return the channels' records of what the old lock has; what is gone is left out."""
    kept = solver.request.keep
    if not kept:
        return []
    names = sorted({file.rsplit("-", 2)[0] for file in kept})
    return [record for record in solver.records(names) if record.file_name in kept]


def refuse_licenses(packages: Sequence[CondaFound], settings: Settings) -> None:
    """Raise UsageError for a package whose licence the settings deny.

    Licences are SPDX expressions: of what is joined by OR, one that is not denied is enough.
    """
    for package in packages:
        denied = denied_license(package.license or "", settings.licenses_denied)
        if denied is not None:
            raise UsageError(
                f"{package.name} {package.version} is under {package.license}, which the settings "
                f'deny ("{denied}")',
                where=settings.config,
                hint="take another package, or take the pattern out of [conda] deny-licenses",
            )


def denied_license(expression: str, patterns: Sequence[str]) -> str | None:
    """Return the pattern that denies an expression, None where none does."""
    found = None
    for choice in re.split(r"(?<!\s)\s+OR\s+", expression, flags=re.IGNORECASE):
        words = re.split(r"[\s()]+", choice.lower())
        denying = [pattern for pattern in patterns if fnmatch.filter(words, pattern.lower())]
        if not denying:
            return None
        found = denying[0]
    return found
