"""Tell whether a site's nodes can run an image's CUDA, by what the site file knows of driver and cards."""

from __future__ import annotations

from envbuild.data.lookup import numbers, oldest_driver
from envbuild.data.tables import load_cuda
from envbuild.job.sites.site import Site


def why_unfit(cuda: str, site: Site, partition: str | None = None) -> str | None:
    """Return why an image with this CUDA computes on no GPU of a site; None where it may, or nothing is known.

    Within a family (12.0 to 12.9) the oldest driver of the family will do (NVIDIA, CUDA
    compatibility: minor versions).
    """
    needed, driver = oldest_driver(cuda), site.host.driver
    if driver and needed and numbers(driver) < numbers(needed):
        return f"CUDA {cuda} needs NVIDIA driver {needed} or newer, and the nodes of {site.name} have {driver}"
    cards = site.cards(partition)
    ends = {row.capability: row.until for row in load_cuda().gpu if row.until}
    for card in cards:
        end = ends.get(card.capability)
        if end is None or numbers(cuda) < numbers(end):
            return None
    if not cards:
        return None
    card = cards[0]
    return f"CUDA {cuda} has no code for {card.name} of {site.name}; the last that has is below {ends[card.capability]}"
