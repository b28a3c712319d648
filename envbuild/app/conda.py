"""What conda's packages are chosen by: the nodes that an image is for, and locks of others."""

from __future__ import annotations

from pathlib import Path

from envbuild.app.site import find_site
from envbuild.base.gpu_names import capability_of
from envbuild.conda.model import GivenArchive, GpuTarget
from envbuild.context import Context
from envbuild.data.lookup import numbers
from envbuild.errors import UsageError
from envbuild.names import BY_PLATFORM
from envbuild.project.conda.locked_lists import read_conda_list
from envbuild.recipe.model import Recipe, Source


def read_target(recipe: Recipe, site: str | None, context: Context) -> GpuTarget:
    """Return the oldest driver and all cards; ``site`` is SITE[:PARTITION] of the command line.

    Raises UsageError for an unknown site or card.
    """
    target = recipe.target
    drivers = [target.driver] if target.driver and site is None else []
    cards = {capability_of(name) for name in target.gpu} if site is None else set[int]()
    for text in (site,) if site else target.sites:
        found = find_site(text, context)
        if found.host.driver:
            drivers.append(found.host.driver)
        cards |= {row.capability for row in found.cards(text.partition(":")[2] or None)}
    oldest = min(drivers, key=numbers) if drivers else None
    return GpuTarget(driver=oldest, capabilities=tuple(sorted(cards)))


def read_given(source: Source, path: Path) -> tuple[GivenArchive, ...]:
    """Read a conda environment that another tool has locked, for the recipe's platform.

    Raises UsageError for a file that is none, and for a recipe without conda packages.
    """
    if not source.recipe.conda.dependencies:
        raise UsageError(
            "the recipe has no [conda] dependencies", where="--from", hint=f"envbuild init {path}"
        )
    return read_conda_list(path, BY_PLATFORM[source.recipe.base.platform].conda).archives
