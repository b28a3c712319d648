"""What a tree may not lend to other users of the machine, who reach its files directly."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from envbuild.errors import IntegrityError


def withdraw_rights(folder: Path) -> None:
    """Take from a tree's files what acts with their owner's rights, or opens the machine's devices.

    Apptainer ignores these bits where it runs the tree, so nothing in a container changes.  Files
    of subordinate ids stay as they are: these ids own nothing outside.  Raises IntegrityError for a
    folder that cannot be looked through, but that others may enter.
    """
    for top, folders, names in os.walk(folder):
        for path in (Path(top, name) for name in (*folders, *names)):
            status = path.lstat()
            with suppress(PermissionError):  # of a subordinate id
                _withdraw_from_path(path, status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                _require_looked_through(path)


def _withdraw_from_path(path: Path, kind: int) -> None:
    mode = stat.S_IMODE(kind)
    if stat.S_ISDIR(kind):
        # one that its owner may not enter, and others may, would be passed over
        path.chmod(mode | stat.S_IRWXU)
    elif stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
        path.chmod(0o600)
    elif stat.S_ISREG(kind):
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
