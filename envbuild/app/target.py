"""The nodes that an image is meant for: from --for, else from [target] of the recipe."""

from __future__ import annotations

from envbuild.app.site import find_site
from envbuild.base.gpu_names import capability_of
from envbuild.conda.model import GpuTarget
from envbuild.context import Context
from envbuild.data.lookup import numbers
from envbuild.job.site import Site
from envbuild.recipe.model import Recipe


def read_target(recipe: Recipe, site: str | None, context: Context) -> GpuTarget:
    """Return the oldest driver and all cards; ``site`` is SITE[:PARTITION] of the command line.

    Raises UsageError for an unknown site or card.
    """
    told = recipe.target
    drivers = [told.driver] if told.driver and site is None else []
    cards = {capability_of(name) for name in told.gpu} if site is None else set[int]()
    for text in (site,) if site else told.sites:
        found = find_site(text, context)
        drivers += [found.host.driver] if found.host.driver else []
        cards |= _cards_of(found, text.partition(":")[2] or None)
    oldest = min(drivers, key=numbers) if drivers else None
    return GpuTarget(driver=oldest, capabilities=tuple(sorted(cards)))


def _cards_of(site: Site, partition: str | None) -> set[int]:
    rows = [row for row in site.gpu if partition is None or row.partition in (None, partition)]
    return {row.capability for row in rows}
