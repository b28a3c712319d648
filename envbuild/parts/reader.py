"""Read files out of packed trees.

The few whose content decides something, and whole trees to be packed anew.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK, STORED, unpack_block
from envbuild.formats.file_tree import NO_FRAGMENT, Part, Tree, TreeEntry, resolve_links
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.parts.cache import CachedPart
from envbuild.parts.writer import Content
from envbuild.progress import Stage

BIGGEST = 64 * 1024 * 1024


def read_file(
    tree: Tree, kept: Sequence[CachedPart], path: str, *, compressor: str
) -> bytes | None:
    """Return the content of a file of a merged tree, links followed; None where there is none.

    Raises IntegrityError for one of more than 64 MiB and for a damaged block.
    """
    entry, number = tree.get(resolve_links(tree, path), (None, 0))
    if entry is None or entry.kind != "f":
        return None
    with _opened_blocks(kept[number], compressor) as block:
        return _content(entry, kept[number].part, block)


def read_files(
    kept: CachedPart, entries: Sequence[TreeEntry], compressor: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of files of one part.  Raises as ``read_file`` does."""
    with _opened_blocks(kept, compressor) as block:
        for entry in entries:
            yield entry.path, _content(entry, kept.part, block)


@contextmanager
def _opened_blocks(kept: CachedPart, compressor: str) -> Iterator[Callable[[int, int], bytes]]:
    """Open a part's bytes and yield what reads its blocks, by place and squashfs size."""
    with kept.blob.open("rb") as blob:
        # small files follow one another in a fragment
        @functools.lru_cache(maxsize=8)
        def block(at: int, packed: int) -> bytes:
            blob.seek(at)
            data = blob.read(packed & ~STORED)
            return data if packed & STORED else unpack_block(data, compressor, BLOCK)

        yield block


def _content(entry: TreeEntry, part: Part, block: Callable[[int, int], bytes]) -> bytes:
    _require_small(entry)
    blocks = _file_blocks(entry, block, lambda number: block(*part.fragments[number]), BLOCK)
    return b"".join(blocks)


def _require_small(entry: TreeEntry) -> None:
    if entry.size > BIGGEST:
        raise IntegrityError(f"/{entry.path} is of {entry.size} bytes")


def read_entry(image: SquashImage, entry: TreeEntry) -> bytes | None:
    """Return the content of a file of an open file system; None for what is no file.

    Raises IntegrityError for one of more than 64 MiB and for a damaged block.
    """
    if entry.kind != "f":
        return None
    _require_small(entry)

    def fragment(number: int) -> bytes:
        return image.content(*image.fragments[number])

    return b"".join(_file_blocks(entry, image.content, fragment, image.block_size))


def _file_blocks(
    entry: TreeEntry,
    block: Callable[[int, int], bytes],
    fragment: Callable[[int], bytes],
    size: int,
) -> Iterator[bytes]:
    """Yield a file's content block by block."""
    at, left = entry.start, entry.size
    for packed in entry.blocks:
        data = block(at, packed) if packed else bytes(min(size, left))
        at += packed & ~STORED
        left -= len(data)
        yield data
    if entry.fragment != NO_FRAGMENT:
        yield fragment(entry.fragment)[entry.offset : entry.offset + left]


class _BlockStream:
    """A file's content as a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, b""

    def read(self, size: int = -1) -> bytes:
        """Read at most that many bytes."""
        if not self._rest:
            self._rest = next(self._blocks, b"")
        end = size if size >= 0 else len(self._rest)
        piece, self._rest = self._rest[:end], self._rest[end:]
        return piece


def image_contents(image: SquashImage, stage: Stage) -> Iterator[Content]:
    """Yield the tree of a file system with its contents, in the order in which they lie in it.

    ``stage`` counts the bytes of the contents.
    """

    @functools.lru_cache(maxsize=8)
    # small files follow one another in a fragment: a few unpacked ones are enough
    def fragment(number: int) -> bytes:
        if number >= len(image.fragments):
            raise image.damaged(f"it has no fragment {number}")
        return image.content(*image.fragments[number])

    def place(entry: TreeEntry) -> tuple[int, int, int, bytes]:
        return (entry.start, entry.fragment, entry.offset, os.fsencode(entry.path))

    entries = sorted(image.entries(), key=place)
    stage.expect(sum(entry.size for entry in entries))
    for entry in entries:
        if entry.kind != "f":
            yield entry, None
            continue
        stream = _BlockStream(_file_blocks(entry, image.content, fragment, image.block_size))
        yield (
            TreeEntry(
                entry.path, "f", entry.mode, entry.uid, entry.gid, entry.mtime, xattrs=entry.xattrs
            ),
            stream,
        )  # type: ignore[misc]
        stage.advance(entry.size)
