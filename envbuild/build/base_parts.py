"""What an image's packages are put on: the base as parts, where its Python installs, what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from envbuild.base.oci.image import stored_config, stored_image
from envbuild.base.sources import fetch_base
from envbuild.build.image.base_config import NO_CONFIG, BaseConfig, config_of_oci, config_of_tree
from envbuild.build.in_base.overlay_run import OverlayContext, debian_install_script, run_captured
from envbuild.build.local_base import locked_reference
from envbuild.context import Context
from envbuild.errors import IntegrityError
from envbuild.formats.file_tree import Entry, Part, Tree, merge_parts, merges, resolve_links
from envbuild.lock.model import Lock
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_part
from envbuild.parts.from_layer import fill_layer
from envbuild.parts.from_sif import sif_key, sif_part
from envbuild.parts.from_tar import MOUNT_POINTS, root_contents
from envbuild.store.units import count_noun

EMPTY_FILES = ("etc/hosts", "etc/resolv.conf")
"""Files that a runtime binds over."""
FOLDERS = {**MOUNT_POINTS, "etc": 0o755, "home": 0o755}


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseParts:
    """A base as parts, lowest first; ``system`` are the Debian packages put over an image; ``tree`` is all merged."""

    parts: tuple[CachedPart, ...]
    tree: Tree
    inherited: BaseConfig = NO_CONFIG
    system: tuple[CachedPart, ...] = ()


def base_of_parts(parts: Sequence[CachedPart], inherited: BaseConfig = NO_CONFIG) -> BaseParts:
    """Return the ground that these parts make."""
    return BaseParts(
        parts=tuple(parts), tree=merge_parts([part.part for part in parts]), inherited=inherited
    )


def root_base(digest: str, tar: Callable[[], Path], packing: PackContext) -> BaseParts:
    """Return the ground of a bootstrapped root; ``tar`` makes it where the store has no part of it."""
    key = part_key("root", digest=digest, packer=packing.codec.key)
    found = cached_part(key, packing.store)
    if found is None:
        path = tar()
        packing.report.detail("pack the base")
        found = provide_part(key, packing, lambda writer: writer.add_all(root_contents(path)))
    return base_of_parts([found])


def image_base(
    lock: Lock, context: Context, packing: PackContext, feeders: Executor, groups: Sequence[str]
) -> BaseParts:
    """Return the ground of an image as base: one part for each of its layers, shared with other images.

    Over them come the locked Debian packages of the given groups.  Whatever the store lacks is brought and packed.
    """
    if locked_reference(lock).kind.is_sif:
        parts: list[CachedPart] = [_sif_root(lock, context, packing)]
    else:
        parts = _oci_layers(lock, context, packing, feeders)
    trees = merges(_laid(parts))
    parts.append(_mount_points(next(trees), packing))
    tree = next(trees)
    image = (
        stored_image(lock.base.digest, context.store)
        if not locked_reference(lock).kind.is_sif
        else None
    )
    if image is None:
        inherited = config_of_tree(tree, parts, compressor=packing.codec.compressor)
    else:
        inherited = config_of_oci(stored_config(image, context.store))
    own = len(parts)
    means = OverlayContext(runtime=context.runtime, runner=context.runner, packing=packing)
    for group in groups:
        packages = [p for p in lock.debian if p.group == group]
        if packages:
            act = debian_install_script(packages, means, lock.base.epoch)
            sums = {p.file: p.sha256 for p in packages}
            parts.append(run_captured(act, parts, lock.base, means, sums))
            tree = next(trees)
    return BaseParts(
        parts=tuple(parts[:own]), tree=tree, inherited=inherited, system=tuple(parts[own:])
    )


def _laid(parts: Sequence[CachedPart]) -> Iterator[list[Part]]:
    """Yield what has come to a list that grows since the last time."""
    done = 0
    while True:
        fresh = [kept.part for kept in parts[done:]]
        done += len(fresh)
        yield fresh


def _sif_root(lock: Lock, context: Context, packing: PackContext) -> CachedPart:
    found = cached_part(sif_key(lock.base.digest, packing), packing.store)
    if found is not None:
        return found
    header = _fetch_base(lock, context)
    with context.report.stage(f"pack the base {lock.base.reference}"):
        return sif_part(Path(header["From"]), lock.base.digest, packing)


def _oci_layers(
    lock: Lock, context: Context, packing: PackContext, feeders: Executor
) -> list[CachedPart]:
    image = stored_image(lock.base.digest, context.store)
    if image is None or not context.store.artifact(image.manifest.config.sha256).is_file():
        _fetch_base(lock, context)
        image = stored_image(lock.base.digest, context.store)
    if image is None:
        raise IntegrityError("the base just brought is not in the store", where=lock.base.reference)
    layers, diff_ids = image.manifest.layers, stored_config(image, context.store).rootfs.diff_ids
    if len(diff_ids) != len(layers):
        raise IntegrityError(
            f"has {len(layers)} layers, its configuration names {len(diff_ids)}",
            where=lock.base.reference,
        )
    keys = [part_key("oci", diff=diff, packer=packing.codec.key) for diff in diff_ids]
    found = [cached_part(key, packing.store) for key in keys]
    if None not in found:
        return [part for part in found if part is not None]
    _fetch_base(lock, context)

    def pack(key: str, sha256: str, diff: str) -> CachedPart:
        path = context.store.artifact(sha256)
        return provide_part(
            key,
            packing,
            lambda writer: fill_layer(writer, path, diff, where=lock.base.reference),
            layer=True,
        )

    lacking = sum(part is None for part in found)
    with context.report.stage(f"pack {count_noun(lacking, 'layer')} of {lock.base.reference}"):
        # the largest first, so that no core waits for it in the end; a layer may be there twice
        rows = {key: (layer, diff) for key, layer, diff in zip(keys, layers, diff_ids, strict=True)}
        order = sorted(rows, key=lambda key: -rows[key][0].size)
        futures = {
            key: feeders.submit(pack, key, rows[key][0].sha256, rows[key][1]) for key in order
        }
        return [futures[key].result() for key in keys]


def _fetch_base(lock: Lock, context: Context) -> dict[str, str]:
    """Bring the locked base into the store and return the header of a build from there."""
    return dict(fetch_base(locked_reference(lock), context))


def _mount_points(tree: Tree, packing: PackContext) -> CachedPart:
    """Return a part of what a runtime mounts over and the base lacks."""
    folders = {
        name: mode for name, mode in FOLDERS.items() if resolve_links(tree, name) not in tree
    }
    files = [name for name in EMPTY_FILES if resolve_links(tree, name) not in tree]
    key = part_key("mounts", folders=sorted(folders), files=files)
    entries = [Entry(name, "d", mode) for name, mode in folders.items()] + [
        Entry(name, "f", 0o644) for name in files
    ]
    return provide_part(
        key, packing, lambda writer: writer.add_all((entry, None) for entry in entries), layer=True
    )
