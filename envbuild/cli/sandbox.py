"""``envbuild make --mode sandbox`` and ``--from-sandbox``: a tree to try things in, and back to a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.context import Context
from envbuild.errors import CheckFailedError, UsageError
from envbuild.store.units import count_noun

if TYPE_CHECKING:
    from envbuild.build.model import BuildSpec
    from envbuild.build.modes.sandbox import ManualChanges

SHOWN = 20
"""Files that are told one by one."""


def make(order: BuildSpec, context: Context, *, dry_run: bool) -> None:
    """Build a sandbox and say how to enter it and how to come back."""
    from envbuild.build.make import describe_estimate, plan_work
    from envbuild.build.modes.sandbox import make_sandbox

    context.report.say(f"{order.recipe.name}: {describe_estimate(plan_work(order, context))}")
    if dry_run:
        return
    make_sandbox(order, context)
    name = order.target.name
    program = context.runtime.name
    click.echo(f"\n{name}: a writable tree")
    click.echo(f"  enter    {program} shell --fakeroot --writable --no-home {name}")
    click.echo(
        f"  install  pip install …, apt-get install …: as root inside; {order.lock.base.python_path} is its Python"
    )
    click.echo(
        f"  pack     envbuild make --from-sandbox {name}    (says which recipe lines would do the same)"
    )


def pack(
    folder: Path,
    output: Path | None,
    context: Context,
    *,
    checked: bool,
    require_gpu: bool,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Say what was done in a sandbox by hand, pack it, and check the image; it gets its name when that has passed."""
    from envbuild.build.modes.sandbox import (
        find_manual_changes,
        look_inside,
        pack_sandbox,
        read_note,
    )

    folder = context.settings.cwd / folder
    note = read_note(folder)
    target = context.settings.cwd / (output or f"{note.recipe}.sif")
    if target.is_dir():
        raise UsageError(
            "is a folder", where=str(target), hint=f"-o {target / (note.recipe + '.sif')}"
        )
    with context.report.stage(f"compare {folder.name} with what it was"):
        done = find_manual_changes(
            folder, note, look_inside(folder, note.python, context.runtime, context.runner)
        )
    proved: list[str] = []

    def check(image: Path) -> None:
        if checked:
            proved.extend(_check(image, note.recipe, context, require_gpu=require_gpu))

    if not dry_run:
        pack_sandbox(folder, target, note, context, check)
    if as_json:
        click.echo(json.dumps(_as_json(done, None if dry_run else target), indent=1))
    else:
        click.echo(report(done))
        if not dry_run:
            click.echo(f"\n{target.name}: packed as it is; no lock describes what was done by hand")
            told = (
                f"{count_noun(len(proved), 'check')} passed: {', '.join(proved)}"
                if proved
                else "nothing: it was left out"
            )
            click.echo(f"  proved   {told}")


def _check(image: Path, name: str, context: Context, *, require_gpu: bool) -> list[str]:
    """Check an image by its recipe, without a lock: what was done by hand is in none.  Returns what passed.

    Raises CheckFailedError.
    """
    from envbuild.check.perform import check_image
    from envbuild.check.report import require_verdict, save, table
    from envbuild.recipe.find import find_recipe, recipe_files

    source = find_recipe(name, context.settings) if name in recipe_files(context.settings) else None
    script = source.recipe.check.script if source else None
    with context.report.stage("check"):
        found = check_image(
            image,
            recipe=source.recipe if source else None,
            script=source.path.parent / script if source and script else None,
            lock=None,
            runtime=context.runtime,
            runner=context.runner,
            report=context.report,
            require_gpu=require_gpu,
            environment=context.settings.environment,
        )
    save(found, context.store)
    if found.verdict == "failed":
        click.echo(table(found), err=True)
        failed = ", ".join(
            finding.check for finding in found.findings if finding.outcome == "failed"
        )
        raise CheckFailedError(
            f"the sandbox was packed, but its check failed: {failed}",
            hint="mend it in the sandbox and pack again; --no-check keeps the image as it is",
        )
    require_verdict(found)
    return [finding.check for finding in found.findings if finding.outcome == "passed"]


def report(done: ManualChanges) -> str:
    """Lay out for people what was done, and the recipe lines that would do the same."""
    from envbuild.build.modes.sandbox import recipe_lines

    if not (done.dists or done.apt or done.files):
        return "nothing was changed by hand"
    lines: list[str] = []
    for title, changes in (("Python distributions", done.dists), ("Debian packages", done.apt)):
        if changes:
            lines += [f"{title}:", *(f"  {_change(*change)}" for change in changes)]
    if done.files:
        lines += [f"files ({len(done.files)}):", *(f"  {path}" for path in done.files[:SHOWN])]
        if len(done.files) > SHOWN:
            lines.append(f"  and {len(done.files) - SHOWN} more (--json shows all)")
    told = recipe_lines(done)
    if told:
        lines += ["", "in the recipe this would be:", *(f"  {line}" for line in told)]
    if done.files:
        lines += [
            "",
            "files come into an image by [system] post lines; code and data better stay outside, bound when it runs",
        ]
    return "\n".join(
        "".join(char if char.isprintable() else "?" for char in line) for line in lines
    )


def _change(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"+ {name} {now}"
    return f"- {name} {before}" if now is None else f"~ {name} {before} -> {now}"


def _as_json(done: ManualChanges, target: Path | None) -> dict[str, object]:
    from envbuild.build.modes.sandbox import recipe_lines

    return {
        "image": None if target is None else str(target),
        "dists": done.dists,
        "apt": done.apt,
        "files": done.files,
        "recipe": recipe_lines(done),
    }
