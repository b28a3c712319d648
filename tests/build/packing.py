"""Make small packed trees for tests, as SIF-less squashfs files."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from envbuild.formats.block_codec import Codec
from envbuild.formats.file_tree import Part, TreeEntry, merge_parts
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.parts.cache import CachedPart
from envbuild.parts.writer import Content, PartWriter

ZSTD = Codec(compressor="zstd", level=3, library="here")
EPOCH = 1_700_000_000


def pack_part(
    contents: Iterable[Content],
    blob: Path,
    *,
    codec: Codec = ZSTD,
    workers: int = 2,
    key: str = "k",
) -> Part:
    with ThreadPoolExecutor(workers) as pool, blob.open("wb") as out:
        writer = PartWriter(out, codec=codec, pool=pool)
        writer.add_all(contents)
        return writer.finish(key)


def write_file_system(path: Path, parts: list[tuple[Part, Path]], *, codec: Codec = ZSTD) -> None:
    tree = merge_parts([part for part, _ in parts])
    with path.open("wb") as out:
        kept = [CachedPart(part=part, blob=blob) for part, blob in parts]
        write_squashfs(
            out,
            tree,
            [(item.part, item.copy) for item in kept],
            epoch=EPOCH,
            compressor=codec.compressor,
        )


def read_file_system(path: Path) -> dict[str, TreeEntry]:
    with closing(SquashImage(path, 0, path.stat().st_size)) as image, ThreadPoolExecutor(2) as pool:
        return read_tree(image, pool)


def file(path: str, mode: int = 0o644, *, uid: int = 0, gid: int = 0, mtime: int = -1) -> TreeEntry:
    return TreeEntry(path, "f", mode, uid, gid, mtime)
