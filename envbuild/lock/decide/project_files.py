"""[files]: files beside the recipe that go into the image, as archives locked by sha256."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from envbuild.context import Context
from envbuild.errors import StaleLockError, UsageError
from envbuild.lock.model import Lock, LockedFiles
from envbuild.net.partial import is_complete
from envbuild.recipe.model import Source
from envbuild.recipe.trees import CACHES, project_folder
from envbuild.store.atomic import commit_file, os_errors_as
from envbuild.store.hashing import hash_rest

TIME = 315_532_800
"""1980-01-01, in seconds: the time of every member."""


def take_files(source: Source, context: Context) -> tuple[LockedFiles, ...]:
    """Pack what [files] names into the store, one archive an entry.

    Raises UsageError for what is not there, and for a link that leaves it.
    """
    found = []
    for name, target in sorted(source.recipe.files.items()):
        with context.store.outside(context.settings.tmpdir) as work:
            archive = work / "files.tar"
            sha256 = _pack_archive(_source_path(source, name), target, archive)
            found.append(
                LockedFiles(source=name, target=target, size=archive.stat().st_size, sha256=sha256)
            )
            commit_file(archive, context.store.artifact(sha256))
    return tuple(found)


def require_files(source: Source, lock: Lock, context: Context) -> None:
    """Pack the archives that the store lacks.  Raises StaleLockError for a changed file."""
    for locked in lock.files:
        with context.store.outside(context.settings.tmpdir) as work:
            archive = work / "files.tar"
            if (
                _pack_archive(_source_path(source, locked.source), locked.target, archive)
                != locked.sha256
            ):
                raise StaleLockError(
                    f"{locked.source} ([files]) was changed since it was locked",
                    where=source.lock,
                    hint=f"run: envbuild lock {source.recipe.name}",
                )
            if not is_complete(context.store.artifact(locked.sha256), locked.size):
                commit_file(archive, context.store.artifact(locked.sha256))


def _source_path(source: Source, name: str) -> Path:
    project = project_folder(source.path)
    path = project / name
    if not Path(os.path.realpath(path)).is_relative_to(project.resolve()):
        raise UsageError(
            f'[files] "{name}" is a link that leaves the project\'s folder', where=source.path
        )
    if not path.exists():
        raise UsageError(
            f'[files] "{name}" is not there', where=source.path, hint=f"looked for in {project}"
        )
    return path


def _pack_archive(path: Path, target: str, archive: Path) -> str:
    """Write the archive of a file or folder; the same files give the same bytes."""
    top = target.strip("/")
    with os_errors_as(archive), tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
        for name, member in _list_members(path):
            entry = tarfile.TarInfo(f"{top}/{name}" if name else top)
            found = member.lstat()
            # one time and two modes: the same files give the same bytes
            entry.mtime, entry.mode = TIME, 0o755 if found.st_mode & 0o100 else 0o644
            if stat.S_ISLNK(found.st_mode):
                entry.type, entry.linkname, entry.mode = (
                    tarfile.SYMTYPE,
                    _inner_link(member, path),
                    0o777,
                )
                out.addfile(entry)
            elif stat.S_ISDIR(found.st_mode):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                out.addfile(entry)
            elif stat.S_ISREG(found.st_mode):
                entry.size = found.st_size
                with member.open("rb") as file:
                    out.addfile(entry, file)
            else:
                raise UsageError("is not an ordinary file, folder or link", where=member)
    with archive.open("rb") as file:
        return hash_rest(file)


def _list_members(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file, or all in a folder by name.

    Of folders only the empty ones are told: others come by themselves, and one that the image has
    keeps its mode.
    """
    # a link that [files] names itself stands for what it leads to
    followed = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not followed.is_dir():
        yield "", followed
        return
    found: list[tuple[str, Path]] = []
    for top, folders, names in os.walk(followed):
        folders[:] = [name for name in folders if name not in CACHES]
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        if not folders and not names:
            found.append(
                (
                    "" if Path(top) == followed else Path(top).relative_to(followed).as_posix(),
                    Path(top),
                )
            )
        found += [
            ((Path(top) / name).relative_to(followed).as_posix(), Path(top) / name)
            for name in (*names, *links)
        ]
    yield from sorted(found)


def _inner_link(link: Path, top: Path) -> str:
    text = str(link.readlink())
    if Path(text).is_absolute() or not Path(os.path.realpath(link)).is_relative_to(top.resolve()):
        raise UsageError(
            f"leads to {text}, out of what [files] names",
            where=link,
            hint="copy the file, or link inside",
        )
    return text
