"""Full disks, read-only folders and dead networks for the command line: ``python -m tests.hostile.faults [VERB…]`` as root.

Each verb runs with each fault. It may do well, or end with the code of the fault; never with a traceback. After it
nothing half written may have a final name, and without the fault the next run must give what an undisturbed one gives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from envbuild.base.debian.apt import debian_mirror
from envbuild.context import open_context
from envbuild.net.index import index_url
from envbuild.progress import Silent
from envbuild.run import LocalRunner, Result
from envbuild.settings import load_settings
from tests.hostile import kills
from tests.hostile.faulty_server import FAULTS, Fault, FaultyServer, standing_before
from tests.hostile.kills import (
    BUNDLE,
    IMAGE,
    LAID,
    LOCK,
    MADE,
    VERBS,
    Verb,
    digest_of,
    must,
    prepare,
)
from tests.project import Project

PLACES = {"store": "store", "cache": "cache", "tmp": "tmp", "output": "."}
"""What lies on a file system of its own, and its folder in the project's."""
ROOM = 3 * 1024**3
PAGE = 4096
LEFT = (0, 1024**2)
"""Bytes that a full disk still has: writing fails at once, in the middle, or near the end."""
USAGE, FULL, HOST, NETWORK = 2, 8, 7, 5
DOWNLOADED = ("artifacts", "answers", "metadata", "apt", "layers", "images")
"""What a store has from a network, or made of it."""
MORE = {
    "dev": Verb(
        arguments=("dev", "small", "--json"),
        result=lambda project: must(project, "dev", "small", "--json").stdout,
        once=(MADE, LAID),
    ),
    "unpack": Verb(
        arguments=("make", "--from-bundle", BUNDLE, "--no-check"),
        result=digest_of(IMAGE),
        removed=(
            IMAGE,
            LOCK,
            "recipes",
            "store/v1/artifacts",
            "store/v1/layers",
            "store/v1/images",
        ),
        once=(("bundle", "small", "--no-tool"),),
    ),
}
ALL = {**VERBS, **MORE}
DISK = (
    *("lock", "make flat", "promote", "publish", "push", "add --dev", "dev", "dev --clear"),
    *("gc", "store verify", "bundle", "unpack", "pull"),
)
NETWORKED = ("lock", "make flat", "bundle", "add --dev", "promote", "add", "unpack")


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@dataclass(frozen=True)
class DiskFault:
    """A file system that is full but for so many bytes, or read-only."""

    place: str
    left: int | None

    def __str__(self) -> str:
        return f"{self.place} {'read-only' if self.left is None else f'full but for {self.left}'}"

    @property
    def codes(self) -> tuple[int, ...]:
        """The codes that a verb may end with: where the user may not write is also a wrong use."""
        if self.left is not None:
            return (FULL,)
        return (HOST, USAGE) if self.place == "output" else (HOST,)

    def inflict(self, project: Project) -> None:
        folder = project.folder / PLACES[self.place]
        if self.left is None:
            remount(folder, "ro")
            return
        disk = os.statvfs(folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_bsize
        remount(folder, f"size={max(used + self.left, PAGE)}")  # size=0 is no limit

    def lift(self, project: Project) -> None:
        folder = project.folder / PLACES[self.place]
        remount(folder, "rw" if self.left is None else f"size={ROOM}")


@dataclass(frozen=True)
class NetworkFault:
    """A network that is dead in one way, for who has nothing of it yet."""

    fault: Fault
    server: FaultyServer
    codes: tuple[int, ...] = (NETWORK,)

    def __str__(self) -> str:
        return self.fault

    def inflict(self, project: Project) -> None:
        for name in DOWNLOADED:
            shutil.rmtree(project.store / "v1" / name, ignore_errors=True)
        shutil.rmtree(project.folder / "cache")
        (project.folder / "cache").mkdir()
        self.server.fault = self.fault
        project.env.update(self.server.variables)

    def lift(self, project: Project) -> None:
        self.server.fault = None
        for name in self.server.variables:
            del project.env[name]


Trial = DiskFault | NetworkFault
DISK_FAULTS = [DiskFault(place, left) for place in PLACES for left in (*LEFT, None)]


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """Give the project a file system for each place, in a namespace of mounts that is this process's own."""
    made = [folder, *(folder / path for path in PLACES.values() if path != ".")]
    for path in made:
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        for path in reversed(made):
            subprocess.run(["umount", "-l", path], check=True)


def judge(project: Project, verb: Verb, trial: Trial, expected: str) -> tuple[Result, list[str]]:
    """Run a verb with a fault, and again without it; return how it ended, and what was wrong."""
    prepare(project, verb)
    trial.inflict(project)
    try:
        ran = project.run(*verb.arguments)
    finally:
        trial.lift(project)
    wrong = [] if ran.code in (0, *trial.codes) else [f"code {ran.code}"]
    if "Traceback" in ran.stdout + ran.stderr:
        wrong.append("a traceback")
    if ran.code and ran.stderr.count("envbuild: error:") != 1:
        wrong.append("no error, or several")
    try:
        if not verb.whole(project, expected):
            wrong.append("half a result")
        must(project, "store", "verify")
        if not (ran.code == 0 or verb.is_done(project)):
            must(project, *verb.arguments)
        if verb.result(project) != expected:
            wrong.append("another result")
    except Exception as error:  # noqa: BLE001  (that is the question)
        wrong.append(f"next run: {type(error).__name__}: {error}")
    return ran, wrong


def run_series(name: str, trials: Sequence[Trial], project: Project) -> None:
    """Try one verb with all faults; print a line for each."""
    verb = ALL[name]
    prepare(project, verb)
    must(project, *verb.arguments)
    expected = verb.result(project)
    for trial in trials:
        ran, wrong = judge(project, verb, trial, expected)
        said = next((line for line in ran.stderr.splitlines() if "error:" in line), "")
        took = {"code": ran.code, "seconds": round(ran.seconds)}
        told = {"verb": name, "fault": str(trial), **took, "said": said, "wrong": wrong}
        if wrong:
            told["stderr"] = ran.stderr[-1500:]
        print(json.dumps(told), flush=True)


def open_project(name: str, folder: Path, kept: tuple[str, ...], held: ExitStack) -> Project:
    project = kills.open_project(name, ALL[name], folder, held, kept)
    project.env["XDG_CACHE_HOME"] = str(folder / "cache")
    (folder / "cache").mkdir(exist_ok=True)
    return project


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("disk", "network"), default="disk")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="of a network; else all")
    parser.add_argument("verbs", nargs="*", metavar="VERB")
    given = parser.parse_args()
    if given.kind == "disk" and "MOUNTS" not in os.environ:
        own = ["unshare", "-m", sys.executable, "-m", "tests.hostile.faults", *sys.argv[1:]]
        sys.exit(subprocess.run(own, env={**os.environ, "MOUNTS": "own"}, check=False).returncode)
    with ExitStack() as servers:
        context = open_context(load_settings(), LocalRunner(), Silent())
        server = servers.enter_context(standing_before(index_url(context), debian_mirror(context)))
        for name in given.verbs or (DISK if given.kind == "disk" else NETWORKED):
            with tempfile.TemporaryDirectory() as top, ExitStack() as held:
                folder = Path(top) / "p"
                if given.kind == "disk":
                    held.enter_context(mounted(folder))
                    project = open_project(
                        name, folder, ("artifacts", "bases", "built", "facts"), held
                    )
                    run_series(name, DISK_FAULTS, project)
                else:
                    project = open_project(name, folder, ("bases", "built", "facts"), held)
                    faults = given.fault or FAULTS
                    run_series(name, [NetworkFault(fault, server) for fault in faults], project)


if __name__ == "__main__":
    main()
