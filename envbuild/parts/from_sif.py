"""The root of a SIF as a part: its packed bytes as they are where they can be, else packed anew block by block."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.block_codec import BLOCK
from envbuild.formats.file_tree import Part
from envbuild.formats.sif_reader import PARTITION, read_sif
from envbuild.formats.sif_writer import OVERLAY
from envbuild.formats.squashfs_reader import SquashImage, read_tree
from envbuild.parts.cache import Bench, KeptPart, kept_part, part_key, provide
from envbuild.parts.reader import image_contents
from envbuild.parts.writer import PartWriter

CHUNK = 1 << 22


def sif_key(digest: str, bench: Bench) -> str:
    """Return the key of the part of a SIF with this image digest."""
    return part_key("sif", digest=digest, packer=bench.codec.key)


def sif_part(path: Path, digest: str, bench: Bench) -> KeptPart:
    """Return the part of a SIF's root.  Raises UsageError for a layered image, IntegrityError for a damaged one."""
    key = sif_key(digest, bench)
    found = kept_part(key, bench.store)
    if found is not None:
        return found
    sif = read_sif(path)
    if any(item.data_type == PARTITION and item.partition == OVERLAY for item in sif.objects):
        raise UsageError(
            "is made of layers, and a build from it would take its first one only",
            where=str(path),
            hint=f"make it one partition: envbuild flatten {path.name}",
        )
    if sif.primary is None:
        raise UsageError("has no root file system (no primary partition)", where=str(path))
    image = SquashImage(path, sif.primary.offset, sif.primary.size)
    try:
        bench.report.detail(f"pack {path.name}")
        if (image.compressor, image.block_size) == (bench.codec.compressor, BLOCK):
            return provide(key, bench, lambda out: _copied(image, key, out, bench))
        return provide(key, bench, lambda out: _repacked(image, key, out, bench))
    finally:
        image.close()


def _copied(image: SquashImage, key: str, out: BinaryIO, bench: Bench) -> Part:
    """Copy a file system up to its tables and describe what is in it."""
    tree = read_tree(image, bench.pool)
    digest, at = hashlib.sha256(), 0
    while at < image.data_end:
        chunk = image.read(at, min(CHUNK, image.data_end - at))
        digest.update(chunk)
        out.write(chunk)
        at += len(chunk)
    return Part(
        key=key,
        entries=tuple(tree[path] for path in sorted(tree)),
        fragments=tuple(image.fragments),
        size=image.data_end,
        sha256=digest.hexdigest(),
        layer=True,
    )


def _repacked(image: SquashImage, key: str, out: BinaryIO, bench: Bench) -> Part:
    writer = PartWriter(out, codec=bench.codec, pool=bench.pool)
    try:
        writer.add_all(image_contents(image))
    except IntegrityError as error:
        raise image.damaged(error.what) from error
    return writer.finish(key, layer=True)
