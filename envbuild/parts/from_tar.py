"""Read the tar of a root file system as a tree."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats import java_keystore
from envbuild.formats.file_tree import Kind, TreeEntry, Xattrs
from envbuild.limits import reading
from envbuild.parts.writer import Content
from envbuild.progress import Stage
from envbuild.store.sealed import require_hash, sealed_hash
from envbuild.tarread import members, open_tar

KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "f",
    tarfile.AREGTYPE: "f",
    tarfile.DIRTYPE: "d",
    tarfile.SYMTYPE: "l",
    tarfile.CHRTYPE: "c",
    tarfile.BLKTYPE: "b",
    tarfile.FIFOTYPE: "p",
}

MOUNT_POINTS = {
    "dev": 0o755,
    "mnt": 0o755,
    "proc": 0o755,
    "root": 0o700,
    "sys": 0o755,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
}
"""Folders that a runtime binds to, with their modes.

A root made without device nodes may lack some.
"""


LEAVINGS = re.compile(r"var/log/.+|var/(lib/dpkg|cache/debconf)/[^/]+-old")
"""What installing Debian packages leaves behind: logs, and copies of the last state but one."""


LATEST = 2**32 - 1
"""The last time that squashfs can say (seconds since 1970)."""
JAVA_CERTIFICATES = "etc/ssl/certs/java/cacerts"


def without_clock(entry: TreeEntry, content: BinaryIO | bytes | None) -> BinaryIO | bytes | None:
    """Return a file's content; the time of an installation in it becomes the file's own.

    Raises IntegrityError for a file of certificates that is too large to be one.
    """
    if entry.path != JAVA_CERTIFICATES or content is None:
        return content
    keystore = content if isinstance(content, bytes) else content.read(limits.KEYSTORE + 1)
    if len(keystore) > limits.KEYSTORE:
        raise IntegrityError(
            f"is larger than {limits.KEYSTORE} bytes: too large for a file of certificates",
            where=entry.path,
            hint="look at what writes it: the recipe's [system] post, or a package's script",
        )
    return java_keystore.with_time(keystore, entry.mtime)


def root_contents(path: Path, stage: Stage) -> Iterator[Content]:
    """Yield the members of a root's tar, without logs, and the mount points that it lacks.

    The stage counts the bytes of the tar.
    """
    lacking = dict(MOUNT_POINTS)
    for entry, content in tar_contents(path, sealed_hash(path), stage):
        lacking.pop(entry.path, None)
        if entry.kind != "f" or not LEAVINGS.fullmatch(entry.path):
            yield entry, without_clock(entry, content)
    for name, mode in lacking.items():
        yield TreeEntry(name, "d", mode), None


def tar_contents(path: Path, sha256: str | None, stage: Stage | None = None) -> Iterator[Content]:
    """Yield the members of a tar of the store in its order; hard links become files of their own.

    Raises IntegrityError for a tar of another hash or a damaged one, and for a name that cannot be
    written.
    """
    with reading("is damaged", str(path)), path.open("rb") as file:
        require_hash(file, sha256, path.name)
        size = path.stat().st_size
        with open_tar(file, size) as tar:
            for member in members(tar, size):
                yield _read_member(tar, member, path)
                if stage is not None:
                    stage.advance(tarfile.BLOCKSIZE + member.size)
        require_hash(file, sha256, path.name)  # nobody wrote to it meanwhile


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> Content:
    # a hard link becomes a file of its own
    source = tar.getmember(member.linkname) if member.islnk() else member
    kind = KINDS.get(source.type)
    name = member.name.removeprefix("./").strip("/")
    name = "" if name == "." else name
    if (
        kind is None
        or ".." in name.split("/")
        or not _is_text(name)
        or not _is_text(member.linkname)
    ):
        raise IntegrityError(f"holds {member.name!r}, which is not allowed in an image", where=path)
    return member_entry(name, kind, source), member_content(tar, source)


def member_entry(
    path: str, kind: Kind, member: tarfile.TarInfo, *, xattrs: Xattrs = ()
) -> TreeEntry:
    """Return the entry of a tar's member, without its content.

    Raises IntegrityError for a device that Linux cannot have.
    """
    is_device = kind in ("c", "b")
    return TreeEntry(
        path,
        kind,
        member.mode & 0o7777,
        member.uid,
        member.gid,
        min(max(int(member.mtime), 0), LATEST),
        target=member.linkname if kind == "l" else "",
        device=device_number(member.devmajor, member.devminor) if is_device else 0,
        xattrs=xattrs,
    )


def member_content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO | None:
    """Return what is in a tar's member, None for what is no file."""
    return cast("BinaryIO", tar.extractfile(member)) if member.isreg() else None


def _is_text(text: str) -> bool:
    """Tell whether a name is valid UTF-8 without NUL: an index is text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def device_number(major: int, minor: int) -> int:
    """Return a device's number as squashfs keeps it (the kernel's new_encode_dev).

    Raises IntegrityError for one that has more bits than Linux gives them (MINORBITS).
    """
    if not (0 <= major < 1 << 12 and 0 <= minor < 1 << 20):
        raise IntegrityError(f"holds the device {major}:{minor}, which no Linux can have")
    return minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
