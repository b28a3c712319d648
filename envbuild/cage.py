"""Root of a namespace whose ids own nothing here: for foreign code.

Where root runs envbuild, all of it runs there; where an ordinary user does, builds from a
definition.
Without it, what runs as root in a container is the machine's root for the files of the kernel
(``/proc/sys/kernel/core_pattern``): user 0 of Apptainer's own namespaces is who started it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from envbuild.host import ID_COUNT, Host
from envbuild.names import Texts, Variables
from envbuild.records import frozen_record, replace
from envbuild.run import Command, Runner
from envbuild.script_files import read_script

STASHES = ("/mnt", "/media", "/srv", "/opt")
"""Folders that every Linux has (FHS 3.0); a run covers one in its own mount namespace."""
ALWAYS_CLOSED = ("/root", "/home")
FOLDERS_OF_ROOT = ("_CACHEDIR", "_CONFIGDIR", "_TMPDIR")
"""Endings of variables that name folders of root's."""

REMOVE_SECONDS = 600.0

WORKING: set[tuple[Cage, Texts]] = set()
"""Cages and commands that were tried in this process, and worked."""


@frozen_record
class Cage:
    """Ids that own nothing: the first and the count, of users and of groups.

    ``nested`` says that they are an ordinary user's own subordinate ids.
    """

    program: str
    uids: tuple[int, int]
    gids: tuple[int, int]
    nested: bool = False

    def around(
        self, command: Command, *, show: Iterable[Path], write: Iterable[Path] = ()
    ) -> Command:
        """Return a command that runs another there: it sees ``show``, and may write in ``write``.

        Of the machine's files it sees what every user may see, but no home folder.
        """
        named = dict.fromkeys((path.absolute() for path in show), "ro")
        named |= dict.fromkeys((path.absolute() for path in write), "rw")
        # a link outside may lead to a place that is covered: so that first
        shown = {path.resolve(): kind for path, kind in sorted(named.items())} | named
        listed = [f"{kind}:{path}" for path, kind in shown.items()]
        # when all has been stashed
        given = command.env or {}
        listed += [f"cover:{folder}" for folder in closed_folders(shown, given.get("HOME", ""))]
        stash = _free_stash(shown)
        # the user is 0 of the first namespace, his ids begin with 1
        owner = "1:1" if self.nested else f"{self.uids[0]}:{self.gids[0]}"
        first = self.map_ids(1, "--map-root-user") if self.nested else ()
        script = read_script("envbuild", "host_scripts/show_paths.sh") + self._enter()
        arguments = (owner, stash, str(command.cwd or "/"), *listed)
        outer = (self.program, *first, "--mount", "sh", "-c", script, "envbuild-cage", *arguments)
        env = _own_folders(given, stash, named)
        argv = (*outer, "--", *self._namespaces(), "--", *command.argv)
        return replace(command, argv=argv, cwd=None, env=env)

    def _enter(self) -> str:
        """Return the script's last part, which starts the command."""
        if not self.nested:
            return 'exec "$@"\n'
        return read_script("envbuild", "host_scripts/enter_nested.sh", ids=str(ID_COUNT))

    def _namespaces(self) -> Texts:
        """Return what starts a command as root of these ids, in namespaces of its own."""
        maps = () if self.nested else self.map_ids(0)
        root = ("--setuid", "0", "--setgid", "0")
        processes = ("--pid", "--fork", "--kill-child", "--mount-proc")
        return (self.program, *maps, *root, "--mount", "--ipc", *processes)

    def map_ids(self, inside: int, *more: str) -> Texts:
        """Return the options for a namespace in which the ids begin with ``inside``."""
        users = f"--map-users={self.uids[0]},{inside},{ID_COUNT}"
        return ("--user", *more, users, f"--map-groups={self.gids[0]},{inside},{ID_COUNT}")


def _free_stash(shown: Iterable[Path]) -> str:
    """Return the folder that the run covers: one that holds nothing of what it is shown."""
    paths = list(shown)
    return next(
        folder for folder in STASHES if not any(path.is_relative_to(folder) for path in paths)
    )


def _own_folders(env: Variables, stash: str, named: Mapping[Path, str]) -> dict[str, str]:
    """Return a run's variables: folders of root's are left out where the run does not see them."""
    own = {"HOME": f"{stash}/home", "TMPDIR": f"{stash}/tmp"}  # noqa: S108  (the run's own)
    kept = {}
    for key, value in env.items():
        is_seen = Path(value) in named
        if is_seen or not key.endswith(FOLDERS_OF_ROOT):
            kept[key] = value
        # a folder that it may write in is as good as its own
        if is_seen and key in own:
            own[key] = value
    return {**kept, **own}


def closed_folders(shown: Iterable[Path], home: str = "") -> Texts:
    """Return the folders to cover: homes, and the outermost closed one on the way to a path."""
    found = {
        place for place in (*ALWAYS_CLOSED, home.rstrip("/")) if place and Path(place).is_dir()
    }
    for path in shown:
        for folder in reversed(path.parents):
            if folder.is_dir() and not folder.stat().st_mode & 0o001:
                found.add(str(folder))
                break
    return tuple(
        sorted(
            place for place in found if not any(place.startswith(f"{other}/") for other in found)
        )
    )


def find_cage(host: Host, runner: Runner, trial: Command) -> Cage | None:
    """Return the cage of root, None for other users and where none can be made.

    ``trial`` is a command that ends at once, which is run in it.
    """
    return find_build_cage(host, runner, trial) if host.uid == 0 else None


def find_build_cage(host: Host, runner: Runner, trial: Command) -> Cage | None:
    """Return where builds from a definition run, None where no such place can be made."""
    program = shutil.which("unshare", path=(trial.env or {}).get("PATH"))
    if program is None or host.subuid is None or host.subgid is None:
        return None
    if min(host.subuid[1], host.subgid[1]) < ID_COUNT:
        return None
    cage = Cage(program=program, uids=host.subuid, gids=host.subgid, nested=host.uid != 0)
    known = (cage, trial.argv)
    if known not in WORKING and runner(cage.around(trial, show=()), check=False).code == 0:
        WORKING.add(known)
    return cage if known in WORKING else None


def remove_by_ids(path: Path, host: Host, runner: Runner) -> None:
    """Remove what a killed build of an ordinary user left, whose owners are his subordinate ids."""
    if host.uid == 0 or host.subuid is None or host.subgid is None:
        return
    cage = Cage(program="unshare", uids=host.subuid, gids=host.subgid, nested=True)
    argv = (cage.program, *cage.map_ids(1, "--map-root-user"), "rm", "-rf", "--", str(path))
    runner(Command(argv=argv, timeout=REMOVE_SECONDS), check=False)
