"""The doctor on folders: is there room, may the user write, and do builds work on that disk."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from envbuild.app.doctor.finding import GB, Finding, broken, differs, fine
from envbuild.context import Context
from envbuild.host import Host, Space, closed_above, read_space
from envbuild.quota import Quota, quotas_of, tightest
from envbuild.settings import Settings
from envbuild.store.units import human_bytes

ROOM = {"TMPDIR": (15 * GB, 2 * GB), "store": (10 * GB, GB), "current folder": (5 * GB, GB // 2)}
"""Bytes below which a TensorFlow image may not fit, and below which nothing fits (measured: 1.6 GB
of wheels to fetch, 5 GB unpacked, 2.4 GB packed)."""
INODES = (200_000, 20_000)
"""The same for inodes: a base with TensorFlow and its CUDA wheels has about 60,000 files, counted
twice while built."""
SMALL_HOME = 40 * GB
"""A home that may hold less than this is no place for a store: universities give 15 to 25 GB."""
EXPORTS = {
    "TMPDIR": ("export TMPDIR=", "/a/folder/on/a/local/disk"),
    "store": ("export ENVBUILD_STORE=", "/another/folder"),
    "current folder": ("cd ", "/another/folder"),
}
"""How another folder is taken, and one that stands for it where none was found."""
WORK = ("SCRATCH", "WORK", "SCRATCHDIR", "WORKDIR", "PROJECT", "GROUP_HOME")
"""Variables in which sites name large folders."""
LOCAL = ("SLURM_TMPDIR", "SGE_LOCALDIR", "PBS_LOCALDIR", "PBS_JOBFS", "T4TMPDIR", "LOCAL_SCRATCH")
"""Variables in which schedulers and sites name folders on a node's own disk."""
WORK_FOLDERS = (
    "/scratch/{user}",
    "/work/{user}",
    "/lustre/{user}",
    "/data/{user}",
    "/gs/bs/{user}",
)
LOCAL_FOLDERS = ("/local/{user}", "/scratch/local/{user}", "/tmp", "/var/tmp")  # noqa: S108
"""Where these folders usually are."""


def probes(context: Context, host: Host) -> list[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Return the probes of TMPDIR, the store and the current folder."""
    settings = context.settings
    places = {"TMPDIR": settings.tmpdir, "store": settings.store, "current folder": settings.cwd}
    return [
        (name, functools.partial(_examine_folder, name, folder, context, host))
        for name, folder in places.items()
    ]


def _examine_folder(name: str, folder: Path, context: Context, host: Host) -> list[Finding]:
    settings = context.settings
    space = read_space(folder)
    better = next(candidates(name, settings, host.user), None)
    quota = tightest(quotas_of(folder, context.runner))
    is_writable, home = writable(folder), settings.home
    found = judge_space(name, space, writable=is_writable, quota=quota, home=home, better=better)
    closed = closed_above(folder) if host.uid != 0 else None
    return [judge_entry(found, space, closed=closed, better=better)]


def judge_space(
    name: str,
    space: Space,
    *,
    writable: bool,
    quota: Quota | None = None,
    home: Path | None = None,
    better: Path | None = None,
) -> Finding:
    """Judge the file system of TMPDIR, the store or the current folder: room, quota, inodes, kind and rights.

    ``better`` is a folder of this machine that would do instead, where one was found.
    """
    enough, least = ROOM[name]
    free, inodes = _free(space, quota)
    value = f"{space.folder} ({space.kind}): {human_bytes(free)} free"
    if quota is not None and quota.limit is not None:
        value += f" of {quota.owner} quota of {human_bytes(quota.limit)}"
    if inodes is not None:
        value += f", {inodes:,} inodes free"
    enough_inodes, least_inodes = INODES
    move = _move_away(name, better)
    if not writable:
        return broken(name, f"{value}; not writable", move)
    if free < least or (inodes is not None and inodes < least_inodes):
        mend = move if better else f"{move} with more room"
        return broken(name, value, mend)
    if name == "TMPDIR" and space.slow:
        value += "; builds are slow there, and may fail for lack of extended attributes"
        return differs(name, value, move)
    if name == "store" and home is not None and _in_small_home(space, quota, home):
        value += "; a home of this size fills up after a few images"
        return differs(name, value, move)
    if free < enough or (inodes is not None and inodes < enough_inodes):
        value += "; big images may not fit"
        return differs(name, value, move)
    return fine(name, value)


def _move_away(name: str, better: Path | None) -> str:
    """Return the command that takes another folder instead of this one."""
    command, example = EXPORTS[name]
    return command + str(better or example)


def judge_entry(
    found: Finding, space: Space, *, closed: Path | None, better: Path | None = None
) -> Finding:
    """Judge whether programs start in TMPDIR, and whether the other ids of a build may enter it (``closed``: not)."""
    if found.name != "TMPDIR" or found.verdict == "broken":
        return found
    move = _move_away(found.name, better)
    if "noexec" in space.options:
        value = f"{found.value}; no program can be started there (noexec), and builds start some"
        return broken(found.name, value, move)
    if closed is not None:
        value = f"{found.value}; other users may not enter {closed}, and a build without root works with other ids"
        return differs(found.name, value, f"chmod o+x {closed}\nor: {move}")
    return found


def candidates(name: str, settings: Settings, user: str) -> Iterator[Path]:
    """Yield folders of this machine that may be better than the one in use, the best first.

    For TMPDIR: on a local disk.  For the store: large and shared by the nodes, never in the home.
    """
    is_temporary, env = name == "TMPDIR", settings.environment
    variables = LOCAL if is_temporary else WORK
    named = [env[variable] for variable in variables if env.get(variable)]
    usual = [text.format(user=user) for text in (LOCAL_FOLDERS if is_temporary else WORK_FOLDERS)]
    for folder in map(Path, (*named, *usual)):
        if not folder.is_absolute() or not folder.is_dir() or not writable(folder):
            continue
        space = read_space(folder)
        if space.free < ROOM[name][0]:
            continue
        if is_temporary and (space.slow or space.kind == "tmpfs" or "noexec" in space.options):
            continue
        if not is_temporary and folder.is_relative_to(settings.home):
            continue
        yield folder / "envbuild" if name == "store" else folder


def writable(folder: Path) -> bool:
    """Tell whether a folder can be written to, or be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _free(space: Space, quota: Quota | None) -> tuple[int, int | None]:
    """Return the bytes and inodes that may still be used: of file system and quota the lesser."""
    if quota is None:
        return space.free, space.free_inodes
    free = space.free if quota.free is None else min(space.free, quota.free)
    inodes = [count for count in (space.free_inodes, quota.free_files) if count is not None]
    return free, min(inodes, default=None)


def _in_small_home(space: Space, quota: Quota | None, home: Path) -> bool:
    if not space.folder.is_relative_to(home):
        return False
    limit = quota.limit if quota is not None and quota.limit is not None else space.total
    return 0 < limit < SMALL_HOME
