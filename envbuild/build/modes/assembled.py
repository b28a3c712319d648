"""``flat`` and ``layered``.

Put together from the store beside the final name, checked, then given that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envbuild import __version__
from envbuild.build.assemble import Layer, assemble
from envbuild.build.assembly_plan import spec_of
from envbuild.build.fetch import require_base_digest
from envbuild.build.image.write import write_image
from envbuild.build.image_cache import key_of, read_record
from envbuild.build.model import BuildSpec, ImageRecord, UnnamedImage
from envbuild.build.output_record import record_output
from envbuild.build.pinned_compressor import settle_codec
from envbuild.context import Context
from envbuild.formats.sif_frame import frame_digest
from envbuild.formats.sif_reader import image_digest
from envbuild.lock.digest import lock_digest
from envbuild.parts.cache import cached_part
from envbuild.progress import Stage
from envbuild.store.atomic import os_errors_as, publish, sync_meanwhile, write_bytes
from envbuild.store.layout import Store


@contextmanager
def assembling(order: BuildSpec, context: Context) -> Iterator[UnnamedImage]:
    """Put an image together and yield it; it gets its final name at the end of the block.

    One process packs and checks, others that want the same image wait for it. Whatever the block
    raises leaves no image and no record.
    """
    order = settle_codec(order, context)
    store, key = context.store, key_of(order)
    with store.lock(key, context.report):
        # what another process made while this one waited for the lock counts
        record = read_record(key, store)
        layers = _kept_layers(record, store)
        built = layers is None
        if layers is None:
            record = None
            layers = _gather_layers(order, context)
        with store.beside(order.target) as partial:
            with context.report.stage(f"write {order.target.name}") as stage:
                tree = write_image(partial, order, layers, key, stage)
                with sync_meanwhile(
                    partial
                ):  # the disk and one core have something to do meanwhile
                    record = record or _image_record(partial, order, layers, tree, stage)
            with os_errors_as(partial):
                partial.chmod(0o755)
            yield UnnamedImage(path=partial, digest=record.digest, built=built)
            write_bytes(store.own(store.record(key)), msgspec.json.encode(record), mode=0o444)
            publish(partial, order.target)
        record_output(order.target, store, key, record.digest)


def _gather_layers(order: BuildSpec, context: Context) -> tuple[Layer, ...]:
    """Pack what the store lacks of an image, and return its layers."""
    if order.lock.is_bootstrap:
        require_base_digest(order)
    return assemble(spec_of(order), context).layers


def _kept_layers(record: ImageRecord | None, store: Store) -> tuple[Layer, ...] | None:
    """Return the layers of an image made before, None where the store has lost a part of it."""
    layers = []
    for name, keys in record.layers if record else ():
        found = [part for key in keys if (part := cached_part(key, store)) is not None]
        # gc may have taken a part: then all is gathered again, which packs only what is gone
        if len(found) != len(keys):
            return None
        layers.append(Layer(name=name, parts=tuple(found)))
    return tuple(layers) or None


def _image_record(
    path: Path, order: BuildSpec, layers: Sequence[Layer], tree: str, stage: Stage
) -> ImageRecord:
    return ImageRecord(
        digest=image_digest(path, stage.advance),
        frame=frame_digest(path),
        lock=lock_digest(order.lock),
        tree=tree,
        size=path.stat().st_size,
        packer=order.codec.name,
        envbuild=__version__,
        layers=tuple(
            (layer.name, tuple(part.part.key for part in layer.parts)) for layer in layers
        ),
    )
