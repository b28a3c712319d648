"""Parts in the store.

Packed once, by the hash of what went in, and found again by everybody who needs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import BinaryIO

import msgspec

from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import Codec
from envbuild.formats.file_copy import copy_into
from envbuild.formats.file_tree import Part
from envbuild.limits import UNREADABLE, read_kept
from envbuild.parts.counters import FORMATS
from envbuild.parts.writer import Content, PartWriter
from envbuild.progress import Reporter
from envbuild.records import frozen_record
from envbuild.store.atomic import commit_file, os_errors_as, write_bytes
from envbuild.store.gc import mark_used
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import LAYOUT, Store
from envbuild.store.verify import StoredItem

DIGEST = 64
"""An index begins with the sha256 of the rest, in hex."""
INDEX = msgspec.msgpack.Decoder(Part)
"""Made when this is imported: of two threads that first decode a type at once, one may crash.

msgspec 0.22 lets the second one use what the first has half built (StructInfo_Convert).
"""


@frozen_record
class PackContext:
    """What packing parts needs: the store, how blocks are packed, and the threads that do it."""

    store: Store
    codec: Codec
    pool: Executor
    report: Reporter


@frozen_record
class CachedPart:
    """A part with the file of its bytes."""

    part: Part
    blob: Path

    def copy(self, target: int, at: int) -> None:
        """Write the part's bytes to an open file at a place."""
        copy_into(self.blob, target, at, self.part.size)


Plain = str | int | list[str] | dict[str, str] | dict[str, int]
"""What a key is made over.

Plain values under explicit names, so that no name in the code decides a key.
"""


def part_key(kind: str, **inputs: Plain) -> str:
    """Return the key of a part.

    Sha256 in hex over its kind, that kind's format and everything that decides its bytes.
    """
    text = msgspec.json.encode([kind, FORMATS[kind], inputs], order="sorted")
    return hash_bytes(text)


def cached_part(key: str, store: Store) -> CachedPart | None:
    """Return a part that the store holds whole, else None: one that is damaged is made again.

    Its bytes are not hashed here: they are believed while their size is right and nobody wrote to
    them after the index.
    """
    index = store.layer(key)
    blob = index.with_suffix(".blob")
    try:
        part = _read_index(index)
        found = blob.stat()
        # the index is written last: a younger blob was written by somebody else
        untouched = found.st_mtime_ns <= index.stat().st_mtime_ns
        whole = found.st_size == part.size and part.key == key and untouched
    except (OSError, IntegrityError):
        return None
    if not whole:
        return None
    mark_used(index)
    return CachedPart(part=part, blob=blob)


def require_made(key: str, store: Store) -> CachedPart:
    """Return a part that was just made.  Raises IntegrityError where the store has lost it."""
    part = cached_part(key, store)
    if part is None:
        raise IntegrityError("bytecode just made is not in the store", where=store.root)
    return part


def is_cached(key: str, store: Store) -> bool:
    """Tell whether the store has a part, without looking at its bytes."""
    index = store.layer(key)
    return index.is_file() and index.with_suffix(".blob").is_file()


def _read_index(path: Path) -> Part:
    """Read a part's index.

    Raises IntegrityError for a damaged one, OSError for one that cannot be read.
    """
    raw = read_kept(path)
    if hash_bytes(raw[DIGEST:]).encode() != raw[:DIGEST]:
        raise IntegrityError(
            "this index of a layer is damaged", where=path, hint="run: envbuild store verify"
        )
    try:
        return INDEX.decode(raw[DIGEST:])
    except UNREADABLE as error:
        raise IntegrityError(
            f"this index of a layer cannot be read: {error}", where=path
        ) from error


def provide_part(
    key: str, packing: PackContext, fill: Callable[[PartWriter], None], *, layer: bool = False
) -> CachedPart:
    """Return the part of this key; ``fill`` adds its entries where the store has none.

    ``layer`` says that it is one of an image.
    """

    def pack(out: BinaryIO) -> Part:
        writer = PartWriter(out, codec=packing.codec, pool=packing.pool)
        fill(writer)
        return writer.finish(key, layer=layer)

    return provide_blob(key, packing, pack)


def provide_contents(
    key: str, packing: PackContext, contents: Iterable[Content], *, layer: bool = False
) -> CachedPart:
    """Return the part of this key; where the store has none, it is made of these entries."""
    return provide_part(key, packing, lambda writer: writer.add_all(contents), layer=layer)


def provide_blob(key: str, packing: PackContext, pack: Callable[[BinaryIO], Part]) -> CachedPart:
    """Return the part of this key.

    ``pack`` writes its bytes and returns its index where the store has none.
    """
    # others may have packed it while this process waited
    found = cached_part(key, packing.store)
    if found is not None:
        return found
    with packing.store.lock(f"layer-{key}", packing.report):
        found = cached_part(key, packing.store)
        if found is not None:
            return found
        index = packing.store.own(packing.store.layer(key))
        with packing.store.work("layer") as work:
            temporary = work / "blob"
            with os_errors_as(temporary), temporary.open("wb") as out:
                part = pack(out)
            blob = index.with_suffix(".blob")
            commit_file(temporary, blob, sync_name=False)
        body = msgspec.msgpack.encode(part)
        # last: without its index a blob does not count
        write_bytes(index, hash_bytes(body).encode() + body, mode=0o444)
    return CachedPart(part=part, blob=blob)


def layer_items(store: Store) -> Iterator[StoredItem]:
    """Yield the bytes of every layer, with the hash that its index names.

    One without a sound index never fits.
    """
    for index in sorted((store.root / LAYOUT / "layers").glob("*.index")):
        blob = index.with_suffix(".blob")
        try:
            part = _read_index(index)
            yield StoredItem(path=blob, size=part.size, sha256=part.sha256, parts=(index, blob))
        except (OSError, IntegrityError):
            yield StoredItem(path=blob, size=-1, sha256="", parts=(index, blob))
