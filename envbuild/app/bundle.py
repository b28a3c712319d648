"""``envbuild make --from-bundle``: the project inside a bundle, laid out so that making it needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from envbuild.context import Context


@contextmanager
def unbundled(path: Path, context: Context) -> Iterator[tuple[Context, str]]:
    """Lend a context whose folder has a bundle's recipe and lock, and the recipe's name; packages go to the store."""
    from envbuild.bundle.unpack import opened_bundle, unpack
    from envbuild.store.units import human_bytes

    bundle = context.settings.cwd / path
    with opened_bundle(bundle) as (_, table):
        total = sum(member.size for member in table.members)
    with context.store.work("project") as folder:
        title = f"read {bundle.name} ({human_bytes(total)})"
        with context.report.transfer(title, files=len(table.members), size=total) as progress:
            unpack(bundle, context.store, folder, progress)
        settings = replace(context.settings, cwd=folder)
        yield replace(context, settings=settings), str(folder / "recipes" / f"{table.name}.toml")
