"""Write an image file from its layers, as one partition or as one for each layer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from envbuild.build.assemble import Layer
from envbuild.build.codec import codec_of
from envbuild.build.dotfiles import inspect_metadata
from envbuild.build.guard import guarded, mark
from envbuild.build.model import Order
from envbuild.build.objects import NOTE, about, locked_text, sbom
from envbuild.build.sifwrite import CYCLONEDX_JSON, DEFINITION, GENERIC, JSON, SBOM, SifPart, data, partition, write_sif
from envbuild.build.squashfs import Copy, write_squashfs
from envbuild.build.tree import Part, Tree, merge, tree_digest
from envbuild.store.atomic import telling

METADATA = "inspect-metadata.json"
"""The name under which Apptainer looks for what ``inspect`` prints."""


def write_image(path: Path, order: Order, layers: Sequence[Layer], key: str) -> str:
    """Write the SIF and return its tree digest, which is over all layers together, without what guards them.

    The same order and layers give the same bytes.  They are not on the disk for sure before the file is synced.
    """
    lock = order.lock
    kept = [part for layer in layers for part in layer.parts]
    tree = merge([part.part for part in kept])
    digest = tree_digest(entry for entry, _ in tree.values())
    copies: list[list[tuple[Part, Copy]]]
    if order.mode == "layered":
        trees, copies = _layer_trees(layers, tree)
    else:
        trees, copies = [tree], [[(part.part, part.copy) for part in kept]]
    partitions = [
        partition(
            _writer(tree, parts, lock.base.epoch, lock.packer.compressor),
            machine=lock.base.machine,
            name="" if order.mode == "flat" else layers[number].name,
            overlay=number > 0,
        )
        for number, (tree, parts) in enumerate(zip(trees, copies, strict=True))
    ]
    with telling(path), path.open("wb") as out:
        objects = (*_data_objects(order, digest), *partitions)
        write_sif(out, objects, machine=lock.base.machine, epoch=lock.base.epoch, identity=key)
    return digest


def _writer(tree: Tree, parts: Sequence[tuple[Part, Copy]], epoch: int, compressor: str) -> Callable[[BinaryIO], int]:
    def write(out: BinaryIO) -> int:
        return write_squashfs(out, tree, parts, epoch=epoch, compressor=compressor)

    return write


def _layer_trees(layers: Sequence[Layer], whole: Tree) -> tuple[list[Tree], list[list[tuple[Part, Copy]]]]:
    """Return a tree for each layer with what writes its parts; folders are as they are in the whole image."""
    keys = [layer_key(layer) for layer in layers]
    trees, copies = [], []
    for number, layer in enumerate(layers):
        parts = [part.part for part in layer.parts]
        extra, content = guarded(keys[1:]) if number == 0 else mark(keys[number])
        tree = merge([*parts, extra])
        for path, (entry, _) in tree.items():
            if entry.kind == "d" and path in whole:
                tree[path] = (whole[path][0], 0)
        trees.append(tree)
        copies.append([*((part.part, part.copy) for part in layer.parts), (extra, content)])
    return trees, copies


def layer_key(layer: Layer) -> str:
    """Return the key of a layer: over what it is made of."""
    return hashlib.sha256("\n".join([layer.name, *(part.part.key for part in layer.parts)]).encode()).hexdigest()


def _data_objects(order: Order, tree: str) -> tuple[SifPart, ...]:
    """Return what the image carries about itself: definition, metadata, lock, bill of materials, its digests."""
    lock, name = order.lock, order.recipe.name
    note = about(name, lock, mode=order.mode, packer=codec_of(lock.packer).name, tree=tree)
    return (
        data(DEFINITION, f"{name}.def", order.definition.encode()),
        data(JSON, METADATA, inspect_metadata(order.plan, order.definition, order.mode)),
        data(GENERIC, f"{name}.lock", locked_text(lock).encode()),
        data(SBOM, "sbom.cdx.json", sbom(name, lock), extra=CYCLONEDX_JSON),
        data(JSON, NOTE, note),
    )
