"""Make an image, from top to bottom: find the recipe, lock it, plan the image, build it, check it, publish it.

Each step is one function below, in this order.  A make that changes nothing ends before anything
heavy is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from msgspec import structs

from envbuild.app.ready_lock import require_fresh_lock, require_whole_lock, write_own_lock
from envbuild.app.source import find_entry, find_source, require_place
from envbuild.app.spec import build_spec
from envbuild.app.verdict import known_report
from envbuild.build.image_cache import choose_mode, fit_runtime, is_stored, up_to_date
from envbuild.build.model import BuildSpec, UnnamedImage
from envbuild.build.modes import MODES
from envbuild.check.model import Report
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.host import require_tmpdir
from envbuild.lock.model import Lock
from envbuild.recipe.model import Source
from envbuild.records import frozen_record
from envbuild.store.hashing import short_digest

if TYPE_CHECKING:
    from envbuild.build.assembly_plan import AssemblyPlan
    from envbuild.shelf.fetch import VerifiedEntry


@frozen_record
class MakeRequest:
    """What was asked for.

    ``output`` is the image file (None: ./NAME.sif); ``mode`` is a way to build, or "auto";
    ``proof_seconds`` is the budget for the proof of a first lock (None: no proof); ``as_root`` lets
    a stranger's code run with root's own rights; ``from_bundle`` says that a bundle brought recipe,
    lock and files, and that the project itself is not here; ``before_naming`` is called when the
    image is whole and checked, and has not got its name yet.
    """

    output: Path | None = None
    mode: str = "auto"
    proof_seconds: float | None = None
    check: bool = True
    require_gpu: bool = False
    as_root: bool = False
    dry_run: bool = False
    from_bundle: bool = False
    before_naming: Callable[[], None] = lambda: None


@frozen_record
class MakeResult:
    """What was made: ``spec`` is the plan of it.

    ``changed`` is False where the file was this very image already; ``report`` is None where
    nothing was checked; ``parts`` is the plan of its parts after a dry run, where the image would
    be put together from parts.
    """

    spec: BuildSpec
    changed: bool
    report: Report | None
    seconds: float
    parts: AssemblyPlan | None = None


def make(name: str | None, request: MakeRequest, context: Context) -> MakeResult:
    """Make the image of a recipe on this machine, or take the one that a shelf has for its lock.

    Raises what the steps raise: the image gets its name only when it is whole and its check has
    passed.
    """
    started = time.monotonic()
    entry = find_entry(name, context)
    source = find_source(name, entry, context)
    require_tmpdir(context.settings.tmpdir)
    _target_of(source, choose_mode(request.mode), request, context)  # a wrong one ends it here
    lock = _provide_lock(source, request, context)
    spec = _plan_image(source, lock, entry, request, context)
    is_tree = MODES[spec.mode].is_tree
    changed, report, parts = False, None, None
    if request.dry_run:
        parts = _announce(spec, source, entry, request, context)
    elif is_tree:
        changed = _make_sandbox(spec, context)
    elif _takes_published(entry, request):
        changed, report = _take_published(entry, spec, source, request, context)
    else:
        changed, report = _build_image(spec, source, request, context)
    if changed and entry is not None and not is_tree:
        _compare_with_published(entry, spec, context)
    if changed:
        note_proof(source, lock, report, context)
    seconds = time.monotonic() - started
    return MakeResult(spec=spec, changed=changed, report=report, seconds=seconds, parts=parts)


def make_locked(source: Source, lock: Lock, request: MakeRequest, context: Context) -> MakeResult:
    """Make the image of a recipe and a lock that need not be written yet.

    Raises what the steps of ``make`` raise.
    """
    started = time.monotonic()
    spec = _plan_image(source, lock, None, request, context)
    changed, report = _build_image(spec, source, request, context)
    return MakeResult(spec=spec, changed=changed, report=report, seconds=time.monotonic() - started)


# ---- lock


def _provide_lock(source: Source, request: MakeRequest, context: Context) -> Lock:
    """Return the lock that is there, or a first one, which is proved by importing unless that is left out."""
    if source.lock.is_file():
        # of a bundle, the store has the project's own files; a dry run packs none of them
        if request.from_bundle or request.dry_run:
            return require_fresh_lock(source)
        return require_whole_lock(source, context)
    context.report.say(f"{source.recipe.name} has no lock yet")
    from envbuild.app import lock  # late: most recipes have a lock

    if request.dry_run:
        return lock.resolve_first_lock(source, context)
    return lock.write_first_lock(source, context, request.proof_seconds if request.check else None)


# ---- plan


def _plan_image(
    source: Source,
    lock: Lock,
    entry: VerifiedEntry | None,
    request: MakeRequest,
    context: Context,
) -> BuildSpec:
    """Plan the image in a mode that works on this machine; raises HostError for none.

    What the store or a shelf has is taken in any mode.
    """
    target = _target_of(source, choose_mode(request.mode), request, context)
    spec = build_spec(source, lock, target, choose_mode(request.mode), context)
    if _takes_published(entry, request):
        _require_trust(spec, request, context)
        return spec
    if up_to_date(spec, context.store) or is_stored(spec, context.store):
        return spec
    spec = fit_runtime(spec, context)
    if up_to_date(spec, context.store) or is_stored(spec, context.store):
        return spec
    return _in_working_mode(spec, source, entry, request, context)


def _target_of(source: Source, mode: str, request: MakeRequest, context: Context) -> Path:
    """Return the final name of the image; raises UsageError where no file can be there."""
    name = source.recipe.name
    ending = "sandbox" if MODES[mode].is_tree else "sif"
    target = context.settings.cwd / (request.output or f"{name}.{ending}")
    if target.is_dir() and not MODES[mode].is_tree:
        raise UsageError("is a folder", where=target, hint=f"-o {target / (name + '.sif')}")
    require_place(target)
    return target


def _in_working_mode(
    spec: BuildSpec,
    source: Source,
    entry: VerifiedEntry | None,
    request: MakeRequest,
    context: Context,
) -> BuildSpec:
    """Return the plan in the first mode that works here, or check the one that was asked for."""
    from envbuild.build.modes import select  # late: only where something is built

    host = select.read_capabilities(context)
    roots = select.cached_roots(spec.lock, context.store)
    origin = "a shelf" if entry is not None else ""
    origin = "a bundle" if request.from_bundle else origin
    trust = select.Trust(origin=origin, as_root=request.as_root)
    search = select.ModeSearch(
        recipe=spec.recipe, lock=spec.lock, host=host, roots=roots, trust=trust
    )
    if request.mode != "auto":
        search.require(spec.mode)
        return spec
    choice = search.select()
    context.report.say(f"{spec.recipe.name}: {choice}")
    if choice.mode == spec.mode:
        return spec
    target = _target_of(source, choice.mode, request, context)
    return build_spec(source, spec.lock, target, choice.mode, context)


def _require_trust(spec: BuildSpec, request: MakeRequest, context: Context) -> None:
    """Raise HostError where a published image cannot even be checked without trust in its code.

    A machine without a runtime fetches an image all the same: nothing of it runs there.
    """
    from envbuild.build.modes import select  # late: only for an entry of a shelf

    try:
        host = select.read_capabilities(context)
    except HostError:
        return
    trust = select.Trust(origin="a shelf", as_root=request.as_root)
    select.ModeSearch(recipe=spec.recipe, lock=spec.lock, host=host, trust=trust).require_trust()


def _announce(
    spec: BuildSpec,
    source: Source,
    entry: VerifiedEntry | None,
    request: MakeRequest,
    context: Context,
) -> AssemblyPlan | None:
    """Say what a make would download and build, and return the plan of the image's parts where it has any.

    Raises SpaceError where there is no room for it.
    """
    if _takes_published(entry, request):
        return None
    if is_stored(spec, context.store) or _finished_before(spec, source, request, context)[0]:
        return None
    _say_estimate(spec, context)
    if not MODES[spec.mode].is_assembled:
        return None
    from envbuild.build.pinned_compressor import library_to_fetch  # late: only for a dry run
    from envbuild.build.stored_plan import plan_image  # late: only for a dry run

    library = library_to_fetch(spec, context.store)
    if library is not None:
        context.report.say(f"{library.file} would be downloaded, to pack as the lock requires")
    return plan_image(spec, context.store)


def _say_estimate(spec: BuildSpec, context: Context) -> None:
    from envbuild.build.make import describe_estimate, plan_work  # late: only before a build

    estimate = describe_estimate(plan_work(spec, context))
    context.report.say(f"{spec.recipe.name}: {estimate}")


# ---- build, check, publish


def _build_image(
    spec: BuildSpec, source: Source, request: MakeRequest, context: Context
) -> tuple[bool, Report | None]:
    """Build the image, or put it together from the store.

    Return False where nothing had to be done.
    """
    finished, report = _finished_before(spec, source, request, context)
    if not finished:
        from envbuild.build.pinned_compressor import settle_codec  # late: only for a build

        spec = settle_codec(spec, context)
        # the library that is installed here may have packed it, where the lock's is not to be had
        finished, report = _finished_before(spec, source, request, context)
    if finished:
        context.report.say(f"{spec.target.name} is up to date")
        return False, report
    from envbuild.build.make import building  # late: only where something is built

    if is_stored(spec, context.store):
        context.report.say("the store has this image already")
    else:
        _say_estimate(spec, context)
    with building(spec, context) as image:
        report = _check_image(image, spec, source, request, context)
        request.before_naming()
    return True, report


def _finished_before(
    spec: BuildSpec, source: Source, request: MakeRequest, context: Context
) -> tuple[bool, Report | None]:
    """Return whether the file is this image, and checked as asked; and the report of that check."""
    known = up_to_date(spec, context.store)
    if known is None or request.require_gpu:
        return False, None
    if not request.check:
        return True, None
    report = known_report(spec.target, known.digest, source, context.store)
    return report is not None, report


def _check_image(
    image: UnnamedImage, spec: BuildSpec, source: Source, request: MakeRequest, context: Context
) -> Report | None:
    """Check an image before it gets its name; one that was checked before is believed.

    Raises CheckFailedError.
    """
    if not request.check:
        return None
    if not image.built and not request.require_gpu:
        report = known_report(image.path, image.digest, source, context.store)
        if report is not None:
            return report
    from envbuild.app.check import CheckRequest, check_new_image  # late: only for a new image

    asked = CheckRequest(require_gpu=request.require_gpu, with_project=not request.from_bundle)
    return check_new_image(image, spec, source, asked, context)


def _make_sandbox(spec: BuildSpec, context: Context) -> bool:
    from envbuild.build.modes.sandbox import make_sandbox  # late: only where one is built

    _say_estimate(spec, context)
    make_sandbox(spec, context)
    return True


def note_proof(source: Source, lock: Lock, report: Report | None, context: Context) -> Lock:
    """Write into a lock of the user's own that its dependencies import, once a check has imported them."""
    findings = report.findings if report is not None else ()
    imports = [one.outcome for one in findings if one.check == "direct-imports"]
    if "passed" not in imports or lock.proof != "not run" or source.shipped:
        return lock
    proved = structs.replace(lock, proof="imported")
    write_own_lock(source, proved, context)
    context.report.say("all direct dependencies import: the lock records it now (proof)")
    return proved


# ---- the image of an entry of a shelf


def _takes_published(entry: VerifiedEntry | None, request: MakeRequest) -> TypeGuard[VerifiedEntry]:
    """Whether the shelf's image is taken: it has one, and nobody asked for a mode."""
    image = entry.stored.entry.image if entry is not None else None
    return request.mode == "auto" and image is not None and image.pieces is not None


def _take_published(
    entry: VerifiedEntry, spec: BuildSpec, source: Source, request: MakeRequest, context: Context
) -> tuple[bool, Report | None]:
    """Put the published image under its name; return False where it lies there already.

    A verdict that a pinned signer published counts like one of this machine's own; anybody else's
    is made again.
    """
    from envbuild.app.shelf.entry import fetching_image, published_before  # late: only for a shelf

    there = published_before(entry, spec.target, context)
    if there is not None:
        report = _check_image(there, spec, source, request, context)
        context.report.say(f"{spec.target.name} is up to date")
        return False, report
    with fetching_image(entry, spec.target, context) as image:
        report = _check_image(image, spec, source, request, context)
    return True, report


def _compare_with_published(entry: VerifiedEntry, spec: BuildSpec, context: Context) -> None:
    """Say whether the image that was built here is the one that was published."""
    from envbuild.base.digests import known_digest  # late: only for an entry of a shelf

    published = entry.stored.entry.image
    if published is None:
        return
    same = known_digest(spec.target, context.store) == published.digest
    what = "the same lock, but other bytes than were published"
    if same:
        what = "the same bytes as published"
    context.report.say(f"{spec.target.name}: {what} ({short_digest(published.digest)})")
