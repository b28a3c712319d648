"""``envbuild lock``: from a recipe to exact files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuild.app.ready_lock import require_whole_lock, write_own_lock
from envbuild.cli.context import host_builds
from envbuild.cli.options import (
    budget_option,
    choice_option,
    flag,
    path_option,
    recipe_argument,
    site_option,
    value_option,
)
from envbuild.cli.output import print_result, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.changes import explain_unmoved
from envbuild.lock.model import EVERYTHING, PROOF_SECONDS, Lock
from envbuild.lock.report import lock_json
from envbuild.recipe.find import find_recipe


@click.command("lock")
@recipe_argument
@flag("--check", "Only test whether the lock fits the recipe (exit code 4 if not).")
@click.option(
    "--upgrade",
    multiple=True,
    is_flag=False,
    flag_value=EVERYTHING,
    metavar="[PKG]",
    help="Take the newest version of one package, or of all.",
)
@flag("--upgrade-system", "Take today's Debian packages.")
@value_option("--as-of", "DATE|none", "Choose releases of that day or older: YYYY-MM-DD.")
@path_option("--facts", "Read what the base holds from this file (base inspect --json).")
@flag("--json as_json", "Print the lock as JSON.")
@flag("--explain", "Print for each package which others require it.")
@choice_option("--resolver", ("uv", "pip-tools"), "The program that chooses the versions.", "uv")
@click.option(
    "--prove/--no-proof",
    help="Build the image and import each direct dependency; try other versions if that fails.",
)
@budget_option
@site_option("--for --site site", "Refuse what the driver and the GPUs of a cluster cannot run.")
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the conda packages of a pixi.lock, conda-lock.yml or @EXPLICIT list.",
)
@flag("--dry-run", "Print what would change and write nothing.")
@host_builds
@click.pass_obj
def command(
    context: Context,
    /,
    *,
    name: str | None,
    check: bool,
    as_json: bool,
    explain: bool,
    prove: bool,
    budget: float | None,
    dry_run: bool,
    **asked: Any,
) -> None:
    """Choose every package of a recipe, and write ./lockfiles/NAME.lock.

    Versions of the old lock are kept where they still fit. So a new line in the recipe changes as
    little as possible.
    """
    facts = asked["facts"]
    _require_sense(prove=prove, budget=budget, facts=facts)
    if explain and as_json:
        raise UsageError("--explain prints text", where="--json", hint="leave one of them out")
    source = find_recipe(name, context.settings)
    if check:
        require_whole_lock(source, context)
        found = {"recipe": str(source.path), "lock": str(source.lock), "fits": True}
        print_result(found, short_path(f"{source.lock} fits {source.path}"), as_json=as_json)
        return
    from envbuild.app.lock import (  # late: --check only reads
        LockRequest,
        describe_lock,
        update_lock,
    )

    seconds = (budget or PROOF_SECONDS) if prove else None
    request = LockRequest(proof_seconds=seconds, **asked)
    old, lock = update_lock(source, request, context)
    if as_json:
        print_text(lock_json(lock))
    if explain:
        _print_reasons(lock)
    written = facts is None and not dry_run
    target = write_own_lock(source, lock, context) if written else None
    unmoved = explain_unmoved(old, lock, request.upgrade) if old else []
    for line in (*describe_lock(old, lock, target), *(f"  {line}" for line in unmoved)):
        print_text(short_path(line), err=True)


def _require_sense(*, prove: bool, budget: float | None, facts: Path | None) -> None:
    """Raise UsageError for options that contradict each other."""
    if prove and facts is not None:
        what = "--prove builds the image, which --facts does without"
        raise UsageError(what, hint="leave one of them out")
    if budget is not None and not prove:
        what = "--budget bounds a proof, and none is asked for"
        raise UsageError(what, where="--budget", hint="add --prove")


def _print_reasons(lock: Lock) -> None:
    """Print who requires each package, and what the base holds."""
    for package in lock.installed:
        reason = ", ".join(package.via) or "the framework"
        print_text(f"{package.name} {package.version}: required by {reason}")
    for provided in lock.provided:
        alias = f" (as {provided.alias_of})" if provided.alias_of else ""
        print_text(f"{provided.name} {provided.version}: held by the base{alias}")
