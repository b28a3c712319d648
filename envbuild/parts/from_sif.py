"""The root of a SIF as a part.

Its packed bytes as they are where they can be, else packed anew block by block.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.block_codec import BLOCK, Codec
from envbuild.formats.file_tree import Part
from envbuild.formats.sif_reader import read_sif
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_blob
from envbuild.parts.reader import image_contents
from envbuild.parts.writer import PartWriter
from envbuild.progress import Stage

CHUNK = 1 << 22


def sif_key(digest: str, codec: Codec) -> str:
    """Return the key of the part of a SIF with this image digest."""
    return part_key("sif", digest=digest, packer=codec.key)


def sif_part(path: Path, digest: str, packing: PackContext, stage: Stage) -> CachedPart:
    """Return the part of a SIF's root.

    Raises UsageError for a layered image, IntegrityError for a damaged one.
    """
    key = sif_key(digest, packing.codec)
    found = cached_part(key, packing.store)
    if found is not None:
        return found
    sif = read_sif(path)
    if sif.overlays:
        raise UsageError(
            "is made of layers, and a build from it would take its first one only",
            where=path,
            hint=f"make it one partition: envbuild flatten {path.name}",
        )
    if sif.primary is None:
        raise UsageError("has no root file system (no primary partition)", where=path)
    with closing(SquashImage(path, sif.primary.offset, sif.primary.size)) as image:
        packing.report.detail(f"pack {path.name}")
        # packed blocks can be taken over where compressor and size are ours
        if (image.compressor, image.block_size) == (packing.codec.compressor, BLOCK):
            return provide_blob(
                key, packing, lambda out: _copy_blocks(image, key, out, packing, stage)
            )
        return provide_blob(key, packing, lambda out: _repack(image, key, out, packing, stage))


def _copy_blocks(
    image: SquashImage, key: str, out: BinaryIO, packing: PackContext, stage: Stage
) -> Part:
    """Copy a file system up to its tables and describe what is in it."""
    tree = read_tree(image, packing.pool, stage)
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


def _repack(
    image: SquashImage, key: str, out: BinaryIO, packing: PackContext, stage: Stage
) -> Part:
    writer = PartWriter(out, codec=packing.codec, pool=packing.pool)
    try:
        writer.add_all(image_contents(image, stage))
    except IntegrityError as error:
        raise image.damaged(error.what) from error
    return writer.finish(key, layer=True)
