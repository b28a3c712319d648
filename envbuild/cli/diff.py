"""``envbuild diff``: two locks, or a lock and an image."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.ready_lock import require_lock
from envbuild.app.source import find_named_source
from envbuild.base.facts import load_facts
from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.cli.output import json_option, print_result
from envbuild.context import Context
from envbuild.lock.changes import Change
from envbuild.lock.diff import Difference, DiffInput, compare_inputs, input_of_image, input_of_lock
from envbuild.lock.read import read_lock


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
@click.pass_obj
def command(context: Context, *, before: str, after: str, as_json: bool) -> None:
    """Show what differs between A and B: lock files, names of recipes, SHELF/NAME, facts files, or images.

    \b
    envbuild diff lockfiles/bert.lock other.lock
    envbuild diff bert bert.sif
    envbuild diff lab/bert@0a1b2c3d lab/bert
    """
    found = compare_inputs(_read_side(before, context), _read_side(after, context))
    print_result(_change_rows(found), _difference_text(found), as_json=as_json)


def _read_side(text: str, context: Context) -> DiffInput:
    path = Path(text)
    if path.suffix == ".lock":
        return input_of_lock(text, read_lock(path))
    if path.suffix == ".json":
        return input_of_image(load_facts(path))
    if path.suffix == ".sif" or ":" in text:
        reference = parse_reference(text)
        return input_of_image(describe_base(reference, context))
    return input_of_lock(text, require_lock(find_named_source(text, context)))


def _difference_text(found: Difference) -> str:
    lines = [f"{change.name}: {change.before} -> {change.after}" for change in found.about]
    lines += [_change_text(change) for change in found.packages]
    if found.unknown:
        lines.append(
            f"(what the base of {found.unknown} holds besides is not in its lock, so not compared)"
        )
    return "\n".join(lines) or "no difference"


def _change_text(change: Change) -> str:
    kinds = {"debian": " (Debian)", "conda": " (conda)"}
    return f"{change}{kinds.get(change.kind, '')}"


def _change_rows(found: Difference) -> dict[str, object]:
    return {"changes": (*found.about, *found.packages), "not-compared": found.unknown}
