"""Make one partition of a layered image, from the image alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import structs

from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.image.metadata import ImageNote
from envbuild.build.image.origin import NOTE
from envbuild.build.image.runtime_files import LAYERED_HELP
from envbuild.build.image.verify import layer_of, root_partitions
from envbuild.build.image.write import METADATA
from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.file_copy import copy_into
from envbuild.formats.file_tree import merge_parts, tree_digest
from envbuild.formats.sif_reader import OVERLAY, PARTITION, SifFile, SifObject, read_sif
from envbuild.formats.sif_writer import (
    CYCLONEDX_JSON,
    SBOM,
    SifPart,
    data_object,
    partition_object,
    write_sif,
)
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import open_partition
from envbuild.formats.squashfs.writer import Copy, write_squashfs
from envbuild.host import count_processors
from envbuild.progress import Stage
from envbuild.store.atomic import os_errors_as, sync_file


def flatten_image(source: Path, target: Path, stage: Stage) -> str:
    """Write a layered image as one partition and return its tree digest, which stays the same.

    Packed bytes are copied as they are. Raises UsageError for an image that is not layered,
    IntegrityError for one that has lost a layer, is damaged, or holds something else than its note
    says.
    """
    carried = read_embedded_info(source)
    if carried.note is None or carried.note.mode != "layered":
        raise UsageError(
            "is not a layered image of envbuild", where=source, hint="it can be used as it is"
        )
    if carried.lock is None:
        raise IntegrityError("carries no lock", where=source)
    note, lock = carried.note, carried.lock
    with ExitStack() as stack, ThreadPoolExecutor(count_processors(), "hash") as pool:
        layers = []
        for item in root_partitions(source):
            image = stack.enter_context(open_partition(source, item))
            part = layer_of(image, read_tree(image, pool, stage), overlay=item.partition == OVERLAY)
            layers.append((part, _partition_copy(source, item)))
            compressor = image.compressor
    tree = merge_parts([part for part, _ in layers])
    digest = tree_digest(entry for entry, _ in tree.values())
    # a runtime drops a damaged layer without a word, and so would this
    if digest != note.tree:
        raise IntegrityError(
            "a layer is missing or damaged: its files are not those that it was made of",
            where=source,
            hint=f"make it again: envbuild make {note.recipe}",
        )
    epoch, machine = lock.base.epoch, lock.base.machine

    def write(out: BinaryIO) -> int:
        return write_squashfs(out, tree, layers, epoch=epoch, compressor=compressor)

    objects = (*_data_objects(read_sif(source), note), partition_object(write, machine=machine))
    with os_errors_as(target), target.open("wb") as out:
        write_sif(out, objects, machine=machine, epoch=epoch, identity=f"flat {digest} {note.lock}")
        sync_file(out)
    return digest


def _partition_copy(source: Path, item: SifObject) -> Copy:
    def copy(target: int, at: int) -> None:
        with open_partition(source, item) as image:
            copy_into(source, target, at, image.data_end, offset=item.offset)

    return copy


def _data_objects(sif: SifFile, note: ImageNote) -> tuple[SifPart, ...]:
    """Return the objects beside the partitions; those that say what the image is are changed."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        NOTE: lambda _: msgspec.json.encode(structs.replace(note, mode="flat"), order="sorted"),
        METADATA: _flat_metadata,
    }
    kept = []
    for item in sif.unsigned:
        if item.data_type == PARTITION:
            continue
        content = sif.read(item)
        content = changes[item.name](content) if item.name in changes else content
        extra = CYCLONEDX_JSON if item.data_type == SBOM else b""
        kept.append(data_object(item.data_type, item.name, content, extra=extra))
    return tuple(kept)


def _flat_metadata(content: bytes) -> bytes:
    try:
        document = json.loads(content)
        attributes = document["data"]["attributes"]
        attributes["labels"]["envbuild.mode"] = "flat"
        attributes["helpfile"] = attributes["helpfile"].removesuffix(LAYERED_HELP)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"its object {METADATA} is damaged: {error!r}") from error
    return json.dumps(document, sort_keys=True).encode()
