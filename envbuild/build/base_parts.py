"""The base of an image as packed parts.

A bootstrapped root, a SIF's root, or the layers of an OCI image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from envbuild.base.debian.bootstrap import fetch_packages, has_root, make_root
from envbuild.base.oci.image import layer_contents, stored_config, stored_image
from envbuild.base.sources import fetch_base
from envbuild.build.assembly_plan import PlannedBase, plan_base
from envbuild.build.conda.parts import NO_CONDA, CondaParts
from envbuild.build.conda.replaced import replaced_entries, with_owners
from envbuild.build.fetch import locked_bootstrap
from envbuild.build.image.base_config import NO_CONFIG, BaseConfig, config_of_oci, config_of_tree
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.in_base.overlay_run import OverlayScript, debian_install_script, run_captured
from envbuild.build.local_base import locked_reference
from envbuild.build.packages.whiteouts import replaced_paths, whiteout_entries
from envbuild.context import Context
from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.block_codec import Codec
from envbuild.formats.file_tree import Tree, TreeEntry, TreeMerger, merge_parts, resolve_links
from envbuild.formats.oci import OciImage
from envbuild.lock.model import CONDA_PREFIX, Lock
from envbuild.names import Texts
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_contents
from envbuild.parts.from_layer import layer_key, provide_layer
from envbuild.parts.from_sif import sif_key, sif_part
from envbuild.parts.from_tar import MOUNT_POINTS, root_contents
from envbuild.parts.reader import read_file
from envbuild.records import frozen_record, replace
from envbuild.store.layout import Store
from envbuild.store.units import count_noun

EMPTY_FILES = ("etc/hosts", "etc/resolv.conf")
"""Files that a runtime binds over."""
FOLDERS = {**MOUNT_POINTS, "etc": 0o755, "home": 0o755}


@frozen_record
class BaseParts:
    """A base as parts, lowest first.

    ``own`` are the base's, ``system`` those of Debian packages put over an image, ``conda`` those
    of conda packages over both; ``tree`` is all of them merged; ``config`` is what is kept of the
    base beside its files.
    """

    own: tuple[CachedPart, ...]
    tree: Tree
    system: tuple[CachedPart, ...] = ()
    conda: CondaParts = NO_CONDA
    config: BaseConfig = NO_CONFIG

    @property
    def parts(self) -> tuple[CachedPart, ...]:
        """All parts, lowest first."""
        return (*self.own, *self.system, *self.conda.kept)


def is_sif(lock: Lock) -> bool:
    """Tell whether the base is a SIF, from a file or from a registry."""
    return locked_reference(lock).kind.is_sif


def provide_base(
    lock: Lock,
    groups: Sequence[str],
    packing: PackContext,
    feeders: Executor,
    context: Context,
    *,
    bare: BaseParts | None,
) -> BaseParts:
    """Return the base with the lock's Debian packages of the given groups.

    What the store lacks is fetched and packed. A bootstrapped root is one part with those packages
    in it; over an image, which ``bare`` is where it is packed already, they are parts of their own.
    """
    if lock.is_bootstrap:
        return _root_base(lock, groups, packing, context)
    base = bare or _image_base(lock, packing, feeders, context)
    for group in groups:
        script = system_script(lock, group, packing.store)
        if script is not None:
            part = run_captured(script, base.parts, lock.base, packing, context)
            base = with_system(base, part)
    return base


def system_script(lock: Lock, group: str, store: Store) -> OverlayScript | None:
    """Return what installs a group of Debian packages over an image; None for an empty group."""
    packages = [package for package in lock.debian if package.group == group]
    return debian_install_script(packages, store, lock.base.epoch) if packages else None


def with_system(base: BaseParts, part: CachedPart) -> BaseParts:
    """Return a base with a part of Debian packages over it."""
    tree = merge_parts(one.part for one in (*base.parts, part))
    return replace(base, system=(*base.system, part), tree=tree)


def refuse_other_prefix(lock: Lock, base: BaseParts) -> None:
    """Raise UsageError where the base has files in the folder that conda packages go to."""
    if lock.base.conda_prefix is not None:
        return  # its own environment is what they extend
    folder = f"{CONDA_PREFIX}/".lstrip("/")
    there = next((path for path in base.tree if path.startswith(folder)), None)
    if there is not None:
        raise UsageError(
            f"the base has /{there}, and {CONDA_PREFIX} is where conda packages go",
            where=lock.base.reference,
            hint="take another base, or leave [conda] out and use what the base has",
        )


def with_conda(base: BaseParts, conda: CondaParts) -> BaseParts:
    """Return a base with conda packages over it."""
    return replace(base, conda=conda, tree=merge_parts(p.part for p in (*base.parts, *conda.kept)))


def planned_base(lock: Lock, base: BaseParts, scheme: Scheme, codec: Codec) -> PlannedBase:
    """Return what the plan of an image has to know of a packed base."""
    own = [part.part.key for part in base.own]
    system = [part.part.key for part in base.system]
    hidden = hidden_entries(lock, base, scheme, codec)
    return PlannedBase(
        parts=(*plan_base(lock, own, system, lambda _: True), *base.conda.planned),
        scheme=scheme,
        config=base.config,
        hidden=tuple(entry.path for entry in hidden),
    )


def hidden_entries(
    lock: Lock, base: BaseParts, scheme: Scheme, codec: Codec
) -> tuple[TreeEntry, ...]:
    """Return marks that hide the packages of an image which locked ones replace."""
    if lock.is_bootstrap:
        return ()  # it has none

    read = reader_of(base, codec)
    names = [package.name for package in lock.installed]
    gone = replaced_paths(base.tree, names, scheme, read)
    return whiteout_entries(base.tree, with_owners(lock, base.tree, gone, read))


def hidden_conda(lock: Lock, base: BaseParts, codec: Codec) -> tuple[TreeEntry, ...]:
    """Return marks that hide the base's conda packages which locked ones replace."""
    return replaced_entries(lock, base.tree, reader_of(base, codec))


def reader_of(base: BaseParts, codec: Codec) -> Callable[[str], bytes | None]:
    """Return what reads a file of a packed base by its path."""

    def read(path: str) -> bytes | None:
        return read_file(base.tree, base.parts, path, compressor=codec.compressor)

    return read


def root_key(lock: Lock, groups: Sequence[str], codec: Codec) -> str:
    """Return the key of a bootstrapped root with these groups of Debian packages."""
    root = locked_bootstrap(lock, ("base", *groups))
    return part_key("root", digest=root.digest, packer=codec.key)


def _root_base(
    lock: Lock, groups: Sequence[str], packing: PackContext, context: Context
) -> BaseParts:
    key = root_key(lock, groups, packing.codec)
    root = cached_part(key, packing.store)
    if root is None:
        bootstrap = locked_bootstrap(lock, ("base", *groups))
        if not has_root(bootstrap, context.store):
            fetch_packages(bootstrap, context)  # not fetched before, where a damaged one was there
        tar = make_root(bootstrap, context)
        title = f"pack the base {lock.base.reference}"
        with packing.report.stage(title, total=tar.stat().st_size) as stage:
            contents = root_contents(tar, stage)
            root = provide_contents(key, packing, contents)
    return BaseParts(own=(root,), tree=merge_parts([root.part]))


def _image_base(lock: Lock, packing: PackContext, feeders: Executor, context: Context) -> BaseParts:
    """Return an image as base.

    One part for each of its layers, shared with other images, and one of mount points.
    """
    if is_sif(lock):
        parts = [_sif_root(lock, packing, context)]
    else:
        parts = _oci_layers(lock, packing, feeders, context)
    merger = TreeMerger()
    for part in parts:
        merger.add(part.part)
    # a runtime cannot make mount points in a read-only image
    mounted = _mount_points(merger.tree(), packing)
    merger.add(mounted.part)
    return base_of_image(lock, (*parts, mounted), merger.tree(), packing.codec, packing.store)


def base_of_image(
    lock: Lock, own: tuple[CachedPart, ...], tree: Tree, codec: Codec, store: Store
) -> BaseParts:
    """Return the base that the packed layers of an image and its mount points make.

    ``tree`` is all of them merged.
    """
    image = None if is_sif(lock) else stored_image(lock.base.digest, store)
    if image is None:
        config = config_of_tree(tree, own, compressor=codec.compressor)
    else:
        config = config_of_oci(stored_config(image, store))
    return BaseParts(own=own, tree=tree, config=config)


def _sif_root(lock: Lock, packing: PackContext, context: Context) -> CachedPart:
    found = cached_part(sif_key(lock.base.digest, packing.codec), packing.store)
    if found is not None:
        return found
    header = _fetch_base(lock, context)
    with context.report.stage(f"pack the base {lock.base.reference}") as stage:
        return sif_part(Path(header["From"]), lock.base.digest, packing, stage)


def complete_image(lock: Lock, store: Store) -> OciImage | None:
    """Return the manifest of a base from a registry.

    None where it or the image's configuration is not in the store.
    """
    image = stored_image(lock.base.digest, store)
    if image is None or not store.artifact(image.manifest.config.sha256).is_file():
        return None
    return image


def diff_ids_of(lock: Lock, image: OciImage, store: Store) -> Texts:
    """Return what each layer of an image holds, by hash."""
    return layer_contents(image, stored_config(image, store), lock.base.reference)


def _oci_layers(
    lock: Lock, packing: PackContext, feeders: Executor, context: Context
) -> list[CachedPart]:
    image = complete_image(lock, context.store)
    if image is None:
        _fetch_base(lock, context)
        image = stored_image(lock.base.digest, context.store)
    if image is None:
        raise IntegrityError("the base just brought is not in the store", where=lock.base.reference)
    diff_ids = diff_ids_of(lock, image, context.store)
    cached = {diff: cached_part(layer_key(diff, packing.codec), packing.store) for diff in diff_ids}
    lacking = sum(cached[diff] is None for diff in diff_ids)
    # the configuration alone names the layers' contents:
    # what is packed already is not even downloaded
    if lacking:
        _fetch_base(lock, context)
        # the largest first, so that no core waits for it in the end; a layer may be there twice
        layers = dict(zip(diff_ids, image.manifest.layers, strict=True))
        todo = [diff for diff in layers if cached[diff] is None]
        todo.sort(key=lambda diff: -layers[diff].size)
        title = f"pack {count_noun(lacking, 'layer')} of {lock.base.reference}"
        size = sum(layers[diff].size for diff in todo)
        with context.report.stage(title, total=size) as stage:
            futures = {
                diff: feeders.submit(
                    provide_layer,
                    context.store.artifact(layers[diff].sha256),
                    diff,
                    packing,
                    where=lock.base.reference,
                )
                for diff in todo
            }
            for diff, future in futures.items():
                cached[diff] = future.result()
                stage.advance(layers[diff].size)
    found = [cached[diff] for diff in diff_ids]
    return [part for part in found if part is not None]


def _fetch_base(lock: Lock, context: Context) -> dict[str, str]:
    """Fetch the locked base into the store and return the header of a build from there."""
    return dict(fetch_base(locked_reference(lock), context))


def mount_point_entries(tree: Tree) -> list[TreeEntry]:
    """Return what a runtime mounts over and a root lacks: folders, then empty files."""
    lacking = {
        name: mode for name, mode in FOLDERS.items() if resolve_links(tree, name) not in tree
    }
    files = [name for name in EMPTY_FILES if resolve_links(tree, name) not in tree]
    entries = [TreeEntry(name, "d", mode) for name, mode in lacking.items()]
    return [*entries, *(TreeEntry(name, "f", 0o644) for name in files)]


def mount_points_key(entries: Sequence[TreeEntry]) -> str:
    """Return the key of the part that these entries make."""
    folders = sorted(entry.path for entry in entries if entry.kind == "d")
    files = [entry.path for entry in entries if entry.kind == "f"]
    return part_key("mounts", folders=folders, files=files)


def _mount_points(tree: Tree, packing: PackContext) -> CachedPart:
    entries = mount_point_entries(tree)
    contents = ((entry, None) for entry in entries)
    return provide_contents(mount_points_key(entries), packing, contents, layer=True)
