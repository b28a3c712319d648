"""Folders below a top that others may write to: opened step by step, so that no link leads out of it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.errors import IntegrityError


def open_folder(top: Path, relative: str) -> int:
    """Open a folder; nothing below its top may be a link.  Raises OSError."""
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in filter(None, relative.split("/")):
        try:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle
            )
        finally:
            os.close(handle)
        handle = below
    return handle


@contextlib.contextmanager
def anchored(path: Path, top: Path) -> Iterator[Path]:
    """Lend a name of a path that stays the same whatever others rename meanwhile.

    Raises OSError where a link below the top leads to it.
    """
    parent = str(path.parent.relative_to(top))
    handle = open_folder(top, "" if parent == "." else parent)
    try:
        yield Path(f"/proc/self/fd/{handle}") / path.name
    finally:
        os.close(handle)


def refuse_foreign_links(places: Iterable[Path]) -> None:
    """Raise IntegrityError for a place that another user has made a link.

    What is cleared in a store would be cleared elsewhere.
    """
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            found = place.lstat()
            if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
                what = "is a link that another user has put into the store"
                raise IntegrityError(what, where=place, hint=f"ask who may write there; rm {place}")
