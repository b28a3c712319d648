"""Read a layer of an OCI image as the entries of a part, in one pass and without unpacking it."""

from __future__ import annotations

import posixpath
import tarfile
from pathlib import Path

from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import Codec
from envbuild.formats.file_tree import TreeEntry, Xattrs
from envbuild.formats.oci_layer import finish_layer, open_layer, read_mark
from envbuild.limits import reading
from envbuild.parts.cache import CachedPart, PackContext, part_key, provide_part
from envbuild.parts.from_tar import KINDS, member_content, member_entry, without_clock
from envbuild.parts.writer import PartWriter
from envbuild.tarread import members

MOST_IDS = 2**32
XATTR = "SCHILY.xattr."
"""What tar archives put before the name of an extended attribute."""
KEPT_XATTRS = ("security.capability", "user.")
"""Attributes that are the file's own.

Others (labels of SELinux, an overlay's marks) are of the machine that packed.
"""
STRANGE = "an image with such a file cannot be put together from its layers: envbuild make --mode fakeroot"


def layer_key(diff_id: str, codec: Codec) -> str:
    """Return the key of the part of a layer with this content.

    Images with the same layer share it.
    """
    return part_key("oci", diff=diff_id, packer=codec.key)


def provide_layer(path: Path, diff_id: str, packing: PackContext, *, where: str) -> CachedPart:
    """Return the part of an image's layer.

    Its tar is read once where the store has no such part.
    """
    return provide_part(
        layer_key(diff_id, packing.codec),
        packing,
        lambda writer: fill_layer(writer, path, diff_id, where=where),
        layer=True,
    )


def fill_layer(
    writer: PartWriter, path: Path, diff_id: str | None, *, where: str, captured: bool = False
) -> None:
    """Add the members of a layer's tar (plain, gzip or zstd).

    What hides lower names keeps its marks. Of a captured run's layer, files lose what they hold of
    the clock.

    Raises IntegrityError for a damaged layer, for one whose content is not ``diff_id``, and for a
    member that no image may hold.
    """
    size, title = path.stat().st_size, f"{where}: {path.name[:12]}"
    writer.limit(size)
    with reading("a layer is damaged", title), open_layer(path) as (stream, tar):
        for member in members(tar, size):
            _add_member(writer, tar, member, where, captured=captured)
            tar.members = []  # type: ignore[attr-defined]  # it would keep all of them
        finish_layer(stream, diff_id, "a layer", title)


def _add_member(
    writer: PartWriter, tar: tarfile.TarFile, member: tarfile.TarInfo, where: str, *, captured: bool
) -> None:
    path, target = _path_in_image(member.name), _path_in_image(member.linkname)
    mark = read_mark(path)
    # kept as marks: what they hide is known only when layers are merged
    if mark is not None:
        writer.add(TreeEntry(path, mark, 0))
        return
    if member.islnk():
        # the file may be in a lower layer: then the link is resolved when layers are merged
        if not writer.add_link(path, target):
            writer.add(TreeEntry(path, "h", 0, target=target))
        return
    kind = KINDS.get(member.type)
    if kind is None or not (0 <= member.uid < MOST_IDS and 0 <= member.gid < MOST_IDS):
        raise IntegrityError(
            f"holds {member.name!r}, which is not allowed in an image", where=where, hint=STRANGE
        )
    entry = member_entry(path, kind, member, xattrs=_kept_xattrs(member))
    content = member_content(tar, member)
    writer.add(entry, without_clock(entry, content) if captured else content)


def _kept_xattrs(member: tarfile.TarInfo) -> Xattrs:
    pairs = (
        (key.removeprefix(XATTR), value.encode("utf-8", "surrogateescape"))
        for key, value in member.pax_headers.items()
        if key.startswith(XATTR)
    )
    return tuple(sorted(pair for pair in pairs if pair[0].startswith(KEPT_XATTRS)))


def _path_in_image(name: str) -> str:
    """Return a member's path in the image: relative to its root, which no ".." leaves."""
    return posixpath.normpath("/" + _require_text(name)).lstrip("/")


def _require_text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise IntegrityError(
            f"holds the name {name!r}, which is not UTF-8", hint=STRANGE
        ) from error
    if "\0" in name:
        raise IntegrityError(f"holds the name {name!r}", hint=STRANGE)
    return name
