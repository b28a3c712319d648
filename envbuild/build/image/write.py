"""Write an image file from its layers, as one partition or as one for each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from envbuild.build.assemble import Layer
from envbuild.build.image.base_config import HOME
from envbuild.build.image.guard import guard_part, mark_part
from envbuild.build.image.metadata import embedded_lock, image_note, write_sbom
from envbuild.build.image.origin import NOTE
from envbuild.build.image.runtime_files import OF_BASE, inspect_metadata
from envbuild.build.model import BuildSpec
from envbuild.build.modes import MODES
from envbuild.formats.file_tree import Part, Tree, TreeEntry, TreeMerger, tree_digest
from envbuild.formats.sif_writer import (
    CYCLONEDX_JSON,
    DEFINITION,
    GENERIC,
    JSON,
    SBOM,
    SifPart,
    data_object,
    partition_object,
    write_sif,
)
from envbuild.formats.squashfs.writer import Copy, write_squashfs
from envbuild.parts.cache import CachedPart
from envbuild.parts.compact import drop_unused_blocks
from envbuild.parts.reader import read_file
from envbuild.progress import Stage
from envbuild.store.atomic import os_errors_as
from envbuild.store.hashing import hash_text

METADATA = "inspect-metadata.json"
"""The name under which Apptainer looks for what ``inspect`` prints."""


def write_image(
    path: Path, order: BuildSpec, layers: Sequence[Layer], key: str, stage: Stage
) -> str:
    """Write the SIF and return its tree digest: over all layers together, without their guards.

    The same order and layers give the same bytes. They are not on the disk for sure before the file
    is synced.
    """
    lock, compressor = order.lock, order.codec.compressor
    is_layered = MODES[order.mode].is_layered
    kept = list(chain.from_iterable(layer.parts for layer in layers))
    groups = [layer.parts for layer in layers] if is_layered else [kept]
    # what is there after each layer: the tree of a layered image's partition is what changed since
    # the one below
    merger, trees = TreeMerger(), []
    for group in groups:
        for cached in group:
            merger.add(cached.part)
        trees.append(merger.tree())
    tree = trees[-1]
    digest = tree_digest(entry for entry, _ in tree.values())
    # the object that "inspect" reads has to say what the files inside say
    held = _read_runtime_files(tree, kept, compressor)
    written = _layer_trees(layers, trees) if is_layered else [drop_unused_blocks(tree, kept)]
    # as much again is read for the image's digest
    stage.expect(2 * sum(part.size for _, parts in written for part, _ in parts))
    partitions = []
    for number, (own, parts) in enumerate(written):
        copies = [_count_copy(*part, stage) for part in parts]
        partition = partition_object(
            _squashfs_writer(own, copies, lock.base.epoch, compressor),
            machine=lock.base.machine,
            name=layers[number].name if is_layered else "",
            overlay=number > 0,
        )
        partitions.append(partition)
    with os_errors_as(path), path.open("wb") as out:
        objects = (*_data_objects(order, digest, held), *partitions)
        write_sif(out, objects, machine=lock.base.machine, epoch=lock.base.epoch, identity=key)
    return digest


def _squashfs_writer(
    tree: Tree, parts: Sequence[tuple[Part, Copy]], epoch: int, compressor: str
) -> Callable[[BinaryIO], int]:
    def write(out: BinaryIO) -> int:
        return write_squashfs(out, tree, parts, epoch=epoch, compressor=compressor)

    return write


def _count_copy(part: Part, copy: Copy, stage: Stage) -> tuple[Part, Copy]:
    def copy_and_count(target: int, at: int) -> None:
        copy(target, at)
        stage.advance(part.size)

    return part, copy_and_count


def _read_runtime_files(tree: Tree, kept: Sequence[CachedPart], compressor: str) -> dict[str, str]:
    """Return those files of the runtime that a base may have brought, by name."""
    found = {}
    for name in (*OF_BASE, "labels.json", "runscript"):
        content = read_file(tree, kept, f"{HOME}/{name}", compressor=compressor)
        if content is not None:
            found[name] = content.decode("utf-8", "replace")
    return found


Written = tuple[Tree, list[tuple[Part, Copy]]]
"""What a partition is written from."""


def _hide_gone(own: Tree, below: Tree, upto: Tree) -> None:
    """Mark names that were there below and are gone now: only a mark hides them from overlayfs."""
    for path in below.keys() - upto.keys():
        folder = upto.get(path.rpartition("/")[0])
        # where the folder itself is gone, its own mark hides all that is below
        if folder is not None and folder[0].kind == "d":
            own[path] = (TreeEntry(path, "c", 0), 0)


def _layer_trees(layers: Sequence[Layer], trees: Sequence[Tree]) -> list[Written]:
    """Return a tree for each layer with what writes its parts.

    Folders are as they are in the whole image. ``trees`` are what is there up to each layer. What a
    layer hides of lower ones is marked as overlayfs wants it: by a character device 0:0 in its
    place.
    """
    keys = [layer_key(layer) for layer in layers]
    written: list[Written] = []
    below: Tree = {}
    first, whole = 0, trees[-1]
    for number, (layer, upto) in enumerate(zip(layers, trees, strict=True)):
        # parts are numbered through all layers: those from "first" on are this layer's own
        own: Tree = {}
        for path, (entry, part_number) in upto.items():
            if path and part_number >= first:
                own[path] = (entry, part_number - first)
        _hide_gone(own, below, upto)
        extra, content = guard_part(keys[1:]) if number == 0 else mark_part(keys[number])
        for entry in extra.entries:
            own[entry.path] = (entry, len(layer.parts))
        for path in list(own):
            add_folders(own, path)
        # overlayfs takes mode and owner of a folder from the topmost layer that has it
        for path, (entry, _) in own.items():
            if entry.kind == "d" and path in whole:
                own[path] = (whole[path][0], 0)
        tree, parts = drop_unused_blocks(own, layer.parts)
        written.append((tree, [*parts, (extra, content)]))
        below, first = upto, first + len(layer.parts)
    return written


def add_folders(tree: Tree, path: str) -> None:
    """Add the folders above a path that a tree lacks."""
    while path:
        path = path.rpartition("/")[0]
        if path in tree:
            return
        tree[path] = (TreeEntry(path, "d", 0o755), 0)


def layer_key(layer: Layer) -> str:
    """Return the key of a layer.

    Over the files that it is made of, whatever packed or named them.
    """
    # digests of trees and not keys of parts: a rename in the code changes no mark in an image
    trees = [tree_digest(part.part.entries) for part in layer.parts]
    return hash_text("\n".join([layer.name, *trees]))


def _data_objects(order: BuildSpec, tree: str, held: dict[str, str]) -> tuple[SifPart, ...]:
    """Return what the image carries about itself.

    Definition, metadata, lock, bill of materials, its digests.
    """
    lock, name = order.lock, order.recipe.name
    note = image_note(name, lock, mode=order.mode, packer=order.codec.name, tree=tree)
    return (
        data_object(DEFINITION, f"{name}.def", order.definition.encode()),
        data_object(
            JSON, METADATA, inspect_metadata(order.plan, order.definition, order.mode, held)
        ),
        data_object(GENERIC, f"{name}.lock", embedded_lock(lock).encode()),
        data_object(SBOM, "sbom.cdx.json", write_sbom(name, lock), extra=CYCLONEDX_JSON),
        data_object(JSON, NOTE, note),
    )
