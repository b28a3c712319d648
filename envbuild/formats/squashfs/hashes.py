"""Read the tree of a squashfs file system with the hashes of all its contents."""

from __future__ import annotations

import hashlib
from concurrent.futures import Executor
from dataclasses import dataclass

from msgspec import structs

from envbuild.formats.block_codec import STORED
from envbuild.formats.file_tree import NO_FRAGMENT, TreeEntry
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.progress import SilentStage, Stage


@dataclass(frozen=True, slots=True)
class _ContentHasher:
    image: SquashImage
    stage: Stage

    def hash_large(self, entry: TreeEntry) -> list[TreeEntry]:
        digest, at, size = hashlib.sha256(), entry.start, 0
        for packed in entry.blocks:
            expected = min(self.image.block_size, entry.size - size)
            # a size of 0 is a block of zeros, which takes no room
            block = self.image.content(at, packed) if packed else bytes(expected)
            at += packed & ~STORED
            size += len(block)
            digest.update(block)
        if entry.fragment != NO_FRAGMENT:
            end = entry.offset + entry.size - size
            rest = self._read_fragment(entry.fragment)[entry.offset : end]
            size += len(rest)
            digest.update(rest)
        if size != entry.size:
            raise self.image.damaged(f"/{entry.path} is cut off")
        self.stage.advance(entry.size)
        return [structs.replace(entry, sha256=digest.hexdigest())]

    def hash_small(self, entries: list[TreeEntry]) -> list[TreeEntry]:
        """Hash files that lie in one fragment."""
        # empty files lie in no fragment
        fragment = self._read_fragment(entries[0].fragment) if entries[0].size else b""
        data = memoryview(fragment)
        hashed = []
        for entry in entries:
            piece = data[entry.offset : entry.offset + entry.size]
            if len(piece) != entry.size:
                raise self.image.damaged(f"/{entry.path} is cut off")
            hashed.append(structs.replace(entry, sha256=hashlib.sha256(piece).hexdigest()))
        self.stage.advance(sum(entry.size for entry in entries))
        return hashed

    def _read_fragment(self, number: int) -> bytes:
        if number >= len(self.image.fragments):
            raise self.image.damaged(f"it has no fragment {number}")
        return self.image.content(*self.image.fragments[number])


def read_tree(
    image: SquashImage, pool: Executor, stage: Stage | None = None
) -> dict[str, TreeEntry]:
    """Return the whole tree with the hashes of all contents.

    ``stage`` counts the bytes that are hashed.

    Raises IntegrityError for whatever is damaged.
    """
    stage = stage or SilentStage()
    hasher = _ContentHasher(image, stage)
    tree: dict[str, TreeEntry] = {}
    shared: dict[int, list[TreeEntry]] = {}
    futures = []
    for entry in image.entries():
        if entry.kind != "f":
            tree[entry.path] = entry
            continue
        stage.expect(entry.size)
        if entry.blocks:
            futures.append(pool.submit(hasher.hash_large, entry))
        else:
            shared.setdefault(entry.fragment if entry.size else NO_FRAGMENT, []).append(entry)
    futures += [pool.submit(hasher.hash_small, entries) for entries in shared.values()]
    try:
        for future in futures:
            tree.update((entry.path, entry) for entry in future.result())
    finally:
        for future in futures:
            future.cancel()
    return tree
