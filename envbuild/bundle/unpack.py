"""Read a bundle: every byte checked before it counts, packages into the store, recipe and lock into a folder."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from envbuild import limits
from envbuild.bundle.model import BIGGEST_TABLE, TABLE, Member, Table
from envbuild.errors import IntegrityError, SpaceError, UsageError
from envbuild.host import free_bytes
from envbuild.limits import UNREADABLE, open_plain, reading
from envbuild.net.partial import is_complete
from envbuild.progress import Transfer
from envbuild.store.atomic import commit_file, os_errors_as
from envbuild.store.layout import Store
from envbuild.store.units import human_bytes
from envbuild.tarread import members, open_tar

CHUNK = 1 << 20
BESIDE = ("SHA256SUMS",)
"""Members that no table names, because they name the others."""


@contextmanager
def opened_bundle(path: Path) -> Iterator[tuple[tarfile.TarFile, Table]]:
    """Open a bundle and read its table.

    Raises UsageError for no bundle or one of a newer envbuild, IntegrityError for a damaged
    table.
    """
    try:
        file = open_plain(path)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        missing = isinstance(error, FileNotFoundError)
        raise UsageError("there is no such file" if missing else what, where=path) from error
    with file, reading("is damaged, or was not copied whole", str(path)):
        try:
            tar = open_tar(file, path.stat().st_size)
        except tarfile.TarError as error:
            what = f"is not a bundle: {error}"
            raise UsageError(what, where=path, hint="envbuild bundle NAME writes one") from error
        with tar:
            yield tar, _table(tar, path)


def _table(tar: tarfile.TarFile, path: Path) -> Table:
    # tar.next() of Python 3.10 raises OSError for an empty archive
    first = next(iter(tar), None)
    if (
        first is None
        or not first.isfile()
        or first.name.rpartition("/")[2] != TABLE
        or first.size > BIGGEST_TABLE
    ):
        raise UsageError(f"is not a bundle: its first member is not {TABLE}", where=path)
    file = tar.extractfile(first)
    try:
        raw = msgspec.json.decode(file.read() if file else b"")
        newer = isinstance(raw, dict) and raw.get("schema", 1) != 1
        if newer:
            raise UsageError(
                "is a bundle of a newer envbuild", where=path, hint="the one inside it: tool/"
            )
        table = msgspec.convert(raw, Table)
    except UNREADABLE as error:
        raise IntegrityError(f"its table of contents is damaged: {error}", where=path) from error
    names = [member.path for member in table.members]
    if len(set(names)) != len(names) or first.name != f"{table.name}/{TABLE}":
        raise IntegrityError("its table of contents contradicts itself", where=path)
    return table


def unpack(path: Path, store: Store, folder: Path, progress: Transfer | None = None) -> Table:
    """Put a bundle's packages into the store, recipe and lock into a folder; return its table.

    Nothing gets a name before its bytes are those that the table says.  Raises UsageError,
    SpaceError, IntegrityError for a file that was changed, is missing or not listed.
    """
    with opened_bundle(path) as (tar, table):
        wanted = {f"{table.name}/{member.path}": member for member in table.members}
        beside = {f"{table.name}/{name}" for name in (TABLE, *BESIDE)}
        _check_space(table, store)
        for info in members(tar, path.stat().st_size):
            if info.name in beside:
                continue
            member = wanted.pop(info.name, None)
            if member is None:
                raise IntegrityError(
                    f"{info.name!r} is in it, but not in its table of contents", where=path
                )
            if not info.isfile() or info.size != member.size:
                raise IntegrityError(
                    f"{member.path} is not what its table of contents says", where=path
                )
            _take(tar.extractfile(info), member, store, folder)
            if progress is not None:
                progress.advance(member.size)
        if wanted:
            first = next(iter(wanted))
            raise IntegrityError(f"ends before {first}: it was not copied whole", where=path)
        return table


def _take(file: IO[bytes] | None, member: Member, store: Store, folder: Path) -> None:
    """Give a member's bytes their place.  Raises IntegrityError where they are others than the table says."""
    is_stored = member.use == "store"
    final = store.artifact(member.sha256) if is_stored else folder / member.path
    if member.use == "plain" or (is_stored and is_complete(final, member.size)):
        return
    with store.work("unpack") as work:
        temporary = work / "file"
        if file is None or _copy(file, temporary) != member.sha256:
            raise IntegrityError(
                f"was changed: its sha256 is not {member.sha256}", where=member.path
            )
        if is_stored:
            commit_file(temporary, final)
        else:
            with os_errors_as(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(temporary, final)


def _copy(file: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with os_errors_as(target), target.open("wb") as out:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _check_space(table: Table, store: Store) -> None:
    project = sum(member.size for member in table.members if member.use == "project")
    if project > limits.PROJECT:
        raise IntegrityError(
            f"its recipe and lock take {human_bytes(project)}: too much for a bundle"
        )
    lacking = {
        m.sha256: m.size
        for m in table.members
        if m.use == "store" and not store.artifact(m.sha256).is_file()
    }
    folder = store.folder("artifacts")
    with os_errors_as(folder):
        free = free_bytes(folder)
    if sum(lacking.values()) + CHUNK > free:
        needed = human_bytes(sum(lacking.values()))
        hint = "free space there, or point ENVBUILD_STORE to a larger file system"
        raise SpaceError(
            f"the bundle's files take {needed}, {human_bytes(free)} are free",
            where=folder,
            hint=hint,
        )
