"""Verify an image against its lock, file by file.

What the lock gives is put beside what the image holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from envbuild.base.digests import known_digest
from envbuild.build.assemble import Assembled, assemble
from envbuild.build.assembly_plan import AssemblySpec, spec_of
from envbuild.build.fetch import assembled_files
from envbuild.build.image.compare import describe_difference
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.image.guard import is_guard
from envbuild.build.image.metadata import ImageNote
from envbuild.build.image.write import write_image
from envbuild.build.image_cache import key_of, read_record
from envbuild.build.model import BuildSpec
from envbuild.build.output_record import last_output
from envbuild.build.pinned_compressor import codec_of_image
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.formats.file_tree import Part, TreeEntry, compare_trees, merge_parts, tree_digest
from envbuild.formats.oci_layer import WHITEOUT
from envbuild.formats.sif_frame import frame_digest, strange_frame
from envbuild.formats.sif_reader import OVERLAY, SifObject, image_digest, read_sif
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import SquashImage, open_partition
from envbuild.host import count_processors
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.names import Pairs, Texts
from envbuild.net.fetch import missing_artifacts, total_size
from envbuild.parts.counters import FORMATS
from envbuild.store.layout import Store
from envbuild.store.units import count_noun, human_bytes

RUNTIME = (".singularity.d", "environment", "singularity")
"""Written from the recipe; compared only where the recipe is at hand."""
OTHER_FORMATS = "an envbuild made it that writes images in other formats"
OTHER_FRAME = "its objects are the same, its header or table is not"
PACKAGE = re.compile(r"\.(?:dist|egg)-info/(?:METADATA|PKG-INFO)$|^var/lib/dpkg/info/[^/]+\.list$")
"""Files by which a Python or Debian package shows that it is installed."""
OWN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Files that every installer writes in its own way."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying found.

    ``holds`` is "bytes" (file for file and byte for byte what lock and packer give), "tree" (the
    same files, in bytes that are others or could not be compared, as ``why`` says) or "differs";
    ``compared`` says what was compared, ``tree`` is the image's tree digest; ``outside`` is what
    stands in the file beside its objects and should not.
    """

    image: str
    lock: str
    holds: Literal["bytes", "tree", "differs"]
    compared: str
    tree: str
    why: str = ""
    missing: Texts = ()
    changed: Pairs = ()
    extra: Texts = ()
    outside: Texts = ()


def recorded_digest(image: Path, store: Store) -> str | None:
    """Return the digest of the image that make put under a name.

    None where another image lies there by now. Which image it is, the note inside says, by its lock
    and its tree. One that was built from its definition carries no note: there the table of objects
    says it.
    """
    delivery = last_output(image, store)
    if delivery is None:
        return None
    record = read_record(delivery.key, store)
    # modes that build from the definition keep the image itself, and no record of parts
    if record is None:
        kept = store.image(delivery.key)
        is_same = kept.is_file() and _own_objects(kept) == _own_objects(image)
        return known_digest(kept, store) if is_same else None
    note = read_embedded_info(image).note
    is_same = note is not None and (note.tree == record.tree or note.lock == record.lock)
    return record.digest if is_same else None


def _own_objects(image: Path) -> list[tuple[int, str, int]]:
    """Return type, name and size of each object that was not added by signing."""
    return [(item.data_type, item.name, item.size) for item in read_sif(image).unsigned]


def verify_image(path: Path, lock: Lock, order: BuildSpec | None, context: Context) -> Verification:
    """Compare an image with what a lock gives; ``order`` is the recipe's, where it is at hand.

    Whatever the store lacks of the lock is fetched and packed first. Raises UsageError for an image
    that cannot be compared, IntegrityError for one that is damaged.
    """
    carried = read_embedded_info(path)
    codec = codec_of_image(carried.note.packer if carried.note else "", lock, context)
    order = replace(order, codec=codec) if order else None
    spec = spec_of(order) if order else AssemblySpec(lock=lock, codec=codec)
    _say_lacking(lock, context)
    assembled = assemble(spec, context)
    found = image_tree(path, context)
    digest = tree_digest(found.values())
    comparison = _choose_comparison(found, assembled, carried.note, has_recipe=order is not None)
    missing, changed, extra = compare_trees(comparison.expected, comparison.seen)
    outside = strange_frame(path)
    same = not (missing or changed or extra or outside)
    holds: Literal["bytes", "tree", "differs"] = "differs"
    why = ""
    if same:
        why = _why_other_bytes(path, carried.note, order, assembled, context)
        holds = "tree" if why else "bytes"
        # no other packer explains this
        if why == OTHER_FRAME:
            holds, outside, why = "differs", (why,), ""
    return Verification(
        image=str(path),
        lock=lock_digest(lock),
        holds=holds,
        compared=comparison.title,
        tree=digest,
        why=why,
        missing=missing,
        changed=changed,
        extra=extra,
        outside=outside,
    )


def _say_lacking(lock: Lock, context: Context) -> None:
    """Say what has to be there before anything can be compared."""
    lacking = missing_artifacts(assembled_files(lock, context.store), context.store)
    if lacking:
        context.report.say(
            f"to compare, envbuild makes what the lock gives: the store lacks {count_noun(len(lacking), 'file')} of it "
            f"({human_bytes(total_size(lacking))}). Without a network: envbuild make --from-bundle FILE brings them"
        )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Which files are compared: a title for people, those the lock gives, those of the image."""

    title: str
    expected: Mapping[str, TreeEntry]
    seen: Mapping[str, TreeEntry]


def _choose_comparison(
    found: Mapping[str, TreeEntry],
    assembled: Assembled,
    note: ImageNote | None,
    *,
    has_recipe: bool,
) -> _Comparison:
    """Return what can be foretold of an image's files; ``note`` is the image's own, if it has one."""
    merged = merge_parts(part.part for part in assembled.parts)
    expected = {name: entry for name, (entry, _) in merged.items()}
    # pip or uv wrote these files inside a build: only those of wheels can be foretold
    if note is None:
        title = "the files of Python packages, and that no other package is there: the image was built from its definition"
        wheels = _of_wheels(assembled)
        packages = {name for name in found if PACKAGE.search(name) and name not in expected}
        seen = {name: found[name] for name in (*wheels, *packages) if name in found}
        return _Comparison(title, wheels, seen)
    if has_recipe and note.formats == FORMATS:
        return _Comparison("all files", expected, found)
    # the runtime's files come from the recipe, and from the version of their format
    why = OTHER_FORMATS if has_recipe else "there is no recipe to compare those with"
    title = f"all files but the container runtime's own: {why}"
    return _Comparison(title, _without_runtime(expected), _without_runtime(found))


def image_tree(path: Path, context: Context) -> dict[str, TreeEntry]:
    """Read the tree of an image.

    The layers of a layered one lie over one another, without what guards them.
    """
    layers = []
    with (
        ThreadPoolExecutor(count_processors(), "hash") as pool,
        context.report.stage(f"read {path.name}") as stage,
    ):
        for item in root_partitions(path):
            with open_partition(path, item) as image:
                tree = read_tree(image, pool, stage)
                layers.append(layer_of(image, tree, overlay=item.partition == OVERLAY))
    return {name: entry for name, (entry, _) in merge_parts(layers).items()}


def layer_of(image: SquashImage, tree: Mapping[str, TreeEntry], *, overlay: bool) -> Part:
    """Return a partition as a part: its blob is the file system up to its tables, without guards.

    Where it is an overlay, the devices 0:0 in it hide names of lower ones.
    """
    entries = []
    for entry in tree.values():
        folder, _, name = entry.path.rpartition("/")
        if overlay and entry.kind == "c" and entry.device == 0:
            hiding = f"{WHITEOUT}{name}"
            path = f"{folder}/{hiding}" if folder else hiding
            entries.append(TreeEntry(path, "w", 0))
        elif not is_guard(entry.path):
            entries.append(entry)
    entries.sort(key=lambda entry: entry.path)
    return Part(
        key="",
        entries=tuple(entries),
        fragments=tuple(image.fragments),
        size=image.data_end,
        sha256="",
        layer=overlay,
    )


def root_partitions(path: Path) -> tuple[SifObject, ...]:
    """Return the partitions of a SIF that make its root, lowest first.

    Raises UsageError where there is none.
    """
    sif = read_sif(path)
    if sif.primary is None:
        raise UsageError("has no root file system to compare", where=path)
    return (sif.primary, *sif.overlays)


def _of_wheels(assembled: Assembled) -> dict[str, TreeEntry]:
    """Return the files of wheels that every installer writes alike."""
    found = {}
    for part in assembled.wheels:
        for entry in part.part.entries:
            if entry.path.rpartition("/")[2] not in OWN and "/bin/" not in entry.path:
                found[entry.path] = entry
    return found


def _without_runtime(tree: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    return {name: entry for name, entry in tree.items() if name.split("/")[0] not in RUNTIME}


def _why_other_bytes(
    path: Path,
    note: ImageNote | None,
    order: BuildSpec | None,
    assembled: Assembled,
    context: Context,
) -> str:
    """Return why the bytes are not those that lock and packer give, or cannot be compared.

    "" where they are.
    """
    if note is None:
        return "it was packed from its definition, by a program that the lock does not hold"
    if order is None:
        return "without its recipe the expected bytes are not known"
    packer = order.codec.name
    if note.packer != packer or note.formats != FORMATS:
        other = f"it was packed by {note.packer}, here it would be {packer}"
        return other if note.packer != packer else OTHER_FORMATS
    record = read_record(key_of(order), context.store)
    found = (image_digest(path), frame_digest(path))
    if record is not None and (record.digest, record.frame) == found:
        return ""
    with (
        context.store.work("verify") as work,
        context.report.stage("make the same image, to compare bytes") as stage,
    ):
        made = work / "image.sif"
        write_image(made, order, assembled.layers, key_of(order), stage)
        if (image_digest(made, stage.advance), frame_digest(made)) == found:
            return ""
        return describe_difference(made, path) or OTHER_FRAME
