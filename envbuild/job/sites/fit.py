"""Tell whether a site's nodes can run an image's CUDA, by what the site file knows of driver and cards."""

from __future__ import annotations

from envbuild.data.tables import load_cuda
from envbuild.job.sites.site import Site
from envbuild.store.units import join_numbers


def why_unfit(cuda: str, site: Site, partition: str | None = None) -> str | None:
    """Return why an image with this CUDA computes on no GPU of a site; None where it may, or nothing is known.

    Within a family (12.0 to 12.9) the oldest driver of the family will do (NVIDIA, CUDA
    compatibility: minor versions).
    """
    table, asked = load_cuda(), _numbers(cuda)
    needed = table.families.get(str(asked[0])) or table.drivers.get(join_numbers(asked[:2]))
    driver = site.host.driver
    if driver and needed and _numbers(driver) < _numbers(needed):
        return f"CUDA {cuda} needs NVIDIA driver {needed} or newer, and the nodes of {site.name} have {driver}"
    cards = [row for row in site.gpu if partition is None or row.partition in (None, partition)]
    ends = {row.capability: row.until for row in table.gpu if row.until}
    for card in cards:
        end = ends.get(card.capability)
        if end is None or asked < _numbers(end):
            return None
    if not cards:
        return None
    card = cards[0]
    return f"CUDA {cuda} has no code for {card.name} of {site.name}; the last that has is below {ends[card.capability]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
