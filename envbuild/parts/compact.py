"""Leave out of an image what nothing in its tree uses.

Files of a base that were replaced or hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from envbuild.formats.block_codec import STORED
from envbuild.formats.file_copy import Extent, copy_extents
from envbuild.formats.file_tree import NO_FRAGMENT, Part, Tree
from envbuild.formats.squashfs.writer import Copy
from envbuild.parts.cache import CachedPart


def drop_unused_blocks(
    tree: Tree, kept: Sequence[CachedPart]
) -> tuple[Tree, list[tuple[Part, Copy]]]:
    """Return a tree and its parts with only those bytes of images' layers that the tree uses.

    Parts that are no layers of images stay as they are.
    """
    # wheels hold nothing that could be hidden: only parts of images are looked through
    layers = [number for number, part in enumerate(kept) if part.part.layer]
    extents: dict[int, set[Extent]] = {number: set() for number in layers}
    fragments: dict[int, set[int]] = {number: set() for number in layers}
    for entry, number in tree.values():
        if entry.kind != "f" or number not in extents:
            continue
        if entry.blocks:
            length = sum(size & ~STORED for size in entry.blocks)
            extents[number].add((entry.start, length))
        if entry.fragment != NO_FRAGMENT:
            fragments[number].add(entry.fragment)
    compact = {
        number: _CompactPart(kept[number], extents[number], fragments[number]) for number in layers
    }
    for path, (entry, number) in tree.items():
        part = compact.get(number)
        if part is not None and entry.kind == "f":
            start = part.starts.get(entry.start, 0) if entry.blocks else 0
            fragment = part.fragments.get(entry.fragment, NO_FRAGMENT)
            tree[path] = structs.replace(entry, start=start, fragment=fragment), number
    written = [compact.get(number, part) for number, part in enumerate(kept)]
    return tree, [(part.part, part.copy) for part in written]


class _CompactPart:
    """A part without the bytes that nobody uses: where everything comes to lie."""

    def __init__(self, kept: CachedPart, extents: set[Extent], fragments: set[int]) -> None:
        self._kept = kept
        places = {number: kept.part.fragments[number] for number in fragments}
        wanted = extents | {(at, size & ~STORED) for at, size in places.values()}
        self._extents: list[Extent] = []
        self.starts: dict[int, int] = {}
        size = begin = end = 0
        # files of equal content share their blocks, so extents may be the same or overlap
        for start, length in sorted(wanted):  # equal beginnings are kept once
            if not self._extents or start > end:
                size += end - begin
                begin, end = start, start
                self._extents.append((start, 0))
            self.starts[start] = size + start - begin
            end = max(end, start + length)
            self._extents[-1] = (begin, end - begin)
        size += end - begin
        self.fragments = {number: new for new, number in enumerate(sorted(fragments))}
        ordered = [places[number] for number in sorted(places)]
        table = tuple((self.starts[at], packed) for at, packed in ordered)
        self.part = Part(
            key=kept.part.key, entries=(), fragments=table, size=size, sha256="", layer=True
        )

    def copy(self, target: int, at: int) -> None:
        """Write the bytes that are used to an open file at a place."""
        copy_extents(self._kept.blob, target, at, self._extents)
