"""``envbuild lock``: from a recipe to exact files."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli.complete import complete_recipe, complete_site
from envbuild.cli.context import host_builds
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import NoSolutionError, StaleLockError, UsageError
from envbuild.lock.model import EVERYTHING, PROOF_SECONDS, Lock
from envbuild.recipe.model import Source

if TYPE_CHECKING:
    from envbuild.base.model import BaseFacts
    from envbuild.lock.decide.decide import Wish
    from envbuild.lock.tools import Tools


@click.command("lock")
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option(
    "--check",
    is_flag=True,
    help="Only say whether the lock fits the recipe (exit code 4 when it does not).",
)
@click.option(
    "--upgrade",
    multiple=True,
    is_flag=False,
    flag_value=EVERYTHING,
    metavar="[PKG]",
    help="Take the newest version of one package, or of all.",
)
@click.option("--upgrade-system", is_flag=True, help="Take today's Debian packages.")
@click.option(
    "--as-of", metavar="DATE|none", help="Resolve as the index was on that day (YYYY-MM-DD)."
)
@click.option(
    "--facts",
    type=click.Path(path_type=Path),
    help="Resolve against a facts file, without an image.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lock as JSON.")
@click.option("--explain", is_flag=True, help="Print, for every package, who requires it.")
@click.option(
    "--resolver",
    type=click.Choice(("uv", "pip-tools")),
    default="uv",
    help="Who chooses the versions.",
)
@click.option(
    "--prove/--no-proof",
    help="Build it, import every direct dependency, and look for versions that do. Without, the lock says: not run.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"How long --prove may look ({PROOF_SECONDS:.0f}).",
)
@click.option(
    "--for",
    "--site",
    "site",
    metavar="SITE[:PARTITION]",
    shell_complete=complete_site,
    help="Refuse what the driver and the GPUs of a cluster cannot run.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change and write nothing.")
@host_builds
@click.pass_obj
def command(
    context: Context,
    *,
    name: str | None,
    check: bool,
    upgrade: tuple[str, ...],
    upgrade_system: bool,
    as_of: str | None,
    facts: Path | None,
    as_json: bool,
    explain: bool,
    resolver: str,
    prove: bool,
    budget: float | None,
    site: str | None,
    dry_run: bool,
) -> None:
    """Resolve a recipe against its base and write ./lockfiles/NAME.lock.

    The old lock's versions are kept where they still fit, so that a new line in the recipe changes as little as
    possible.
    """
    from envbuild.recipe.find import find_recipe

    _require_sense(prove=prove, budget=budget, facts=facts)
    source = find_recipe(name, context.settings)
    if check:
        _check(source, context)
        return
    from envbuild.lock.decide.decide import Wish

    _valid_date(as_of)
    old = _old_lock(source, context)
    wish = Wish(
        as_of=as_of,
        upgrade=upgrade,
        upgrade_all=EVERYTHING in upgrade,
        upgrade_system=upgrade_system,
        old=old,
        resolver=resolver,
    )
    lock = decide(source, wish, context, facts)
    if site:
        _refuse_unfit(lock, site, context)
    if old is not None:
        from envbuild.lock.decide.import_search import carried

        lock = carried(old, lock)
    if prove:
        lock = _proved(source, lock, wish, context, seconds=budget or PROOF_SECONDS)
    _print(lock, as_json=as_json, explain=explain)
    if facts is not None or dry_run:
        _tell(old, lock, None)
        return
    target = write_target(source, context)
    from envbuild.lock.write import write_lock
    from envbuild.store.atomic import write_text

    write_text(target, write_lock(lock))
    _tell(old, lock, target)


def _refuse_unfit(lock: Lock, text: str, context: Context) -> None:
    """Raise NoSolutionError for a lock whose CUDA runs on no GPU of a site."""
    from envbuild.cli.job import find_site
    from envbuild.job.fit import why_unfit
    from envbuild.lock.cuda import cuda_of

    site, cuda = find_site(text, context), cuda_of(lock)
    unfit = why_unfit(cuda, site, text.partition(":")[2] or None) if cuda else None
    if unfit is not None:
        driver = site.host.driver or "VERSION"
        hint = f"an older {(lock.base.framework or 'framework').split(' ')[0]}: envbuild base suggest --driver {driver}"
        raise NoSolutionError(unfit, where=lock.name, hint=hint)


def _print(lock: Lock, *, as_json: bool, explain: bool) -> None:
    if as_json:
        from envbuild.lock.report import lock_json

        click.echo(lock_json(lock))
    if explain:
        _explain(lock)


def _require_sense(*, prove: bool, budget: float | None, facts: Path | None) -> None:
    """Raise UsageError for options that contradict each other."""
    if prove and facts is not None:
        raise UsageError(
            "--prove builds the image, which --facts does without", hint="leave one of them out"
        )
    if budget is not None and not prove:
        raise UsageError(
            "--budget bounds a proof, and none is asked for", where="--budget", hint="add --prove"
        )


def write_target(source: Source, context: Context) -> Path:
    """Return where a lock is written: where it was read from, but never into envbuild's own installation."""
    settings = context.settings
    in_tree = source.lock.resolve().is_relative_to(settings.cwd.resolve())
    return (
        source.lock
        if in_tree or not source.shipped
        else settings.cwd / "lockfiles" / source.lock.name
    )


def decide_and_write(source: Source, context: Context, seconds: float | None = None) -> Lock:
    """Make a recipe's first lock and write it, for verbs that find none; ``seconds`` is the budget for its proof."""
    from envbuild.lock.decide.decide import Wish
    from envbuild.lock.write import write_lock
    from envbuild.store.atomic import write_text

    lock = decide(source, Wish(), context)
    if seconds is not None:
        lock = _proved(source, lock, Wish(), context, seconds=seconds)
    target = write_target(source, context)
    write_text(target, write_lock(lock))
    _tell(None, lock, target)
    return lock


def _proved(source: Source, lock: Lock, wish: Wish, context: Context, *, seconds: float) -> Lock:
    """Return the lock, or the nearest one whose direct dependencies import; one that is proved already stays."""
    from envbuild.app.prove import prove

    return (
        lock
        if lock.proof == "imported"
        else prove(source, lock, wish, context, decide=decide, seconds=seconds)
    )


def decide(source: Source, wish: Wish, context: Context, facts: Path | None = None) -> Lock:
    """Resolve a recipe to a lock, and write nothing."""
    from envbuild.lock.decide.decide import decide_lock

    today = datetime.now(timezone.utc).date()
    return decide_lock(source, wish, _tools(context), today, facts=_read_facts(facts))


def _old_lock(source: Source, context: Context) -> Lock | None:
    """Read the lock that is there; one that cannot be read is told, and then replaced."""
    from envbuild.errors import EnvbuildError
    from envbuild.lock.read import read_lock

    if not source.lock.is_file():
        return None
    try:
        return read_lock(source.lock)
    except EnvbuildError as error:
        context.report.say(f"the old lock is not used: {error}")
        return None


def _check(source: Source, context: Context) -> None:
    lock = require_lock(source)
    require_fresh(source, lock)
    require_sources(source, lock, context)
    click.echo(short_path(f"{source.lock} fits {source.path}"))


def require_lock(source: Source) -> Lock:
    """Read a recipe's lock.  Raises StaleLockError where there is none."""
    from envbuild.lock.read import read_lock

    if not source.lock.is_file():
        hint = f"run: envbuild lock {source.recipe.name}"
        raise StaleLockError("there is no lock yet", where=str(source.lock), hint=hint)
    return read_lock(source.lock)


def require_fresh(source: Source, lock: Lock) -> None:
    """Raise StaleLockError naming the lines that changed when a lock no longer fits its recipe."""
    from envbuild.lock.staleness import staleness

    reasons = staleness(source.recipe, lock)
    if reasons:
        raise StaleLockError(
            f"the lock no longer fits {source.path.name}: {'; '.join(reasons)}",
            where=str(source.lock),
            hint=f"run: envbuild lock {source.recipe.name}",
        )


def require_sources(source: Source, lock: Lock, context: Context) -> None:
    """Bring the project's own files of a lock into the store; raises StaleLockError where they were changed."""
    if lock.files:
        from envbuild.lock.decide.project_files import require_files

        require_files(source, lock, _tools(context))
    if any(package.source is not None for package in lock.python):
        from envbuild.lock.decide.source_trees import require_trees

        require_trees(source, lock, _tools(context))


def _tools(context: Context) -> Tools:
    from envbuild.lock.tools import Tools

    return Tools(
        settings=context.settings, runner=context.runner, store=context.store, report=context.report
    )


def _explain(lock: Lock) -> None:
    for package in lock.python:
        if package.group != "build":
            click.echo(
                f"{package.name} {package.version}: required by {', '.join(package.via) or 'the framework'}"
            )
    for provided in lock.provided:
        alias = f" (as {provided.alias_of})" if provided.alias_of else ""
        click.echo(f"{provided.name} {provided.version}: held by the base{alias}")


def _valid_date(as_of: str | None) -> None:
    if as_of is None or as_of == "none":
        return
    try:
        datetime.strptime(as_of, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise UsageError(f"--as-of {as_of}: write a day as YYYY-MM-DD, or none") from error


def _tell(old: Lock | None, lock: Lock, target: Path | None) -> None:
    """Say what the lock holds and what changed, for people."""
    from envbuild.lock.report import told
    from envbuild.lock.staleness import changes

    first, *others = told(lock)
    click.echo(short_path(f"{target or 'not written'}: {first}"), err=True)
    for line in others:
        click.echo(f"  {line}", err=True)
    how = (
        ""
        if lock.proof == "imported"
        else " (envbuild lock --prove, or the check of envbuild make)"
    )
    click.echo(f"  proof: {lock.proof}{how}", err=True)
    if old is not None:
        found = changes(old, lock)
        for change in found:
            click.echo(f"  {change}", err=True)
        if not found:
            click.echo("  no package changed", err=True)


def _read_facts(path: Path | None) -> BaseFacts | None:
    """Read a facts file (docs/base.md); raises UsageError for what is none."""
    if path is None:
        return None
    from envbuild.base.facts import load_facts

    return load_facts(path)
