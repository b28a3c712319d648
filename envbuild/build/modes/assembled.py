"""``flat`` and ``layered``: put together from the store beside the final name, checked, then given that name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor
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
from envbuild.build.model import BuildSpec, ImageRecord
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
from envbuild.store.atomic import os_errors_as, sync_folder, sync_meanwhile, write_bytes
from envbuild.store.layout import Store

Check = Callable[[Path, str | None], None]
"""Is shown the image before it has a final name, with its digest where that is known; raises to refuse it."""


def make_assembled(order: BuildSpec, context: Context, check: Check) -> bool:
    """Make the image under its final name; return whether it had to be built.

    One process packs and checks, others that want the same image wait for it.  Whatever ``check`` raises leaves no
    image and no record.
    """
    order = settle_codec(order, context)
    key = key_of(order)
    with context.store.lock(key, context.report):
        record = read_record(key, context.store)
        layers = _kept_layers(record, context.store)
        if record is None or layers is None:
            if order.lock.is_bootstrap:
                require_base_digest(order)
            layers = gather_for(
                order.lock,
                order.codec,
                (order.plan, order.definition),
                context,
                order.recipe.system.post,
            ).layers
            _write_checked(order, layers, context, check, None)
            return True
    _write_checked(order, layers, context, check, record)
    return False


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


def _write_checked(
    order: BuildSpec,
    layers: tuple[Layer, ...],
    context: Context,
    check: Check,
    record: ImageRecord | None,
) -> None:
    key = key_of(order)
    with context.store.beside(order.target) as partial:
        with context.report.stage(f"write {order.target.name}"):
            tree = write_image(partial, order, layers, key)
            with sync_meanwhile(
                partial
            ):  # the disk and one core have something to do at the same time
                record = record or _image_record(partial, order, layers, tree)
        with os_errors_as(partial):
            partial.chmod(0o755)
        check(partial, record.digest)
        write_bytes(context.store.own_record(key), msgspec.json.encode(record), mode=0o444)
        with os_errors_as(order.target):
            partial.replace(order.target)
            sync_folder(order.target.parent)
    record_output(order.target, context.store, key, record.digest)


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
