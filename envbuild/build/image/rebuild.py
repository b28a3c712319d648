"""Make an image a second time, from locked files alone, and compare it with the first one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from envbuild.base.oci.image import stored_image
from envbuild.base.reference import parse_reference
from envbuild.build.fetch import fetch_files
from envbuild.build.image.verify import image_tree
from envbuild.build.image_cache import key_of, read_record
from envbuild.build.make import building
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.formats.file_tree import compare_trees, tree_digest
from envbuild.formats.sif_reader import image_digest
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.parts.cache import cached_part
from envbuild.records import replace
from envbuild.store.atomic import link_or_copy, os_errors_as
from envbuild.store.layout import Store

ONLY_BEFORE = "-"
"""Stands for the layer of a name that the image made again does not have."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What making an image again has shown.

    ``same`` is "bytes" (equal image digests), "tree" (the same files, packed otherwise) or
    "nothing"; ``differs`` are (layer, path, what) for each file, ``before`` and ``after`` the image
    digests, ``trees`` the tree digests.
    """

    name: str
    lock: str
    same: Literal["bytes", "tree", "nothing"]
    before: str
    after: str
    trees: tuple[str, str]
    differs: tuple[tuple[str, str, str], ...] = ()


@contextmanager
def made_again(order: BuildSpec, context: Context) -> Iterator[tuple[Path, Context]]:
    """Yield an image made with a store of nothing but the locked files, and its context.

    Roots, wheels of sdists, layers and bytecode are all made anew. Missing files are downloaded
    into the real store first.
    """
    fetch_files(order.lock, context)
    with context.store.work("rebuild") as work:
        # an empty store: nothing that was packed before can hide a difference
        clean = replace(context, store=Store(work / "store"))
        _give_files(order.lock, context.store, clean.store)
        again = replace(order, target=work / f"{order.recipe.name}.sif")
        with building(again, clean):
            pass
        yield again.target, clean


def _give_files(lock: Lock, store: Store, other: Store) -> None:
    """Give another store the locked files that the first one has, by name or as copies."""
    wanted = base_files(lock, store)
    for items in (lock.python, lock.debian, lock.conda, lock.files):
        wanted.update(item.sha256 for item in items)
    for sha256 in sorted(wanted):
        source, target = store.artifact(sha256), other.artifact(sha256)
        with os_errors_as(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, target, mode=0o444)


def base_files(lock: Lock, store: Store) -> set[str]:
    """Return the sha256 of what the store holds of a base from a registry.

    Manifest, configuration, layers.
    """
    kind = parse_reference(lock.base.reference).kind
    if not kind.in_registry:
        return set()
    image = stored_image(lock.base.digest, store, sif=kind.is_sif)
    if image is None:
        return set()
    blobs = {
        lock.base.digest,
        image.manifest.config.digest,
        *(layer.digest for layer in image.manifest.layers),
    }
    found = {digest.removeprefix("sha256:") for digest in blobs}
    return {sha256 for sha256 in found if store.artifact(sha256).is_file()}


def compare_images(first: Path, order: BuildSpec, second: Path, clean: Context) -> Comparison:
    """Compare an image with the one that was made again; ``clean`` is the context it was made in.

    Raises UsageError for a file without a root file system.
    """
    before, after = image_digest(first), image_digest(second)
    same: Literal["bytes", "tree", "nothing"] = "bytes"
    rows: list[tuple[str, str]] = []
    if before == after:
        record = read_record(key_of(order), clean.store)
        tree = record.tree if record else tree_digest(image_tree(second, clean).values())
        trees = tree, tree
    else:
        old, new = image_tree(first, clean), image_tree(second, clean)
        trees = tree_digest(old.values()), tree_digest(new.values())
        same = "tree" if trees[0] == trees[1] else "nothing"
    if same == "nothing":
        missing, changed, extra = compare_trees(new, old)
        rows = [(path, "is not in the first image") for path in missing]
        rows += [*changed, *((path, "is only in the first image") for path in extra)]
    layers = _layer_names(order, clean.store) if rows else {}
    return Comparison(
        name=order.recipe.name,
        lock=lock_digest(order.lock),
        same=same,
        before=before,
        after=after,
        trees=trees,
        differs=tuple((layers.get(path, ONLY_BEFORE), path, what) for path, what in sorted(rows)),
    )


def _layer_names(order: BuildSpec, store: Store) -> Mapping[str, str]:
    """Return the layer of each path of an image that was put together here.

    Of others nothing is known.
    """
    record = read_record(key_of(order), store)
    found: dict[str, str] = {}
    for name, keys in record.layers if record else ():
        for key in keys:
            part = cached_part(key, store)
            if part is not None:
                found.update((entry.path, name) for entry in part.part.entries)
    return found
