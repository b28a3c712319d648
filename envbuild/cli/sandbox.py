"""``envbuild make --mode sandbox`` and ``--from-sandbox``: a tree to try things in, and back to a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.build.model import Order, Workshop
    from envbuild.build.sandbox import ByHand

SHOWN = 20
"""Files that are told one by one."""


def make(order: Order, shop: Workshop) -> None:
    """Build a sandbox and say how to enter it and how to come back."""
    from envbuild.build.sandbox import make_sandbox

    make_sandbox(order, shop)
    name = order.target.name
    program = shop.runtime.name
    click.echo(f"\n{name}: a writable tree")
    click.echo(f"  enter    {program} shell --fakeroot --writable --no-home {name}")
    click.echo(
        f"  install  pip install …, apt-get install …: as root inside; {order.lock.base.python_path} is its Python"
    )
    click.echo(f"  pack     envbuild make --from-sandbox {name}    (says which recipe lines would do the same)")


def pack(folder: Path, output: Path | None, shop: Workshop, *, as_json: bool, dry_run: bool) -> None:
    """Say what was done in a sandbox by hand, and pack it."""
    from envbuild.build.sandbox import compare, look_inside, pack_sandbox, read_note

    folder = shop.settings.cwd / folder
    note = read_note(folder)
    target = shop.settings.cwd / (output or f"{note.recipe}.sif")
    if target.is_dir():
        raise UsageError("is a folder", where=str(target), hint=f"-o {target / (note.recipe + '.sif')}")
    with shop.report.stage(f"compare {folder.name} with what it was"):
        done = compare(folder, note, look_inside(folder, note.python, shop.runtime, shop.runner))
    if not dry_run:
        with shop.report.stage(f"pack {folder.name}"):
            pack_sandbox(folder, target, note, shop)
    if as_json:
        click.echo(json.dumps(_as_json(done, None if dry_run else target), indent=1))
    else:
        click.echo(report(done))
        if not dry_run:
            click.echo(f"\n{target.name}: packed as it is; no lock describes what was done by hand")
            click.echo(f"  check    envbuild check {target.name}")


def report(done: ByHand) -> str:
    """Lay out for people what was done, and the recipe lines that would do the same."""
    from envbuild.build.sandbox import recipe_lines

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
    return "\n".join("".join(char if char.isprintable() else "?" for char in line) for line in lines)


def _change(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"+ {name} {now}"
    return f"- {name} {before}" if now is None else f"~ {name} {before} -> {now}"


def _as_json(done: ByHand, target: Path | None) -> dict[str, object]:
    from envbuild.build.sandbox import recipe_lines

    return {
        "image": None if target is None else str(target),
        "dists": done.dists,
        "apt": done.apt,
        "files": done.files,
        "recipe": recipe_lines(done),
    }
