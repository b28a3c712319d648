"""Hash the store again, to find damaged files before a build uses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.limits import open_plain
from envbuild.records import frozen_record
from envbuild.store.hashing import hash_rest
from envbuild.store.layout import LAYOUT, Store
from envbuild.store.sealed import SEALED, seal_path, sealed_hash


@frozen_record
class StoredItem:
    """One file to hash, its expected ``sha256``, and the ``parts`` that go with it."""

    path: Path
    size: int
    sha256: str
    parts: tuple[Path, ...]


def verify_artifacts(store: Store) -> Iterator[StoredItem]:
    """Yield every artifact: its name is its hash."""
    for path in sorted((store.root / LAYOUT / "artifacts").glob("*/*")):
        if re.fullmatch(r"[0-9a-f]{64}", path.name):
            yield StoredItem(path=path, size=path.stat().st_size, sha256=path.name, parts=(path,))


def verify_sealed(store: Store) -> Iterator[StoredItem]:
    """Yield every file whose hash is written down beside it; one without a seal never fits."""
    for pattern in SEALED:
        for path in sorted((store.root / LAYOUT).glob(pattern)):
            if not path.name.startswith("."):
                seal = seal_path(path)
                yield StoredItem(
                    path=path,
                    size=path.stat().st_size,
                    sha256=sealed_hash(path) or "",
                    parts=(path, seal),
                )


def is_sound(item: StoredItem, advance: Callable[[int], None]) -> bool:
    """Tell whether a file has its size and hash; ``advance`` gets the bytes read."""
    try:
        with open_plain(item.path) as file:
            sha256, size = hash_rest(file, advance), file.tell()
    except (OSError, UsageError):
        return False
    return size == item.size and sha256 == item.sha256
