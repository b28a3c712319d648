"""Unpack a source archive the same way with every Python, never outside its folder."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from envbuild.limits import Room, most_content, reading
from envbuild.store.atomic import os_errors_as
from envbuild.tarread import opened_members


def unpack_archive(archive: Path, folder: Path) -> Path:
    """Unpack a tar or zip; return its one top folder, or ``folder`` where it has several.

    Python's own filters for tar archives came with 3.11.4 and are missing before, so nothing of a
    tar but its bytes and whether a file can be run is taken over.  Raises IntegrityError for an
    archive that is damaged or leads outside, SpaceError for a full disk.
    """
    with os_errors_as(folder), reading("this source archive cannot be unpacked", archive.name):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                content = Room(most_content(archive.stat().st_size), "it unpacks to")
                content.take(sum(info.file_size for info in zipped.infolist()))
                zipped.extractall(folder)  # noqa: S202  (zipfile drops what leads out, and makes no links)
        else:
            with opened_members(archive) as (tar, found):
                for member in found:
                    _unpack_member(tar, member, folder)
    inner = list(folder.iterdir())
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a folder or file; a link to another member becomes a copy of it."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{member.name} leads out of it")
    target = folder / path
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    if not (member.isreg() or member.islnk() or member.issym()):
        raise ValueError(f"{member.name} is a device or a pipe")
    try:
        source = tar.extractfile(member)
    except KeyError:
        return  # a link to what the archive does not hold
    if source is None:
        return  # a link to a folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
