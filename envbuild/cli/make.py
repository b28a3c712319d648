"""``envbuild make``: from a recipe to a checked image."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.app.order import order_of
from envbuild.cli.complete import complete_recipe, complete_site
from envbuild.cli.context import host_builds
from envbuild.cli.output import print_json
from envbuild.context import Context
from envbuild.errors import CheckFailedError, HostError, UsageError
from envbuild.lock.model import PROOF_SECONDS
from envbuild.store.units import count_noun

if TYPE_CHECKING:
    from envbuild.build.model import BuildSpec
    from envbuild.build.modes.select import HostCapabilities, Trust
    from envbuild.check.model import Report
    from envbuild.lock.model import Lock
    from envbuild.recipe.model import Source
    from envbuild.store.layout import Store

MODES = ("auto", "flat", "layered", "fakeroot", "sandbox", "docker")


@click.command("make")
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The image file (default ./NAME.sif)."
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="auto",
    help="How to build; auto is flat where it can be.",
)
@click.option(
    "--from-sandbox",
    type=click.Path(path_type=Path),
    help="Pack a sandbox, and say what was done in it.",
)
@click.option(
    "--from-bundle",
    type=click.Path(path_type=Path),
    help="Make the image of a bundle, without a network.",
)
@click.option(
    "--prove/--no-proof",
    default=True,
    help="Whether a first lock is proved by import, with a search for versions that do.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"How long that search may take ({PROOF_SECONDS:.0f}).",
)
@click.option(
    "--as-root",
    is_flag=True,
    help="As root: let a stranger's code run with root's own rights where it has to.",
)
@click.option("--no-check", is_flag=True, help="Do not check the image.")
@click.option("--require-gpu", is_flag=True, help="Fail when the GPU checks cannot run here.")
@click.option(
    "--on",
    metavar="SITE[:PARTITION]",
    shell_complete=complete_site,
    help="Build on a node of a cluster, by a job (envbuild site list).",
)
@click.option("--account", help="With --on: account, project or group that pays.")
@click.option(
    "--all", "every", is_flag=True, help="With --on: every recipe of ./recipes, one task each."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was built and proved as JSON.")
@click.option("--dry-run", is_flag=True, help="Say what would be downloaded and built, and stop.")
@host_builds
@click.pass_obj
def command(
    context: Context,
    *,
    name: str | None,
    output: Path | None,
    mode: str,
    from_sandbox: Path | None,
    from_bundle: Path | None,
    prove: bool,
    budget: float | None,
    as_root: bool,
    no_check: bool,
    require_gpu: bool,
    on: str | None,
    account: str | None,
    every: bool,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Build the image of a recipe from its lock, and check it.

    A recipe without a lock is locked first; a stale lock is refused with the line that changed.  The image gets its
    name only when it is whole and its check has passed.
    """
    if from_bundle is not None and (name or on or every or from_sandbox):
        raise UsageError("a bundle holds one recipe and is built here", where="--from-bundle")
    if budget is not None and not prove:
        raise UsageError("--budget bounds a proof, and --no-proof leaves it out", where="--budget")
    switches = {"no_check": no_check, "require_gpu": require_gpu, "as_root": as_root}
    switches |= {"as_json": as_json, "dry_run": dry_run}
    if on is not None or every:
        if as_json or dry_run or from_sandbox or budget is not None:
            raise UsageError(
                "--json, --dry-run, --from-sandbox and --budget do not go with --on", where="--on"
            )
        flags = {
            "--no-proof": not prove,
            "--no-check": no_check,
            "--require-gpu": require_gpu,
            "--as-root": as_root,
        }
        _make_elsewhere(
            on, name, context, _handed_on(mode, output, flags), account=account, every=every
        )
    elif from_sandbox is not None:
        from envbuild.cli.sandbox import pack

        told = {"require_gpu": require_gpu, "as_json": as_json, "dry_run": dry_run}
        pack(from_sandbox, output, context, checked=not no_check, **told)
    elif from_bundle is not None:
        from envbuild.app.bundle import unbundled

        with unbundled(from_bundle, context) as (inner, recipe):
            target = context.settings.cwd / (output or f"{Path(recipe).stem}.sif")
            _make_here(
                inner,
                recipe,
                output=target,
                mode=mode,
                prove=False,
                budget=None,
                complete=True,
                **switches,
            )
    else:
        _make_here(context, name, output=output, mode=mode, prove=prove, budget=budget, **switches)


def _handed_on(mode: str, output: Path | None, flags: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the options with which the job calls this verb again."""
    target = ("-o", str(output)) if output else ()
    return ("--mode", mode, *target, *(flag for flag, given in flags.items() if given))


def _make_here(
    context: Context,
    name: str | None,
    *,
    output: Path | None,
    mode: str,
    prove: bool,
    budget: float | None,
    no_check: bool,
    require_gpu: bool,
    as_json: bool,
    dry_run: bool,
    as_root: bool,
    complete: bool = False,
) -> None:
    """Make the image of a recipe on this machine, or take the one that a shelf has for its lock.

    ``complete`` tells that the store has the project's own files as they were locked, and that they are not here.
    """
    from envbuild.app.shelf import compare_built, has_image, make_from_shelf, on_shelf, source_in
    from envbuild.build.modes.select import Trust, require_trust

    started = time.monotonic()
    taken = on_shelf(name, context)
    source = source_in(taken, name, context)
    lock = _lock(
        source, context, prove=prove and not (no_check or dry_run), budget=budget, complete=complete
    )
    order = _order(source, lock, context, output, mode)
    origin = "a shelf" if taken is not None else ""
    trust = Trust(origin="a bundle" if complete else origin, as_root=as_root)
    if mode != "auto" or not (taken is not None and has_image(taken)):
        order = _by_way(order, source, context, output, asked=mode, trust=trust)
    else:
        ground = _ground(context)
        if ground is not None:
            require_trust(order.recipe, lock, ground, trust)
    if order.mode == "sandbox":
        from envbuild.cli.sandbox import make as make_tree

        make_tree(order, context, dry_run=dry_run)
        return
    reports: list[Report] = []

    def check(image: Path, digest: str | None, *, known: bool = True) -> None:
        believed = (
            not require_gpu
            and known
            and _known_verdict(image, digest, source, context.store, reports)
        )
        if not no_check and not believed:
            reports.append(_check(image, digest, order, source, context, require_gpu=require_gpu))

    if taken is not None and mode == "auto" and has_image(taken):
        made = dry_run or make_from_shelf(taken, order, context, check)
    else:
        made = _build(
            order,
            source,
            context,
            check,
            reports,
            checked=not no_check,
            again=require_gpu,
            dry_run=dry_run,
        )
    if dry_run:
        return
    if made and taken is not None:
        compare_built(taken, order, context)
    if made:
        _note_proof(source, lock, reports, context)
    _conclude(order, reports, time.monotonic() - started, as_json=as_json)


def _build(
    order: BuildSpec,
    source: Source,
    context: Context,
    check: Callable[..., None],
    reports: list[Report],
    *,
    checked: bool,
    again: bool,
    dry_run: bool,
) -> bool:
    """Build the image, or take it from the store; return False where nothing had to be done."""
    from envbuild.build.image_cache import is_stored, up_to_date

    note = up_to_date(order, context.store)
    if note is None and not dry_run:
        from envbuild.build.pinned_compressor import settle_codec  # late: only where one packs

        order = settle_codec(order, context)
        note = up_to_date(order, context.store)
    proved = note is not None and (
        not checked or _known_verdict(order.target, note.digest, source, context.store, reports)
    )
    if proved and not again:
        if not dry_run:
            context.report.say(f"{order.target.name} is up to date")
        return False
    from envbuild.build.make import describe_estimate, make_image, plan_work

    stored = is_stored(order, context.store)
    if not stored:
        context.report.say(f"{order.recipe.name}: {describe_estimate(plan_work(order, context))}")
    elif not dry_run:
        context.report.say("the store has this image already")
    if not dry_run:
        make_image(order, context, lambda image, digest: check(image, digest, known=stored))
    return True


def _make_elsewhere(
    on: str | None,
    name: str | None,
    context: Context,
    options: tuple[str, ...],
    *,
    account: str | None,
    every: bool,
) -> None:
    from envbuild.app.remote import require_built, submit_builds
    from envbuild.cli.follow import follow_job
    from envbuild.recipe.find import find_recipe

    if on is None:
        raise UsageError(
            "--all goes with --on: it is one job with a task per recipe",
            where="--all",
            hint="--on SITE",
        )
    if every and name is not None:
        raise UsageError("--all and a name exclude each other", where=name)
    local = sorted(path.stem for path in (context.settings.cwd / "recipes").glob("*.toml"))
    names = tuple(local) if every else (name or find_recipe(None, context.settings).recipe.name,)
    if not names:
        raise UsageError("there is no recipe in ./recipes", where="--all")
    if every and "-o" in options:
        raise UsageError("-o names one image, and --all makes several", where="-o")
    record, site = submit_builds(on, names, options, context, account=account)
    follow_job(context, record, site)
    require_built(record, names, site, context)


def _lock(
    source: Source, context: Context, *, prove: bool, budget: float | None, complete: bool
) -> Lock:
    """Return the lock that is there, or a first one; a first one is proved by importing unless that is left out."""
    from envbuild.app.lock import require_fresh_lock, require_whole_lock, write_first_lock

    if not source.lock.is_file():
        context.report.say(f"{source.recipe.name} has no lock yet")
        return write_first_lock(source, context, (budget or PROOF_SECONDS) if prove else None)
    return require_fresh_lock(source) if complete else require_whole_lock(source, context)


def _note_proof(source: Source, lock: Lock, reports: list[Report], context: Context) -> None:
    """Write into a lock of the user's own that its dependencies import, once a check has imported them."""
    import msgspec

    from envbuild.app.lock import write_own_lock

    imported = any(
        one.check == "direct-imports" and one.outcome == "passed"
        for report in reports
        for one in report.findings
    )
    if imported and lock.proof == "not run" and not source.shipped:
        write_own_lock(source, msgspec.structs.replace(lock, proof="imported"), context)
        context.report.say("all direct dependencies import: the lock says so now (proof)")


def _ground(context: Context) -> HostCapabilities | None:
    """Return what this machine can; None without a runtime, where a finished image can be fetched but nothing runs."""
    from envbuild.build.modes.select import read_capabilities

    try:
        return read_capabilities(context.settings, context.runner, runtime=context.runtime)
    except HostError:
        return None


def _by_way(
    order: BuildSpec,
    source: Source,
    context: Context,
    output: Path | None,
    *,
    asked: str,
    trust: Trust,
) -> BuildSpec:
    """Return the order by the way that this machine can go; raises HostError for none.

    A way that nobody asked for is told, with the reason.  What the store has needs no way.
    """
    from envbuild.build.image_cache import is_stored, up_to_date

    if up_to_date(order, context.store) or is_stored(order, context.store):
        return order
    from envbuild.build.modes.select import (
        cached_roots,
        read_capabilities,
        require_mode,
        select_mode,
    )

    ground = read_capabilities(context.settings, context.runner, runtime=context.runtime)
    roots = cached_roots(order.lock, context.store)
    if asked != "auto":
        require_mode(order.mode, order.recipe, order.lock, ground, roots=roots, trust=trust)
        return order
    way = select_mode(order.recipe, order.lock, ground, roots=roots, trust=trust)
    context.report.say(f"{order.recipe.name}: {way}")
    return (
        order if way.mode == order.mode else _order(source, order.lock, context, output, way.mode)
    )


def _order(
    source: Source, lock: Lock, context: Context, output: Path | None, mode: str
) -> BuildSpec:
    from envbuild.build.image_cache import choose_mode

    target = context.settings.cwd / (
        output or f"{source.recipe.name}.{'sandbox' if mode == 'sandbox' else 'sif'}"
    )
    if target.is_dir() and mode != "sandbox":
        raise UsageError(
            "is a folder", where=str(target), hint=f"-o {target / (source.recipe.name + '.sif')}"
        )
    if not target.parent.is_dir():
        raise UsageError("there is no such folder", where=str(target.parent))
    return order_of(source, lock, target, choose_mode(mode))


def _check(
    image: Path,
    digest: str | None,
    order: BuildSpec,
    source: Source,
    context: Context,
    *,
    require_gpu: bool,
) -> Report:
    """Check an image and keep the report; raises CheckFailedError when it failed."""
    from envbuild.check.perform import check_image
    from envbuild.check.report import require_verdict, save, table

    script = source.recipe.check.script
    with context.report.stage("check"):
        report = check_image(
            image,
            recipe=order.recipe,
            script=source.path.parent / script if script else None,
            lock=order.lock,
            runtime=context.runtime,
            runner=context.runner,
            report=context.report,
            digest=digest,
            require_gpu=require_gpu,
            environment=context.settings.environment,
        )
    save(report, context.store)
    if report.verdict == "failed":
        click.echo(table(report), err=True)
        failed = ", ".join(
            finding.check for finding in report.findings if finding.outcome == "failed"
        )
        what = f"{order.recipe.name}: the image was built, but its check failed: {failed}"
        raise CheckFailedError(what, hint=_cure(order.recipe.name, failed))
    require_verdict(report)
    return report


def _cure(name: str, failed: str) -> str:
    looked = (
        f"; envbuild lock --prove {name} looks for versions that import"
        if "direct-imports" in failed
        else ""
    )
    return f"mend the recipe as the findings above say{looked}; envbuild make --no-check keeps the image as it is"


def _known_verdict(
    image: Path, digest: str | None, source: Source, store: Store, reports: list[Report]
) -> bool:
    """Use the report of an image that was checked before: where it passed, and the recipe asks the same of it."""
    from envbuild.base.digests import known_digest
    from envbuild.check.plan import asked_digest
    from envbuild.check.report import last

    report = last(digest or known_digest(image, store), store)
    script = source.recipe.check.script
    asked = asked_digest(source.recipe, source.path.parent / script if script else None)
    if report is None or report.verdict != "passed" or report.asked != asked:
        return False
    reports.append(report)
    return True


def _conclude(order: BuildSpec, reports: list[Report], seconds: float, *, as_json: bool) -> None:
    """Say what was built, what was proved, where it is and how to run it."""
    from envbuild.cli.terminal import human_seconds, short_path
    from envbuild.lock.digest import lock_digest
    from envbuild.store.units import human_bytes

    target, lock = order.target, order.lock
    size = target.stat().st_size
    if as_json:
        built = {
            "image": str(target),
            "size": size,
            "lock": lock_digest(lock),
            "seconds": round(seconds, 1),
        }
        print_json({**built, "report": reports[0] if reports else None})
        return
    name = order.recipe.name
    base = (
        f"{lock.base.framework or 'no framework'}, Python {lock.base.python}, {lock.base.reference}"
    )
    click.echo(f"\n{target.name}: {human_bytes(size)} in {human_seconds(seconds)}")
    click.echo(f"  built    {base}; lock {lock_digest(lock)[7:19]}")
    for line in _proved(reports):
        click.echo(f"  {line}")
    if order.mode == "layered":
        click.echo(
            "  layered  for turns on this machine; to hand it on: envbuild flatten " + target.name
        )
    click.echo(f"  where    {short_path(str(target))}")
    click.echo(f"  run      envbuild exec {name} -- python train.py")
    click.echo(f"           apptainer exec --nv {target.name} python train.py")


def _proved(reports: list[Report]) -> list[str]:
    if not reports:
        return ["proved   nothing: the check was left out (envbuild check makes up for it)"]
    report = reports[0]
    passed = [finding.check for finding in report.findings if finding.outcome == "passed"]
    skipped: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.outcome == "skipped":
            skipped.setdefault(finding.reason, []).append(finding.check)
    lines = [f"proved   {count_noun(len(passed), 'check')} passed: {', '.join(passed)}"]
    lines += [f"skipped  {', '.join(names)}: {reason}" for reason, names in skipped.items()]
    return lines
