"""``flat`` and ``layered``: put together from the store beside the final name, checked, then given that name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envbuild import __version__
from envbuild.build.assemble import Gathered, Hall, Layer, gather
from envbuild.build.base_parts import BaseParts, image_base, root_base
from envbuild.build.fetch import (
    fetch_files,
    locked_bootstrap,
    provide_root_tar,
    require_base_digest,
)
from envbuild.build.image.write import write_image
from envbuild.build.image_cache import key_of, read_record
from envbuild.build.model import BuildSpec, ImageRecord, UnnamedImage
from envbuild.build.output_record import record_output
from envbuild.build.pinned_compressor import settle_codec
from envbuild.context import Context
from envbuild.formats.block_codec import Codec
from envbuild.formats.sif_frame import frame_digest
from envbuild.formats.sif_reader import image_digest
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.parts.cache import PackContext, cached_part
from envbuild.plan.model import Definition
from envbuild.store.atomic import os_errors_as, publish, sync_meanwhile, write_bytes
from envbuild.store.layout import Store


@contextmanager
def assembling(order: BuildSpec, context: Context) -> Iterator[UnnamedImage]:
    """Put an image together and yield it; it gets its final name at the end of the block.

    One process packs and checks, others that want the same image wait for it.  Whatever the block raises leaves no
    image and no record.
    """
    order = settle_codec(order, context)
    store, key = context.store, key_of(order)
    with store.lock(key, context.report):
        record = read_record(key, store)
        layers = _kept_layers(record, store)
        built = layers is None
        if layers is None:
            record = None
            layers = _gather_layers(order, context)
        with store.beside(order.target) as partial:
            with context.report.stage(f"write {order.target.name}"):
                tree = write_image(partial, order, layers, key)
                with sync_meanwhile(
                    partial
                ):  # the disk and one core have something to do meanwhile
                    record = record or _image_record(partial, order, layers, tree)
            with os_errors_as(partial):
                partial.chmod(0o755)
            yield UnnamedImage(path=partial, digest=record.digest, built=built)
            write_bytes(store.own_record(key), msgspec.json.encode(record), mode=0o444)
            publish(partial, order.target)
        record_output(order.target, store, key, record.digest)


def _gather_layers(order: BuildSpec, context: Context) -> tuple[Layer, ...]:
    """Pack what the store lacks of an image, and return its layers."""
    if order.lock.is_bootstrap:
        require_base_digest(order)
    definition = (order.plan, order.definition)
    post = order.recipe.system.post
    return gather_for(order.lock, order.codec, definition, context, post).layers


def _kept_layers(record: ImageRecord | None, store: Store) -> tuple[Layer, ...] | None:
    """Return the layers of an image that was made before, None where the store has lost a part of it."""
    layers = []
    for name, keys in record.layers if record else ():
        found = [part for key in keys if (part := cached_part(key, store)) is not None]
        if len(found) != len(keys):
            return None
        layers.append(Layer(name=name, parts=tuple(found)))
    return tuple(layers) or None


def gather_for(
    lock: Lock,
    codec: Codec,
    definition: tuple[Definition, str] | None,
    context: Context,
    post: tuple[str, ...] = (),
) -> Gathered:
    """Return the parts of a lock's image, after bringing whatever the store lacks of them.

    ``post`` are the recipe's own lines of shell.
    """
    fetch_files(lock, context)
    return gather(lock, definition, _hall(lock, codec, context, post))


def _hall(lock: Lock, codec: Codec, context: Context, post: tuple[str, ...]) -> Hall:
    """Return what gathering needs for this lock's kind of base."""

    def ground_from(*groups: str) -> Callable[[PackContext, Executor], BaseParts]:
        if not lock.is_bootstrap:
            return lambda packing, feeders: image_base(lock, context, packing, feeders, groups)
        root = locked_bootstrap(lock, ("base", *groups))
        return lambda packing, _: root_base(
            root.digest, lambda: provide_root_tar(root, context), packing
        )

    return Hall(
        store=context.store,
        codec=codec,
        runner=context.runner,
        runtime=lambda: context.runtime,
        report=context.report,
        bare=ground_from(),
        ground=ground_from("system"),
        build_ground=ground_from("system", "build"),
        build_digest=_build_digest(lock),
        post=post,
    )


def _build_digest(lock: Lock) -> str:
    """Return what names the root that source packages are built in."""
    if lock.is_bootstrap:
        return locked_bootstrap(lock, ("base", "system", "build")).digest
    sums = sorted(p.sha256 for p in lock.debian)
    text = "\n".join([lock.base.digest, *sums])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest() if sums else lock.base.digest


def _image_record(
    path: Path, order: BuildSpec, layers: tuple[Layer, ...], tree: str
) -> ImageRecord:
    return ImageRecord(
        digest=image_digest(path),
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
