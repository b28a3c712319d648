"""The user's folders in which programs of an image keep things (docs/howto-data.md)."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from envbuild.data.tables import load_caches
from envbuild.errors import UsageError
from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record
from envbuild.settings import Settings
from envbuild.store.hashing import hash_bytes

DOWNLOADS = ".cache"
COMPILED = ".compiled"
"""Below HOME in the container: what any image may use, and what is this image's own."""
UNBOUND = re.compile(r"[,:\"\\\x00-\x1f]")
"""Characters that a bind of the container runtime cannot carry."""
HEAD = 64 * 1024
"""Bytes at the start of a SIF with its header and the table of its objects."""


@frozen_record
class Caches:
    """What is kept.

    ``folders`` are (folder of this machine, path below HOME in the container); ``variables`` are
    set to paths below HOME; ``given`` are variables that the user has set to a folder already,
    which is seen at its own path; ``made`` are the folders of this machine that must be there.
    """

    folders: Pairs = ()
    variables: Pairs = ()
    given: Pairs = ()
    made: Texts = ()


def plan_caches(
    image: Path,
    settings: Settings,
    *,
    wanted: bool | Texts = True,
    taken: Collection[str] = (),
) -> Caches:
    """Decide what is kept for an image.

    ``wanted`` is [run] caches, ``taken`` are variables that others have set.  Nothing is kept where
    the recipe or the settings say so.  Raises UsageError for a folder that cannot be bound.
    """
    top = settings.caches
    if top is None or wanted is False:
        return Caches()
    if UNBOUND.search(str(top)):
        hint = "name another one: ENVBUILD_CACHES=FOLDER, or ENVBUILD_CACHES=none to keep nothing"
        raise UsageError(
            "a folder of such a name cannot be bound into a container", where=top, hint=hint
        )
    kept = {"downloads": top / "downloads", "compiled": top / "compiled" / image_mark(image)}
    inside = {"downloads": DOWNLOADS, "compiled": COMPILED}
    given: list[tuple[str, str]] = []
    variables: list[tuple[str, str]] = []
    made = [str(folder) for folder in kept.values()]
    for row in load_caches().cache:
        if row.variable in taken:
            continue
        folder = settings.environment.get(row.variable, "")
        if row.variable != "XDG_CACHE_HOME" and _is_own(folder):
            given.append((row.variable, folder))
            continue
        variables.append((row.variable, str(PurePosixPath(inside[row.keep]) / row.folder)))
        if row.made:
            made.append(str(kept[row.keep] / row.folder))
    folders = [(str(kept[kind]), inside[kind]) for kind in kept]
    own = wanted if isinstance(wanted, tuple) else ()
    folders += [(str(top / "home" / name), name) for name in own]
    made += [str(top / "home" / name) for name in own]
    return Caches(
        folders=tuple(folders), variables=tuple(variables), given=tuple(given), made=tuple(made)
    )


def _is_own(folder: str) -> bool:
    return folder.startswith("/") and UNBOUND.search(folder) is None and Path(folder).is_dir()


def make_folders(caches: Caches) -> None:
    """Make the folders of this machine; raises OSError where that cannot be done."""
    for folder in caches.made:
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot be written", folder)


def image_mark(image: Path) -> str:
    """Return a mark that no other image has: a digest over the head of its file.

    The head of a SIF holds its id, and name, size and time of every object; envbuild derives the id
    from the lock.  So no gigabytes have to be read.
    """
    if image.is_dir():  # a sandbox
        return hash_bytes(os.fsencode(image.absolute()))[:16]
    with image.open("rb") as file:
        return hash_bytes(file.read(HEAD))[:16]


def make_scratch(tmpdir: Path) -> Path:
    """Make the folder that is /tmp in this process's container, and remove those of ended ones.

    The runtime gives ordinary users a /tmp of 64 MB.  It takes the place of this process, so nobody
    is left to remove the folder when it ends: the next run does.  Raises OSError where the folder
    cannot be made.
    """
    # numbers of processes mean something on one host, in one namespace
    processes = Path("/proc")
    space = (processes / "self/ns/pid").readlink().name.strip("pid:[]")
    top = tmpdir / f"envbuild-run-{os.getuid()}-{platform.node()}-{space}"
    top.mkdir(mode=0o700, exist_ok=True)
    # one look: whoever owns what is there may put a link in its place at any moment
    found = top.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "belongs to somebody else", str(top))
    own = str(os.getpid())
    for folder in top.iterdir():
        if folder.name == own or not (processes / folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)
    scratch = top / own
    scratch.mkdir(mode=0o700)
    return scratch
