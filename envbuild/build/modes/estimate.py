"""How much a build will download, keep and take.

And whether there is room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from envbuild.build.model import Estimate
from envbuild.build.modes import Mode
from envbuild.errors import SpaceError
from envbuild.host import free_bytes
from envbuild.lock.model import Lock
from envbuild.quota import Quota
from envbuild.records import replace
from envbuild.store.units import human_bytes

UNPACKED = 2.1
"""Bytes on disk for one byte of wheel or layer (TensorFlow 2.15 with CUDA.

2.6 GB of wheels, 5.3 GB installed).
"""
PACKED = 1.05
"""Bytes in the image for one byte of wheel, zstd level 3."""
ROOT = 250_000_000
"""Bytes of a bootstrapped Debian root with Python, unpacked."""
LINE_RATE = 25_000_000
"""Bytes per second assumed for downloads, for want of knowing."""
WORK_RATE = 45_000_000
"""Bytes of wheel per second that two cores install, compile and pack."""
FIXED_SECONDS = 45.0
"""Bootstrap, start and check of any image."""


class SpaceNeed(NamedTuple):
    """A folder, the bytes that it is to hold, and the name of the setting that moves it."""

    folder: Path
    size: int
    setting: str


def estimate_build(lock: Lock, mode: Mode, *, to_download: int) -> Estimate:
    """Return what building this lock will take, with ``to_download`` bytes to be fetched."""
    files = sum(p.size for p in lock.python) + sum(p.size for p in lock.debian)
    files += sum(p.size for p in lock.conda) + lock.base.size
    root = ROOT if lock.is_bootstrap else 0
    left = Estimate(
        download=to_download,
        store=to_download + int(files * PACKED) + root,
        temporary=int(files * UNPACKED) + 2 * root,
        image=int(files * PACKED) + root // 3,
        seconds=FIXED_SECONDS + to_download / LINE_RATE + files / WORK_RATE,
    )
    if mode.is_assembled:
        # nothing of it is unpacked
        return replace(left, temporary=2 * ROOT, seconds=left.seconds - FIXED_SECONDS / 2)
    if mode.is_tree:
        # it is unpacked where it will lie, and nothing is packed
        return replace(left, image=left.temporary, temporary=0)
    if mode.by_engine:
        # the engine saves it as a tar in the store, which is packed then
        return replace(left, store=left.store + left.temporary)
    return left


def packed_size(size: int) -> int:
    """Return about how many bytes an image has that packs a tree of ``size`` bytes."""
    return int(size * PACKED / UNPACKED)


def check_space(
    needs: Iterable[SpaceNeed], quotas: Callable[[Path], Iterable[Quota]] = lambda _: ()
) -> None:
    """Check that every folder's file system has room for what it is to hold.

    Needs on one file system add up. ``quotas`` tells which quotas count what is written into a
    folder. Raises SpaceError naming the first file system or quota that is too small.
    """
    # needs on one file system add up; st_dev tells which folders share one
    systems: dict[int, list[SpaceNeed]] = {}
    for need in needs:
        folders = (need.folder, *need.folder.parents)
        existing = next(path for path in folders if path.exists())
        systems.setdefault(existing.stat().st_dev, []).append(need._replace(folder=existing))
    for members in systems.values():
        free = free_bytes(members[0].folder)
        _require_room(members, free, f"{human_bytes(free)} are free")
    for members in systems.values():
        _check_quotas([member for member in members if member.size], quotas)


def _check_quotas(needs: Iterable[SpaceNeed], quotas: Callable[[Path], Iterable[Quota]]) -> None:
    counted: dict[str, tuple[Quota, list[SpaceNeed]]] = {}
    for need in needs:
        for quota in quotas(need.folder):
            _, counting = counted.setdefault(quota.owner, (quota, []))
            counting.append(need)
    for quota, counting in counted.values():
        limit = quota.hard or quota.limit
        if limit is not None and quota.room is not None:
            left, whole = human_bytes(quota.room), human_bytes(limit)
            _require_room(
                counting, quota.room, f"{left} are left of {quota.owner} quota of {whole}"
            )


def _require_room(members: Sequence[SpaceNeed], free: int, room: str) -> None:
    total = sum(need.size for need in members)
    if free >= total:
        return
    names = " or ".join(dict.fromkeys(need.setting for need in members))
    raise SpaceError(
        f"{human_bytes(total)} are needed, {room}",
        where=", ".join(str(need.folder) for need in members),
        hint=f"free space there, or point {names} to a larger file system",
    )
