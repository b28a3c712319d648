"""Sizes as a treemap: layers side by side, packages within, the small ones as one tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import squarify

from envbuild.shelf.site.model import TreemapTile

WIDTH, HEIGHT = 1000.0, 500.0
SMALLEST = 0.004
"""Share of the whole below which packages go into one tile."""


def lay_out_treemap(layers: Mapping[str, Sequence[tuple[str, int]]]) -> tuple[TreemapTile, ...]:
    """Lay out (name, bytes) of each layer, largest first; layers without bytes are left out."""
    sums = {layer: sum(size for _, size in rows) for layer, rows in layers.items()}
    whole = sum(sums.values())
    order = sorted((layer for layer in sums if sums[layer]), key=sums.__getitem__, reverse=True)
    boxes = _lay_out_boxes([sums[layer] for layer in order], 0, 0, WIDTH, HEIGHT)
    tiles: list[TreemapTile] = []
    for layer, box in zip(order, boxes, strict=True):
        rows = _group_small(layers[layer], whole)
        sizes = [size for _, size in rows]
        inner = _lay_out_boxes(sizes, box["x"], box["y"], box["dx"], box["dy"])
        for (name, size), place in zip(rows, inner, strict=True):
            x, y, width, height = (round(place[key], 1) for key in ("x", "y", "dx", "dy"))
            box_of_name = {"x": x, "y": y, "width": width, "height": height}
            tiles.append(TreemapTile(**box_of_name, layer=layer, label=name, size=size))
    return tuple(tiles)


def _group_small(rows: Sequence[tuple[str, int]], whole: int) -> list[tuple[str, int]]:
    large = [(name, size) for name, size in rows if size >= whole * SMALLEST and size > 0]
    rest = [size for _, size in rows if 0 < size < whole * SMALLEST]
    if rest:
        large.append((f"{len(rest)} smaller", sum(rest)))
    return sorted(large, key=lambda row: (-row[1], row[0]))


def _lay_out_boxes(
    sizes: Sequence[int], x: float, y: float, width: float, height: float
) -> list[dict[str, float]]:
    """Return a rectangle for each size, which are in descending order."""
    if not sizes:
        return []
    scaled = squarify.normalize_sizes(sizes, width, height)
    found: list[dict[str, float]] = squarify.squarify(scaled, x, y, width, height)
    return found
