"""What a tree may not lend to other users of the machine, who reach its files directly."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from envbuild.errors import IntegrityError
from envbuild.host import read_host

WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def withdraw_rights(folder: Path) -> None:
    """Take from a tree what acts with its owner's rights, opens devices, or lets others change it.

    Apptainer ignores setuid bits where it runs the tree, so little in a container changes.
    Files of subordinate ids stay as they are: these ids own nothing outside.  Where others could
    write to one, they may not enter the tree.  Raises IntegrityError for a folder that cannot be
    looked through, but that others may enter.
    """
    is_closed, is_root = True, os.geteuid() == 0
    first, count = read_host().subuid or (0, 0)
    known = (range(1), range(first, first + count))
    for path in _paths_from(folder):
        status = path.lstat()
        try:
            if is_root and not any(status.st_uid in ids for ids in known):
                # its number may be that of a user of this machine
                os.chown(path, 0, -1, follow_symlinks=False)
            _withdraw_from_path(path, status)
        except PermissionError:  # of a subordinate id
            is_closed = is_closed and not _open_bits(status)
        if stat.S_ISDIR(status.st_mode):
            _require_looked_through(path)
    if not is_closed:
        folder.chmod(0o700)


def _paths_from(folder: Path) -> Iterator[Path]:
    yield folder
    for top, folders, names in os.walk(folder):
        yield from (Path(top, name) for name in (*folders, *names))


def _open_bits(status: os.stat_result) -> int:
    """Return the bits by which others may write; a sticky folder is for files of anybody."""
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return 0 if is_sticky or stat.S_ISLNK(status.st_mode) else status.st_mode & WRITABLE


def _withdraw_from_path(path: Path, status: os.stat_result) -> None:
    kind, mode = status.st_mode, stat.S_IMODE(status.st_mode) & ~_open_bits(status)
    if stat.S_ISDIR(kind):
        # one that its owner may not enter, and others may, would be passed over
        path.chmod(mode | stat.S_IRWXU)
    elif stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
        path.chmod(0o600)
    elif not stat.S_ISLNK(kind):  # pipes and sockets too: others could write into them
        path.chmod(mode & ~(stat.S_ISUID | stat.S_ISGID))
        with suppress(OSError):  # no right to, or none there
            os.removexattr(path, "security.capability", follow_symlinks=False)


def _require_looked_through(folder: Path) -> None:
    status = folder.lstat()
    own_group = status.st_gid in (os.getegid(), *os.getgroups())
    entered = status.st_mode & (stat.S_IXOTH | (stat.S_IXGRP if own_group else 0))
    if entered and not os.access(folder, os.R_OK | os.X_OK):
        raise IntegrityError(
            "other users may enter this folder, but it cannot be searched for setuid programs",
            where=folder,
            hint="make an image instead: envbuild make NAME",
        )
