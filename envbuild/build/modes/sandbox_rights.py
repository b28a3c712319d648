"""What a tree may not lend to other users of the machine, who reach its files directly."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def withdraw_rights(folder: Path) -> None:
    """Take from a tree's files what acts with their owner's rights, or opens the machine's devices.

    Apptainer ignores these bits where it runs the tree, so nothing in a container changes.
    """
    for top, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(PermissionError):  # of a subordinate id, which owns nothing outside
                _withdraw_from_path(Path(top, name))


def _withdraw_from_path(path: Path) -> None:
    kind, mode = path.lstat().st_mode, stat.S_IMODE(path.lstat().st_mode)
    if stat.S_ISDIR(kind):
        # one that its owner may not enter, and others may, would be passed over
        path.chmod(mode | stat.S_IRWXU)
    elif stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
        path.chmod(0o600)
    elif stat.S_ISREG(kind):
        path.chmod(mode & ~(stat.S_ISUID | stat.S_ISGID))
        with suppress(OSError):  # no right to, or none there
            os.removexattr(path, "security.capability", follow_symlinks=False)
