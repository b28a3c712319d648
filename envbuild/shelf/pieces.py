"""Image bytes on a shelf, cut at files, so that equal parts are kept once.

An image is a list of pieces, each named by its sha256.  Where to cut depends on the packed files
alone and not on where in the image they lie, so a second image on the same base is cut alike where
it holds the same.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.base.digests import Advance, known_digest, known_sha256
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.image.verify import root_partitions
from envbuild.errors import EnvbuildError, IntegrityError, SpaceError, UsageError
from envbuild.formats.block_codec import STORED
from envbuild.formats.sif_reader import image_digest, read_sif
from envbuild.formats.squashfs.reader import open_partition
from envbuild.limits import UNREADABLE
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Digest
from envbuild.progress import Reporter
from envbuild.shelf.backend import PieceStore
from envbuild.shelf.model import Bytes, ImageDescriptor
from envbuild.store.atomic import os_errors_as
from envbuild.store.layout import Store
from envbuild.store.units import human_bytes

LEAST, MOST = 1 << 20, 1 << 26
"""Bytes of a piece: small ones cost a file each, large ones share less."""
ONE_IN = 4
"""Every so manieth place where one may cut is cut."""
CHUNK = 1 << 22
MOST_PIECES = 200_000


class PieceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an image is put together from, in order: sha256 and size in bytes."""

    schema: int
    pieces: tuple[tuple[Digest, Bytes], ...]


def describe_image(
    image: Path, locked: str, store: Store, advance: Advance = None
) -> ImageDescriptor:
    """Describe an image for an entry; ``locked`` is the digest of the lock it must have.

    ``store`` remembers the digests of a file that has not changed; ``advance`` is told the bytes
    that were read, twice the file's.  Raises UsageError for an image
    that may not be shared: layered, or of another lock.
    """
    require_flat(image)
    carried = read_embedded_info(image)
    if carried.lock is not None and lock_digest(carried.lock) != locked:
        hint = "make it again, or publish without it"
        raise UsageError(
            "was made from another lock than the one to publish", where=image, hint=hint
        )
    size = image.stat().st_size
    return ImageDescriptor(
        digest=known_digest(image, store, advance),
        sha256=known_sha256(image, store, advance),
        size=size,
    )


def require_flat(image: Path) -> None:
    """Raise UsageError for an image whose layers could be lost on the way."""
    if len(root_partitions(image)) > 1:
        what = "is layered: its layers are dropped without a word where a host cannot mount them"
        raise UsageError(what, where=image, hint=f"envbuild flatten {image.name}")


def store_image(
    image: Path, weight: ImageDescriptor, pieces: PieceStore, report: Reporter
) -> tuple[bytes, int]:
    """Write an image's bytes to a shelf; return the list of pieces and the new bytes.

    Raises SpaceError before anything is written where the shelf has no room.
    """
    cut = [0, *cut_points(image, weight.size), weight.size]
    parts = list(_hash_pieces(image, cut))
    missing = {
        digest: (at, size) for digest, at, size in parts if not pieces.has_piece(digest, size)
    }
    new = sum(size for _, size in missing.values())
    if new > pieces.free_bytes():
        what = f"the shelf has room for {human_bytes(pieces.free_bytes())}, the image adds {human_bytes(new)}"
        raise SpaceError(what, where=image, hint="free space there, or publish without --image")
    if missing:
        title = f"put {image.name} on the shelf"
        with report.transfer(title, files=len(missing), size=new) as transfer:
            for digest, (at, size) in missing.items():
                pieces.add_piece(digest, image, at, size)
                transfer.advance(size)
    listed = PieceList(1, tuple((digest, size) for digest, _, size in parts))
    return msgspec.json.encode(listed) + b"\n", new


def fetch_image(
    weight: ImageDescriptor, listed: bytes, pieces: PieceStore, target: Path, report: Reporter
) -> None:
    """Put an image together from a shelf, in a file that has no final name yet.

    Raises IntegrityError for a piece, or a whole, that is not what the entry says.
    """
    try:
        plan = msgspec.json.decode(listed, type=PieceList).pieces
    except UNREADABLE as error:
        raise IntegrityError(
            f"the list of the image's pieces is damaged: {error}", where=weight.pieces
        ) from error
    if sum(size for _, size in plan) != weight.size or len(plan) > MOST_PIECES:
        raise IntegrityError(
            "the pieces of the image are not as long as the image", where=weight.pieces
        )
    whole = hashlib.sha256()
    title = f"take {target.name.lstrip('.').split('.')[0]} from the shelf"
    with (
        report.transfer(title, files=len(plan), size=weight.size) as transfer,
        os_errors_as(target),
        target.open("wb") as out,
    ):
        for digest, size in plan:
            source = pieces.piece_path(digest)
            found = hashlib.sha256()
            for chunk in _read_chunks(source, size):
                found.update(chunk)
                whole.update(chunk)
                out.write(chunk)
                transfer.advance(len(chunk))
            if f"sha256:{found.hexdigest()}" != digest:
                hint = "do not use it; tell the owner of the shelf. Build it instead: envbuild make --mode flat"
                raise IntegrityError(
                    "a piece of the image was changed on the shelf", where=source, hint=hint
                )
    if f"sha256:{whole.hexdigest()}" != weight.sha256 or image_digest(target) != weight.digest:
        raise IntegrityError("the image is another one than was published", where=weight.pieces)


def _read_chunks(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file of a known size; at most one byte more is read."""
    left = size
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
        if left or file.read(1):
            raise IntegrityError(
                "a piece of the image has another size than was published", where=path
            )


def _hash_pieces(image: Path, cut: list[int]) -> Iterator[tuple[str, int, int]]:
    with image.open("rb") as file:
        for start, end in itertools.pairwise(cut):
            digest = hashlib.sha256()
            left = end - start
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise IntegrityError("became shorter while it was published", where=image)
                digest.update(chunk)
                left -= len(chunk)
            yield f"sha256:{digest.hexdigest()}", start, end - start


def cut_points(image: Path, size: int) -> list[int]:
    """Return where to cut an image (bytes, ascending); evenly if it cannot be read."""
    try:
        anchors = _cut_candidates(image)
    except EnvbuildError:
        return list(range(MOST, size, MOST))
    found, last = [], 0
    for at, key in sorted(anchors.items()):
        if at - last >= LEAST and (key % ONE_IN == 0 or at - last >= MOST):
            found.append(at)
            last = at
    return [at for at in found if at < size]


def _cut_candidates(image: Path) -> dict[int, int]:
    """Return places to cut, each with a number that depends on the content there alone."""
    primary = read_sif(image).primary
    if primary is None:
        return {}
    with open_partition(image, primary) as tree:
        anchors = {primary.offset + tree.data_end: 0}
        for start, packed in tree.fragments:
            anchors[primary.offset + start] = zlib.crc32(str(packed).encode())
        for entry in tree.entries():
            if entry.kind != "f" or not entry.blocks:
                continue
            at = primary.offset + entry.start
            anchors[at] = zlib.crc32(f"{entry.path} {entry.size} {entry.blocks[0]}".encode())
            done = 0
            for block in entry.blocks:
                done += block & ~STORED
                if done >= MOST // 4:
                    at, done = at + done, 0
                    anchors[at] = 0
        return anchors
