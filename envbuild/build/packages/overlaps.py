"""Tell of packages and files of the project that hold the same path with other bytes.

The one laid last wins, in an image as in an installer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuild.formats.file_tree import TreeEntry
from envbuild.parts.cache import CachedPart

SHOWN = 8


def find_overlaps(packages: Iterable[tuple[str, CachedPart]]) -> Iterator[str]:
    """Yield a sentence for every two that hold different files or links of one path, at most eight.

    They come by name, the lowest first.
    """
    held: dict[str, tuple[str, TreeEntry]] = {}
    pairs: dict[tuple[str, str], list[str]] = {}
    for name, kept in packages:
        for entry in kept.part.entries:
            before, other = held.get(entry.path, (name, entry))
            held[entry.path] = (name, entry)
            # equal files are no conflict: namespace packages share theirs
            if _content_of(other) != _content_of(entry):
                pairs.setdefault((before, name), []).append(entry.path)
    for (before, after), paths in list(pairs.items())[:SHOWN]:
        what = f"/{paths[0]}"
        if len(paths) > 1:
            what += f" and {len(paths) - 1} more"
        yield f"{before} and {after} both hold {what}, with other content: that of {after} is in the image"
    more = len(pairs) - SHOWN
    if more > 0:
        yield f"{more} more pairs of packages hold the same paths with other content"


def _content_of(entry: TreeEntry) -> tuple[str, str, str]:
    return entry.kind, entry.sha256, entry.target
