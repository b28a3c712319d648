"""Say where two images that should be the same bytes differ: which member of which layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

from envbuild.formats.file_tree import TreeEntry, compare_trees
from envbuild.formats.sif_reader import PARTITION, SifObject, read_chunks, read_sif
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import open_partition
from envbuild.host import count_processors

SHOWN = 12


def describe_difference(one: Path, two: Path) -> str:
    """Return where two images differ, as a few words for people.

    "" where all their objects are the same.

    Raises IntegrityError for an image that is damaged.
    """
    # signing adds objects, and changes none of the others
    first, second = read_sif(one).unsigned, read_sif(two).unsigned
    names, others = _names_of(first), _names_of(second)
    if names != others:
        return f"the objects are {names} in one and {others} in the other"
    with ThreadPoolExecutor(count_processors(), "hash") as pool:
        for a, b in zip(first, second, strict=True):
            if a.data_type == PARTITION:
                difference = _compare_partitions((one, a), (two, b), pool)
            else:
                difference = "" if _same_bytes((one, a), (two, b)) else "its text differs"
            if difference:
                return f"{_object_title(a)}: {difference}"
    return ""


def _names_of(items: Iterable[SifObject]) -> str:
    return ", ".join(item.name or "flat" for item in items)


def _object_title(item: SifObject) -> str:
    if item.data_type != PARTITION:
        return f"object {item.name}"
    return f"layer {item.name}" if item.name else "the file system"


def _read_partition(path: Path, item: SifObject, pool: Executor) -> dict[str, TreeEntry]:
    with open_partition(path, item) as image:
        return read_tree(image, pool)


def _compare_partitions(
    one: tuple[Path, SifObject], two: tuple[Path, SifObject], pool: Executor
) -> str:
    before, after = _read_partition(*one, pool), _read_partition(*two, pool)
    missing, changed, extra = compare_trees(before, after)
    rows = [f"/{path} is only in the first" for path in missing]
    rows += [f"/{path} is only in the second" for path in extra]
    rows += [f"/{path}: {what}" for path, what in changed]
    rows = rows or _compare_packing(before, after)
    if not rows and not _same_bytes(one, two):
        rows = ["the files are the same, its tables are not"]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return "; ".join(rows[:SHOWN]) + more


def _compare_packing(one: Mapping[str, TreeEntry], two: Mapping[str, TreeEntry]) -> list[str]:
    """Return what differs between two trees of the same files: times, and how they are packed."""
    rows = [
        f"/{path}: time {one[path].mtime} is {two[path].mtime}"
        for path in one
        if one[path].mtime != two[path].mtime
    ]
    return rows or [f"/{path}: packed otherwise" for path in one if one[path] != two[path]]


def _same_bytes(one: tuple[Path, SifObject], two: tuple[Path, SifObject]) -> bool:
    (path, item), (other_path, other) = one, two
    if item.size != other.size:
        return False
    with path.open("rb") as first, other_path.open("rb") as second:
        chunks = read_chunks(first, item.offset, item.size)
        others = read_chunks(second, other.offset, other.size)
        return all(chunk == found for chunk, found in zip_longest(chunks, others))
