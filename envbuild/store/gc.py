"""Clear the store: what killed processes left, and what nobody has used for long."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.host import read_host, unescape_mount
from envbuild.limits import PATH, read_whole
from envbuild.records import frozen_record, replace
from envbuild.store.anchored import anchored
from envbuild.store.atomic import size_of
from envbuild.store.layout import (
    DEV_RECORD,
    HELD,
    LAYER_FILE,
    LAYOUT,
    LEFT,
    OUTSIDE,
    Store,
    remove_tree,
)
from envbuild.store.sealed import SEAL

DAY = 86400.0
PARTIAL_DAYS = 7.0
"""How long an interrupted download waits to be continued."""
AGEING = (
    *("artifacts", "bases", "built", "delivered", "dev", "digests", "images", "layers"),
    "repodata",
)
"""Folders whose files can be made or downloaded again."""


@frozen_record
class Removal:
    """One thing to remove and why; ``size`` is in bytes.  Below ``top`` no link leads to it."""

    path: Path
    size: int
    reason: str
    top: Path | None = None


def collect_garbage(store: Store, *, keep_days: float | None = None) -> Iterator[Removal]:
    """Yield what can go; nothing is removed here.

    Without ``keep_days`` only leftovers; with it also every file that was neither made nor used for
    so many days.
    """
    now = time.time()
    found = [find_leftovers(store), _dead_partials(store, now), _orphaned_files(store, now)]
    if keep_days is not None:
        found.append(_unused_files(store, now - keep_days * DAY, keep_days))
    for removal in itertools.chain.from_iterable(found):
        is_ours = removal.path.is_relative_to(store.root)
        yield replace(removal, top=store.root) if is_ours else removal


def find_leftovers(store: Store) -> Iterator[Removal]:
    """Yield working folders, notes and partial images of processes that are dead."""
    folder = store.root / LAYOUT / "tmp"
    names = {path.name for path in _list_folder(folder)}
    for name in sorted(names):
        path = folder / name
        if name.endswith(HELD):
            if _is_dead(path):
                yield from _mark_remembered(path)
                yield Removal(path=path, size=0, reason="its process has ended")
        elif f"{name}{HELD}" not in names or _is_dead(folder / f"{name}{HELD}"):
            yield Removal(path=path, size=tree_size(path), reason="its process has ended")


def _mark_remembered(note: Path) -> Iterator[Removal]:
    with contextlib.suppress(OSError, ValueError, UsageError):
        path = Path(os.fsdecode(read_whole(note, PATH)))
        # a note is only believed where it names what we would have written
        found = path.lstat()
        image = path.name.startswith(".") and path.name.endswith(LEFT)
        file = stat.S_ISREG(found.st_mode) and (image or _is_layer_without_record(path))
        owners = (os.geteuid(), note.lstat().st_uid)
        ours = path.name.startswith(OUTSIDE) and (
            found.st_uid in owners or _is_subordinate(found.st_uid)
        )
        if file or (ours and stat.S_ISDIR(found.st_mode)):
            yield Removal(path=path, size=tree_size(path), reason="its process has ended")


def _is_layer_without_record(path: Path) -> bool:
    """Tell whether a path is named as a development layer that nothing names any more."""
    name = re.sub(f"{LAYER_FILE}\\Z", "", path.name)
    return name != path.name and not path.with_name(f"{name}{DEV_RECORD}").exists()


def _is_subordinate(uid: int) -> bool:
    """Tell whether an id is one of the caller's own in /etc/subuid, which builds hand folders to."""
    first, count = read_host().subuid or (0, 0)
    return first <= uid < first + count


def _is_dead(note: Path) -> bool:
    """Tell whether nobody holds the lock of a note; what is no file to be read counts as held."""
    try:
        handle = os.open(note, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return stat.S_ISREG(os.fstat(handle).st_mode)
    except OSError:
        return False
    finally:
        os.close(handle)


def _dead_partials(store: Store, now: float) -> Iterator[Removal]:
    for path in _files_below(store.root / LAYOUT):
        if path.name.endswith(".partial") and _age_of(path, now) > PARTIAL_DAYS * DAY:
            yield Removal(
                path=path, size=size_of(path), reason="a download or write that nobody continued"
            )


def _orphaned_files(store: Store, now: float) -> Iterator[Removal]:
    for path in _list_folder(store.root / LAYOUT / "layers"):
        if (
            path.suffix == ".blob"
            and not path.with_suffix(".index").exists()
            and _age_of(path, now) > DAY
        ):
            yield Removal(path=path, size=size_of(path), reason="a layer without its index")


def _unused_files(store: Store, before: float, days: float) -> Iterator[Removal]:
    for name in AGEING:
        # what makes a file count goes first,
        # so that a killed gc leaves none that counts and is not whole
        for path in sorted(
            _files_below(store.root / LAYOUT / name), key=lambda path: path.suffix == ".blob"
        ):
            main = path.with_suffix({".blob": ".index", SEAL: ""}.get(path.suffix, path.suffix))
            if (
                not path.name.endswith(".partial")
                and max(_last_used(main), _last_used(path)) < before
            ):
                yield Removal(path=path, size=size_of(path), reason=f"not used for {days:g} days")


def remove_files(removal: Removal, by_owner: Callable[[Path], object] = lambda _path: None) -> bool:
    """Remove one thing; return whether it is gone.

    ``by_owner`` is asked where files in it belong to others, such as the ids of a namespace.

    A folder with something mounted in it stays: a child that outlived its killed parent may still
    have this machine's /proc, /sys or /dev in there, and removing would go on inside of them.
    """
    if mounted_below(removal.path):
        return False
    with (
        contextlib.suppress(OSError),
        anchored(removal.path, removal.top or removal.path.parent) as path,
    ):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                remove_tree(path)
            if path.exists():
                by_owner(removal.path)
        else:
            path.unlink(missing_ok=True)
    return not removal.path.exists()


def mounted_below(path: Path, table: Path = Path("/proc/self/mountinfo")) -> bool:
    """Tell whether something is mounted at a path or below it, bind mounts included."""
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    top = path.resolve()
    # proc_pid_mountinfo(5): the fifth field
    points = (unescape_mount(line.split(" ")[4]) for line in lines)
    return any(Path(point).is_relative_to(top) for point in points)


def mark_used(path: Path) -> None:
    """Note that a stored file was used today; of no consequence where it cannot be written."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(path)


def tree_size(path: Path) -> int:
    """Return the bytes of a file or of all files below a folder, as far as they stay."""
    if not path.is_dir() or path.is_symlink():
        return size_of(path)
    return sum(size_of(file) for file in _files_below(path))


def _files_below(folder: Path) -> Iterator[Path]:
    for top, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(top) / name


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _last_used(path: Path) -> float:
    try:
        found = path.lstat()
    except OSError:
        return 0.0
    return max(found.st_mtime, found.st_atime)


def _age_of(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except OSError:
        return 0.0
