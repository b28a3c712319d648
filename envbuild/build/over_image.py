"""Packages over an image that stays as it is: one small squashfs, which a runtime lays over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import structs

from envbuild.build.assemble import provide_package, provide_wheel
from envbuild.build.assembly_plan import build_needs
from envbuild.build.fetch import fetch_files
from envbuild.build.image.guard import mark_part
from envbuild.build.image.verify import layer_of, root_partitions
from envbuild.build.image.write import add_folders
from envbuild.build.in_base.bytecode import WheelPart, bytecode_key, compile_modules, wheel_modules
from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.install_scheme import (
    Scheme,
    ask_scheme,
    bootstrap_scheme,
    conda_scheme,
    read_scheme,
)
from envbuild.build.in_base.sdists import build_wheels, wheel_key
from envbuild.build.packages.whiteouts import replaced_entries
from envbuild.build.pinned_compressor import running_codec
from envbuild.context import Context
from envbuild.formats.file_tree import Tree, TreeEntry, TreeMerger, merge_parts
from envbuild.formats.oci_layer import WHITEOUT
from envbuild.formats.sif_reader import OVERLAY
from envbuild.formats.squashfs.reader import SquashImage, open_partition
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.host import count_processors
from envbuild.lock.model import Lock
from envbuild.names import Paths, Texts
from envbuild.parts.cache import CachedPart, PackContext, cached_part
from envbuild.parts.reader import read_entry
from envbuild.records import frozen_record
from envbuild.store.atomic import os_errors_as, sync_file
from envbuild.store.hashing import hash_bytes, hash_text
from envbuild.store.sealed import is_sealed, read_sealed, write_sealed
from envbuild.store.units import count_noun


@frozen_record
class LayerSpec:
    """What a layer over an image is made of.

    ``lock`` is that of the packages, with the image as its base; ``below`` is the image's own lock
    (None: it has none), with which it shares its parts; ``wheels`` are further wheels by their
    paths, and ``replaced`` the names of packages that the image holds in another version.
    """

    image: Path
    lock: Lock
    below: Lock | None = None
    wheels: Paths = ()
    replaced: Texts = ()


def write_layer(spec: LayerSpec, target: Path, context: Context) -> str:
    """Write the layer as a squashfs and return its mark: the path that shows that it is mounted.

    Raises what fetching, building and compiling raise.
    """
    # a lock without what only an image needs; what builds is for source archives
    packages = spec.lock.installed
    if any(package.is_sdist for package in packages):
        packages = spec.lock.python
    lock = structs.replace(spec.lock, python=packages, packers=())
    fetch_files(lock, context)
    codec = running_codec(lock.packer, context)
    with ThreadPoolExecutor(count_processors(), "pack") as pool:
        packing = PackContext(store=context.store, codec=codec, pool=pool, report=context.report)
        with _open_image(spec.image, lock, context) as inside:
            scheme = _scheme_of(spec, inside)
            wheels = [*_pack_locked(lock, inside, scheme, packing)]
            wheels += [_pack_file(path, scheme, packing) for path in spec.wheels]
            compiled = _compile(wheels, lock, inside, scheme, packing)
    kept = [*(wheel.kept for wheel in wheels), *compiled]
    tree = merge_parts(part.part for part in kept)
    _hide_replaced(tree, spec, scheme)
    key = hash_text("\n".join(part.part.key for part in kept))[:32]
    mark, content = mark_part(key)
    for entry in mark.entries:
        tree[entry.path] = (entry, len(kept))
        add_folders(tree, entry.path)
    parts = [*((part.part, part.copy) for part in kept), (mark, content)]
    with os_errors_as(target), target.open("wb") as out:
        epoch, compressor = lock.base.epoch, codec.compressor
        write_squashfs(out, tree, parts, epoch=epoch, compressor=compressor)
        sync_file(out)
    return f"/{mark.entries[0].path}"


@contextmanager
def _open_image(image: Path, lock: Lock, context: Context) -> Iterator[BaseContainer]:
    """Yield the image itself as the root that builds and compiles: nothing of it is copied."""
    with context.store.work("inside") as work:
        folder = work / "runs"
        folder.mkdir()
        yield BaseContainer(image=image, folder=folder, python=lock.python_path, context=context)


def _scheme_of(spec: LayerSpec, inside: BaseContainer) -> Scheme:
    """Return where the image's Python installs; asked of it once per image."""
    if spec.lock.conda_python is not None:
        return conda_scheme(spec.lock)
    if spec.below is not None and spec.below.conda_python is not None:
        return conda_scheme(spec.below)
    if spec.below is not None and spec.below.is_bootstrap:
        return bootstrap_scheme(spec.below)
    base, store = spec.lock.base, inside.context.store
    path = store.scheme(base.digest, f"{base.python_path}-real")
    answer = read_sealed(path)
    if answer is None:
        answer = ask_scheme(inside, "real")
        write_sealed(store.own(path), answer)
    return read_scheme(answer, base, {})


def _pack_locked(
    lock: Lock, inside: BaseContainer, scheme: Scheme, packing: PackContext
) -> Iterator[WheelPart]:
    """Yield the parts of the locked packages; those that come as source are built in the image."""
    needs, store = build_needs(lock), packing.store
    lacking = [
        package
        for package in lock.installed
        if package.is_sdist and not is_sealed(store.built(wheel_key(package, needs)))
    ]
    if lacking:
        title = f"build {count_noun(len(lacking), 'source package')}"
        with packing.report.stage(title, total=len(lacking)) as stage:
            build_wheels(lacking, needs, inside, store, stage)
    count = len(lock.installed)
    with packing.report.stage(f"pack {count_noun(count, 'package')}", total=count) as stage:
        for package in lock.installed:
            yield provide_package(package, needs, scheme, packing)
            stage.advance()


def _pack_file(path: Path, scheme: Scheme, packing: PackContext) -> WheelPart:
    sha256 = hash_bytes(path.read_bytes())
    return provide_wheel(path, path.name, sha256, scheme, packing)


def _compile(
    wheels: Sequence[WheelPart],
    lock: Lock,
    inside: BaseContainer,
    scheme: Scheme,
    packing: PackContext,
) -> list[CachedPart]:
    """Return the bytecode of wheels; what the store lacks is compiled in one run."""
    python, epoch = lock.python_version, lock.base.epoch
    keys = [bytecode_key(wheel.kept.part.key, python=python, epoch=epoch) for wheel in wheels]
    pairs = [*zip(wheels, keys, strict=True)]
    absent = [pair for pair in pairs if cached_part(pair[1], packing.store) is None]
    lacking = [wheel_modules(wheel, key, scheme) for wheel, key in absent]
    if lacking:
        with packing.report.stage(f"compile {count_noun(len(lacking), 'package')}") as stage:
            compile_modules(lacking, inside, packing, epoch, stage)
    found = (cached_part(key, packing.store) for key in keys)
    return [part for part in found if part is not None]


def _hide_replaced(tree: Tree, spec: LayerSpec, scheme: Scheme) -> None:
    """Mark what the image holds of packages that the layer replaces, as overlayfs wants it.

    A name is hidden by a character device 0:0 in its place; there is no mark for all of a folder
    that the layer has too.
    """
    if not spec.replaced:
        return
    with ExitStack() as stack:
        below, images = _image_tree(spec.image, stack)

        def read(path: str) -> bytes | None:
            entry, number = below.get(path, (None, 0))
            return read_entry(images[number], entry) if entry is not None else None

        marks = replaced_entries(below, spec.replaced, scheme, read)
    hidden = {_marked_path(mark) for mark in marks}
    own, gone = set(tree), {path for path in below if _is_below(path, hidden)}
    for path in gone - own:
        folder = path.rpartition("/")[0]
        if folder in own or folder not in gone:
            tree[path] = (TreeEntry(path, "c", 0), 0)
            add_folders(tree, path)


def _marked_path(mark: TreeEntry) -> str:
    folder, _, name = mark.path.rpartition("/")
    return f"{folder}/{name.removeprefix(WHITEOUT)}"


def _is_below(path: str, folders: Collection[str]) -> bool:
    """Tell whether a path is one of the folders or lies below one."""
    while path and path not in folders:
        path = path.rpartition("/")[0]
    return bool(path)


def _image_tree(image: Path, stack: ExitStack) -> tuple[Tree, list[SquashImage]]:
    """Return all names of an image, and the open file systems that their numbers mean."""
    merger, images = TreeMerger(), []
    for item in root_partitions(image):
        system = stack.enter_context(open_partition(image, item))
        images.append(system)
        entries = {entry.path: entry for entry in system.entries()}
        merger.add(layer_of(system, entries, overlay=item.partition == OVERLAY))
    return merger.tree(), images
