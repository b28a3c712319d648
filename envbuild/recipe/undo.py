"""Change a recipe, its lock and its image all or not at all, whatever happens in between.

What was there is noted first.  The last of the three to change decides: where it has changed, the
change is done; where it has not, recipe and lock are put back, by whoever reads the recipe next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.errors import IntegrityError
from envbuild.limits import PROJECT, UNREADABLE, open_plain
from envbuild.store.atomic import clear_partials, os_errors_as, write_bytes, write_text
from envbuild.store.layout import Store
from envbuild.store.own_records import is_own, note_own

ENDING = ".undo"


class FileState(msgspec.Struct, frozen=True):
    """By what a file is known again: its number on the disk, size in bytes, time of change (ns)."""

    inode: int
    size: int
    time: int


class Undo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was there before a change.

    ``recipe`` is the recipe's text, ``lock`` that of the lock at ``lock_path`` (None: there was
    none); ``last`` is the file that changes last, and ``state`` what it was.
    """

    recipe: str
    lock_path: str
    lock: str | None
    last: str
    state: FileState | None


def undo_path(recipe: Path) -> Path:
    """Return where it is noted what a recipe was before a change."""
    real = recipe.resolve()
    return real.with_name(f".{real.name}{ENDING}")


@contextlib.contextmanager
def noting_before(recipe: Path, lock: Path, last: Path, store: Store) -> Iterator[None]:
    """Note recipe and lock while the block changes them, and then the file ``last``.

    The store gets to know the note, which names files to write.  Where that file is as it was at the end of the block, both are put back.
    """
    note = Undo(
        recipe=recipe.read_bytes().decode(),
        lock_path=str(lock),
        lock=lock.read_bytes().decode() if lock.is_file() else None,
        last=str(last),
        state=_state_of(last),
    )
    path, raw = undo_path(recipe), msgspec.json.encode(note)
    note_own(raw, store)
    write_bytes(path, raw)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            _settle(note, recipe)


def settle_change(recipe: Path, store: Store) -> None:
    """Finish, or take back, a change of a recipe whose process was killed.

    Raises IntegrityError for a note that cannot be read or was not written from here, HostError
    where nothing can be written.
    """
    path = undo_path(recipe)
    clear_partials(path)
    clear_partials(recipe.resolve())
    if not os.path.lexists(path):
        return
    with contextlib.suppress(FileNotFoundError), open_plain(path) as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # its process lives, and is about to end the change
        raw = held.read(PROJECT)
        hint = "look at the recipe and its lock, then remove this file"
        if not is_own(raw, store):
            # it may have come with a copied project, and names any files to write
            what = f"says that a change of {recipe.name} was cut off, but was not written from here"
            raise IntegrityError(what, where=path, hint=hint)
        try:
            note = msgspec.json.decode(raw, type=Undo)
        except UNREADABLE as error:
            what = f"the note of a change of {recipe.name} that was cut off cannot be read: {error}"
            raise IntegrityError(what, where=path, hint=hint) from error
        _settle(note, recipe)


def rewrite_recipe(recipe: Path, text: str) -> None:
    """Write a recipe's text, whole or not at all, with its mode; a link stays one."""
    real = recipe.resolve()
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o644
    write_text(real, text, mode=mode)


def _settle(note: Undo, recipe: Path) -> None:
    lock, path = Path(note.lock_path), undo_path(recipe)
    with os_errors_as(path):
        if _state_of(Path(note.last)) == note.state:
            rewrite_recipe(recipe, note.recipe)
            if note.lock is None:
                lock.unlink(missing_ok=True)
            else:
                write_text(lock, note.lock)
        path.unlink(missing_ok=True)


def _state_of(path: Path) -> FileState | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns)
