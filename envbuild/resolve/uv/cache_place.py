"""A cache for uv where that of the user lies on a disk without hard links (sshfs, some NFS, exFAT).

uv puts its locks in place by a hard link, and ends there with "Could not acquire lock".
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from pathlib import Path

from envbuild.settings import Settings

NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
"""What link(2) says on disks without hard links."""
LOCAL = "/var/tmp"  # noqa: S108  (a folder there is looked at before it is used)
"""Where files outlive a restart; the system removes what is old."""


def cache_variables(settings: Settings) -> dict[str, str]:
    """Return the variable that gives uv another cache; none where its own can be used."""
    named = settings.environment.get("UV_CACHE_DIR")
    if _takes_links(Path(named) if named else usual_cache(settings)):
        return {}
    folder = Path(settings.environment.get("TMPDIR") or LOCAL) / f"envbuild-uv-{os.getuid()}"
    return {"UV_CACHE_DIR": str(folder)} if _is_private(folder) else {}


def usual_cache(settings: Settings) -> Path:
    """Return the folder that uv takes where nobody names one."""
    return Path(settings.environment.get("XDG_CACHE_HOME") or settings.home / ".cache") / "uv"


@functools.cache
def _takes_links(folder: Path) -> bool:
    """Tell whether a folder takes hard links; of one that cannot be written, uv itself tells."""
    first, second = (folder / f".envbuild-{os.getpid()}-{name}" for name in "ab")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        first.touch()
        os.link(first, second)
    except OSError as error:
        return error.errno not in NO_LINKS or not first.exists()
    finally:
        with contextlib.suppress(OSError):
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
    return True


def _is_private(folder: Path) -> bool:
    """Make a folder of this user alone; False where somebody else has put one there."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:  # TMPDIR may name no folder
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )
