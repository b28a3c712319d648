"""Tell of packages and files of the project that hold the same path with other bytes.

The one laid last wins, in an image as in an installer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuild.parts.cache import CachedPart

SHOWN = 8


def find_overlaps(packages: Iterable[tuple[str, CachedPart]]) -> Iterator[str]:
    """Yield a sentence for every two that hold different files or links of one path, at most eight.

    They come by name, the lowest first.
    """
    held: dict[str, tuple[str, tuple[str, ...]]] = {}
    pairs: dict[tuple[str, str], list[str]] = {}
    for name, kept in packages:
        for entry in kept.part.entries:
            # equal files are no conflict: namespace packages share theirs
            own = (entry.kind, entry.sha256, entry.target)
            before, content = held.get(entry.path, ("", own))
            if content != own:
                pairs.setdefault((before, name), []).append(entry.path)
            held[entry.path] = (name, own)
    for (before, after), paths in list(pairs.items())[:SHOWN]:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{before} and {after} both hold /{paths[0]}{more}, with other content: that of {after} is in the image"
    if len(pairs) > SHOWN:
        yield f"{len(pairs) - SHOWN} more pairs of packages hold the same paths with other content"
