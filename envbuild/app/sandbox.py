"""Pack a sandbox as an image, and say which recipe lines would do what was done in it by hand."""

from __future__ import annotations

from pathlib import Path

from envbuild.app.check import CheckRequest, check_and_save, describe_project_faults, require_passed
from envbuild.build.modes.sandbox import (
    ManualChanges,
    find_manual_changes,
    look_inside,
    packing_sandbox,
    read_note,
    recipe_lines,
)
from envbuild.check.model import Report
from envbuild.check.perform import ImageFile
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.records import frozen_record
from envbuild.store.units import as_printable

SHOWN = 20
"""Files that are named one by one."""


@frozen_record
class PackedSandbox:
    """What was done by hand, the image (None: nothing was packed), and the report of its check."""

    changes: ManualChanges
    image: Path | None
    report: Report | None


def pack_sandbox(
    folder: Path,
    output: Path | None,
    context: Context,
    *,
    check: bool,
    require_gpu: bool,
    dry_run: bool,
) -> PackedSandbox:
    """Find what was done in a sandbox, pack it, and check the image, which then gets its name."""
    folder = context.settings.cwd / folder
    note = read_note(folder)
    target = context.settings.cwd / (output or f"{note.recipe}.sif")
    if target.is_dir():
        hint = f"-o {target / (note.recipe + '.sif')}"
        raise UsageError("is a folder", where=target, hint=hint)
    with context.report.stage(f"compare {folder.name} with what it was"):
        facts = look_inside(folder, note.python, context.runtime, context.runner)
        changes = find_manual_changes(folder, note, facts)
    if dry_run:
        return PackedSandbox(changes=changes, image=None, report=None)
    report = None
    with packing_sandbox(folder, target, note, context) as image:
        if check:
            report = _check_sandbox(image, note.recipe, context, require_gpu=require_gpu)
    return PackedSandbox(changes=changes, image=target, report=report)


def _check_sandbox(image: Path, name: str, context: Context, *, require_gpu: bool) -> Report:
    """Check an image by its recipe, without a lock: what was done by hand is in none.

    Raises CheckFailedError.
    """
    known = name in recipe_files(context.settings)
    source = find_recipe(name, context.settings) if known else None
    request = CheckRequest(require_gpu=require_gpu)
    report = check_and_save(ImageFile(path=image), source, None, request, context)
    hint = "mend it in the sandbox and pack again; --no-check keeps the image as it is"
    require_passed(report, "the sandbox was packed, but its check failed", hint)
    for line in describe_project_faults(report):
        context.report.say(line)
    return report


def describe_changes(changes: ManualChanges) -> str:
    """Lay out for people what was done by hand, and the recipe lines that would do the same."""
    if not (changes.dists or changes.apt or changes.files):
        return "nothing was changed by hand"
    lines: list[str] = []
    for title, rows in (
        ("Python distributions", changes.dists),
        ("Debian packages", changes.apt),
    ):
        if rows:
            lines += [f"{title}:", *(f"  {_describe_change(*row)}" for row in rows)]
    if changes.files:
        lines.append(f"files ({len(changes.files)}):")
        lines += [f"  {path}" for path in changes.files[:SHOWN]]
        if len(changes.files) > SHOWN:
            lines.append(f"  and {len(changes.files) - SHOWN} more (--json shows all)")
    recipe = recipe_lines(changes)
    if recipe:
        lines += ["", "in the recipe this would be:", *(f"  {line}" for line in recipe)]
    if changes.files:
        advice = "files come into an image by [system] post lines; code and data better stay"
        lines += ["", f"{advice} outside, bound when it runs"]
    return "\n".join(map(as_printable, lines))


def _describe_change(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"+ {name} {now}"
    if now is None:
        return f"- {name} {before}"
    return f"~ {name} {before} -> {now}"
