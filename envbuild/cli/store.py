"""``envbuild store``: where it is, how large, clear it, hash it again."""

from __future__ import annotations

import contextlib
import os

import click

from envbuild.cage import remove_by_ids
from envbuild.cli.group import CommandGroup
from envbuild.cli.options import flag
from envbuild.cli.output import json_option, print_json, print_result, print_text
from envbuild.context import Context
from envbuild.host import read_host
from envbuild.parts.cache import layer_items
from envbuild.store.anchored import anchored
from envbuild.store.gc import Removal, collect_garbage, remove_files, tree_size
from envbuild.store.layout import LAYOUT
from envbuild.store.units import count_noun, human_bytes
from envbuild.store.verify import is_sound, verify_artifacts, verify_sealed

KEPT = {
    "answers": "answers of the resolver",
    "apt": "Debian's lists of packages",
    "artifacts": "downloads: wheels, source archives, Debian packages",
    "bases": "Debian roots",
    "delivered": "which image was written where",
    "dev": "development layers",
    "digests": "digests of images",
    "facts": "what bases contain",
    "layers": "packed layers, which images are put together from",
    "built": "wheels built from source archives",
    "images": "images built from definitions; records of the others",
    "locks": "which processes run",
    "logs": "logs of builds",
    "metadata": "what packages require",
    "repodata": "lists of conda channels",
    "shelf": "entries of shelves",
    "stubs": "source packages, rewritten for the resolver",
    "tmp": "work in progress",
    "verdicts": "reports of checks",
}


@click.group("store", cls=CommandGroup)
def command() -> None:
    """Show the store's size, remove old files, or verify its hashes."""


@command.command("path")
@json_option
@click.pass_obj
def path_command(context: Context, *, as_json: bool) -> None:
    """Print the store's folder, then the folders of the read-only stores below it."""
    own, *below = map(str, (context.store.root, *context.store.below))
    print_result({"path": own, "below": below}, "\n".join((own, *below)), as_json=as_json)


@command.command("du")
@json_option
@click.pass_obj
def du_command(context: Context, *, as_json: bool) -> None:
    """Show how much space the store takes, and for what."""
    root = context.store.root
    top = root / LAYOUT
    names = sorted(path.name for path in top.iterdir() if path.is_dir()) if top.is_dir() else []
    sizes = {name: tree_size(top / name) for name in names}
    if as_json:
        print_json({"path": str(root), "size": sizes, "total": sum(sizes.values())})
        return
    for name in sorted(names, key=sizes.__getitem__, reverse=True):
        size = human_bytes(sizes[name])
        line = f"{size:>10}  {name:<10}  {KEPT.get(name, '')}"
        print_text(line.rstrip())
    total = human_bytes(sum(sizes.values()))
    print_text(f"{total:>10}  in all, in {root}")


@command.command("gc")
@click.option(
    "--keep",
    "days",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Also remove what was not used for this many days.",
)
@flag("--dry-run", "Print what would be removed, and stop.")
@json_option
@click.pass_obj
def gc_command(context: Context, *, days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove what killed processes left and, with --keep, what nobody used for that many days.

    Everything in the store can be downloaded or made again, as long as indexes and mirrors still
    have the files.
    """
    found = list(collect_garbage(context.store, keep_days=days))
    host = read_host()

    def remove(removal: Removal) -> bool:
        return remove_files(removal, lambda path: remove_by_ids(path, host, context.runner))

    gone = [removal for removal in found if dry_run or remove(removal)]
    if as_json:
        print_json(
            [{"path": str(item.path), "size": item.size, "reason": item.reason} for item in gone]
        )
        return
    for item in gone:
        context.report.detail(f"{item.path}: {item.reason}")
    verb = "would be removed" if dry_run else "removed"
    removed = count_noun(len(gone), "file or folder", "files and folders")
    print_text(f"{removed} {verb}, {human_bytes(sum(item.size for item in gone))}")
    left = len(found) - len(gone)
    if left:
        print_text(
            f"{left} could not be removed: they belong to somebody else, a process still uses them, "
            "or their file system is read-only"
        )


@command.command("verify")
@json_option
@click.pass_obj
def verify_command(context: Context, *, as_json: bool) -> int:
    """Hash every file of the store again, and remove damaged ones; they are downloaded or made again when needed."""
    items = [
        *verify_artifacts(context.store),
        *verify_sealed(context.store),
        *layer_items(context.store),
    ]
    size = sum(item.size for item in items)
    with context.report.transfer("hash the store again", files=len(items), size=size) as transfer:
        damaged = [item for item in items if not is_sound(item, transfer.advance)]
    for item in damaged:
        for path in item.parts:
            with contextlib.suppress(OSError), anchored(path, context.store.root) as found:
                found.unlink(missing_ok=True)
    if as_json:
        print_json({"files": len(items), "size": size, "damaged": [str(i.path) for i in damaged]})
    else:
        for item in damaged:
            done = "it cannot be removed" if os.path.lexists(item.path) else "removed"
            print_text(f"damaged, {done}: {item.path}")
        print_text(
            f"{count_noun(len(items), 'file')}, {human_bytes(size)}: {len(damaged) or 'none'} damaged"
        )
    return 6 if damaged else 0
