"""Lock a recipe: resolve, prove by import where that is asked for, write."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from envbuild.app.ready_lock import write_own_lock
from envbuild.app.site import find_site
from envbuild.base.facts import load_facts
from envbuild.base.gpu_names import capability_of
from envbuild.conda.model import NO_TARGET, GivenArchive, GpuTarget
from envbuild.context import Context
from envbuild.data.lookup import numbers
from envbuild.errors import EnvbuildError, NoSolutionError, UsageError
from envbuild.job.sites.fit import why_unfit
from envbuild.lock.changes import lock_changes
from envbuild.lock.cuda import cuda_of
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.import_search import carry_proof
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import EVERYTHING, Lock
from envbuild.lock.read import read_lock
from envbuild.lock.report import summarize_lock
from envbuild.names import BY_PLATFORM, Pairs, Texts
from envbuild.project.conda.locked_lists import read_conda_list
from envbuild.recipe.model import Recipe, Source
from envbuild.records import frozen_record


@frozen_record
class LockRequest:
    """What ``envbuild lock`` was asked for.

    ``upgrade`` are package names, or EVERYTHING; ``as_of`` is an ISO date or "none"; ``facts`` is a
    facts file in place of a base image; ``proof_seconds`` is the budget of the proof by import
    (None: no proof); ``site`` is a cluster, SITE[:PARTITION], that the lock has to run on;
    ``keep`` are names and versions to prefer; ``given`` is a lock of another tool whose conda
    packages are taken as they are.
    """

    upgrade: Texts = ()
    upgrade_system: bool = False
    as_of: str | None = None
    facts: Path | None = None
    resolver: str = "uv"
    proof_seconds: float | None = None
    site: str | None = None
    keep: Pairs = ()
    given: Path | None = None


def update_lock(source: Source, request: LockRequest, context: Context) -> tuple[Lock | None, Lock]:
    """Lock a recipe again and return the lock that was there, or None, and the new one; write nothing.

    The old lock's versions are kept where they still fit.
    """
    _require_date(request.as_of)
    old = _read_old_lock(source, context)
    target, given = _conda_choices(source, request, context)
    options = LockOptions(
        as_of=request.as_of,
        upgrade=request.upgrade,
        upgrade_all=EVERYTHING in request.upgrade,
        upgrade_system=request.upgrade_system,
        old=old,
        keep=request.keep,
        resolver=request.resolver,
        target=target,
        given=given,
    )
    lock = resolve_lock(source, options, context, request.facts)
    if request.site:
        refuse_unfit(lock, request.site, context)
    if old is not None:
        lock = carry_proof(old, lock)
    if request.proof_seconds is not None:
        lock = _prove_lock(source, lock, options, context, request.proof_seconds)
    return old, lock


def lock_target(source: Source, context: Context) -> GpuTarget:
    """Return the nodes that the recipe's conda packages are chosen for."""
    return _conda_choices(source, LockRequest(), context)[0]


def _conda_choices(
    source: Source, request: LockRequest, context: Context
) -> tuple[GpuTarget, tuple[GivenArchive, ...]]:
    """Return for what nodes conda's packages are chosen, and those that are given."""
    if not source.recipe.conda.dependencies and request.given is None:
        return NO_TARGET, ()

    given = read_given(source, request.given) if request.given else ()
    return read_target(source.recipe, request.site, context), given


def write_first_lock(source: Source, context: Context, proof_seconds: float | None = None) -> Lock:
    """Make and write the lock of a recipe that has none.

    ``proof_seconds`` is the budget of its proof.
    """
    _, lock = update_lock(source, LockRequest(proof_seconds=proof_seconds), context)
    target = write_own_lock(source, lock, context)
    for line in describe_lock(None, lock, target):
        context.report.say(line)
    return lock


def resolve_first_lock(source: Source, context: Context) -> Lock:
    """Return the lock that a first make would write."""
    _, lock = update_lock(source, LockRequest(), context)
    for line in describe_lock(None, lock, None):
        context.report.say(line)
    return lock


def describe_lock(old: Lock | None, lock: Lock, target: Path | None) -> list[str]:
    """Return for people what a new lock holds and what changed.

    ``target`` is None where it was not written.
    """
    first, *others = summarize_lock(lock)
    lines = [f"{target or 'not written'}: {first}", *(f"  {line}" for line in others)]
    how = " (envbuild lock --prove, or the check of envbuild make)"
    lines.append(f"  proof: {lock.proof}{'' if lock.proof == 'imported' else how}")
    if old is not None:
        changed = lock_changes(old, lock)
        lines += [f"  {change}" for change in changed] or ["  no package changed"]
    return lines


def resolve_lock(
    source: Source, options: LockOptions, context: Context, facts: Path | None = None
) -> Lock:
    """Resolve a recipe to a lock, and write nothing; ``facts`` is a facts file (docs/base.md)."""
    today = datetime.now(timezone.utc).date()
    known = load_facts(facts) if facts is not None else None
    return decide_lock(source, options, context, today, facts=known)


def _prove_lock(
    source: Source, lock: Lock, options: LockOptions, context: Context, seconds: float
) -> Lock:
    """Return the lock, or the nearest one whose direct dependencies import; a proved one stays."""
    from envbuild.app.prove import prove_lock  # late: few locks are proved

    if lock.proof == "imported":
        return lock
    return prove_lock(source, lock, options, context, seconds)


def _require_date(as_of: str | None) -> None:
    if as_of is None or as_of == "none":
        return
    try:
        datetime.strptime(as_of, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise UsageError(f"--as-of {as_of}: write a day as YYYY-MM-DD, or none") from error


def _read_old_lock(source: Source, context: Context) -> Lock | None:
    """Read the lock that is there; one that cannot be read is reported, and then replaced."""
    if not source.lock.is_file():
        return None
    try:
        return read_lock(source.lock)
    except EnvbuildError as error:
        context.report.say(f"the old lock is not used: {error}")
        return None


def refuse_unfit(lock: Lock, text: str, context: Context) -> None:
    """Raise NoSolutionError for a lock whose CUDA runs on no GPU of a site, SITE[:PARTITION]."""
    site = find_site(text, context)
    cuda = cuda_of(lock)
    if not cuda:
        return
    unfit = why_unfit(cuda, site, text.partition(":")[2] or None)
    if unfit is None:
        return
    framework = (lock.base.framework or "framework").split(" ")[0]
    driver = site.host.driver or "VERSION"
    hint = f"an older {framework}: envbuild base suggest --driver {driver}"
    raise NoSolutionError(unfit, where=lock.name, hint=hint)


def read_target(recipe: Recipe, site: str | None, context: Context) -> GpuTarget:
    """Return the oldest driver and all cards; ``site`` is SITE[:PARTITION] of the command line.

    Raises UsageError for an unknown site or card.
    """
    target = recipe.target
    drivers = [target.driver] if target.driver and site is None else []
    cards = {capability_of(name) for name in target.gpu} if site is None else set[int]()
    for text in (site,) if site else target.sites:
        found = find_site(text, context)
        if found.host.driver:
            drivers.append(found.host.driver)
        cards |= {row.capability for row in found.cards(text.partition(":")[2] or None)}
    oldest = min(drivers, key=numbers) if drivers else None
    return GpuTarget(driver=oldest, capabilities=tuple(sorted(cards)))


def read_given(source: Source, path: Path) -> tuple[GivenArchive, ...]:
    """Read a conda environment that another tool has locked, for the recipe's platform.

    Raises UsageError for a file that is none, and for a recipe without conda packages.
    """
    if not source.recipe.conda.dependencies:
        raise UsageError(
            "the recipe has no [conda] dependencies", where="--from", hint=f"envbuild init {path}"
        )
    return read_conda_list(path, BY_PLATFORM[source.recipe.base.platform].conda).archives
