"""Carry out a build.

Supply the locked files under their names, run the builder, keep the log of a failure.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from envbuild.build.in_base.exchange import give_file, make_open
from envbuild.build.model import DefinitionBuild
from envbuild.build.modes import MODES, ROWS
from envbuild.cage import find_build_cage
from envbuild.context import Context
from envbuild.errors import IntegrityError, SpaceError, ToolFailedError, UsageError
from envbuild.failures import explain_failure
from envbuild.host import read_host
from envbuild.lock.model import Lock
from envbuild.plan.shell import BUILD
from envbuild.progress import Reporter, Stage
from envbuild.run import Command, Result, Runner
from envbuild.runtime import Runtime
from envbuild.store.layout import Store
from envbuild.store.units import count_noun

KEEP_LOGS = 20
"""Logs of earlier builds that stay in the store."""


@contextmanager
def supplied_files(lock: Lock, store: Store, report: Reporter) -> Iterator[Path]:
    """Yield a folder that holds every locked file but the base's, under its own name.

    They are copies: what runs as root in a build could make a link to the store writable. Raises
    IntegrityError where the store has lost or changed one meanwhile.
    """
    with store.work("files") as work:
        top = (
            work / "supplied/envbuild"
        )  # the working folder itself is closed to the ids that root builds with
        wanted = [("debian", p.file, p.sha256, p.size) for p in lock.system_packages]
        wanted += [("python", p.file, p.sha256, p.size) for p in lock.python]
        wanted += [("conda", p.file, p.sha256, p.size) for p in lock.conda]
        wanted += [
            ("files", f"{locked.sha256}.tar", locked.sha256, locked.size) for locked in lock.files
        ]
        for folder in ("python", "debian", "conda", "files"):
            make_open(top / folder)
        title = f"copy {count_noun(len(wanted), 'locked file')}"
        with report.stage(title, total=sum(size for *_, size in wanted)) as stage:
            for folder, name, sha256, size in wanted:
                kept = store.artifact(sha256)
                if not kept.is_file() or kept.stat().st_size != size:
                    raise IntegrityError(
                        f"{name} is not whole in the store",
                        where=str(kept),
                        hint="run the command again",
                    )
                give_file(kept, top / folder / name, sha256)
                stage.advance(size)
        yield top


def run_build(request: DefinitionBuild, *, mode: str, context: Context, stage: Stage) -> None:
    """Build ``request.target``; the stage counts the Python packages that are unpacked.

    Raises UsageError for an unknown mode, SpaceError for a full disk, HostError for what the host
    lacks; the log of a failed build stays, and the error names it.
    """
    make_builder = MODES[mode].builder if mode in MODES else None
    if make_builder is None:
        known = ", ".join(row.name for row in ROWS if not row.is_assembled)
        raise UsageError(f"--mode {mode} is not one of: {known}")
    builder = make_builder()
    builder.prepare(request)
    runtime = with_build_cage(context.runtime, context.runner)
    _forget_old_logs(request.log.parent)
    for command in builder.commands(request, runtime):
        context.report.detail(str(command))
        with _counting_packages(request, stage):
            result = context.runner(_told(command, context.report), check=False)
        if result.code != 0:
            raise _build_failure(result, request)
    # a build that ended well and left no image has failed all the same
    if not request.target.exists():
        raise _build_failure(result, request)


def with_build_cage(runtime: Runtime, runner: Runner) -> Runtime:
    """Return a runtime whose builds from definitions reach nothing of the user, if it can."""
    argv = (str(runtime.program), "--version")
    trial = Command(argv=argv, env=runtime.environment, timeout=30)
    return replace(runtime, build_cage=find_build_cage(read_host(), runner, trial))


@contextmanager
def _counting_packages(request: DefinitionBuild, stage: Stage) -> Iterator[None]:
    """Look every second how many packages the installer has unpacked in the root that is built."""
    count = len(request.lock.python)
    # bytecode and packing take about as long as unpacking
    stage.expect(2 * count)
    ended = threading.Event()

    def look() -> None:
        seen = 0
        while not ended.wait(1.0):
            now = min(len(_unpacked_packages(request)), count)
            stage.advance(max(now - seen, 0))
            seen = max(now, seen)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _unpacked_packages(request: DefinitionBuild) -> list[Path]:
    """Return the entries of uv's cache in the root that is built: a tree, or an image's."""
    below = f"{BUILD.strip('/')}/cache/archive-v*/*"
    return [*request.target.glob(below), *request.tmpdir.glob(f"*/rootfs/{below}")]


def new_log(name: str, store: Store) -> Path:
    """Return the path of a new build log in the store."""
    return store.folder("logs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"


def _told(command: Command, report: Reporter) -> Command:
    return Command(
        argv=command.argv,
        cwd=command.cwd,
        env=command.env,
        log=command.log,
        timeout=command.timeout,
        on_line=report.detail,
    )


def _build_failure(result: Result, request: DefinitionBuild) -> ToolFailedError | SpaceError:
    failure = explain_failure(result)
    more = f"the whole log: {request.log}"
    hint = f"{failure.hint}\n{more}" if failure.hint else more
    if isinstance(failure, SpaceError):
        return SpaceError(failure.what, where=str(request.tmpdir), hint=hint)
    return ToolFailedError.of(
        result,
        f"the build of {request.name} failed: {failure.what}",
        hint=hint,
    )


def _forget_old_logs(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[:-KEEP_LOGS]:
        path.unlink(missing_ok=True)
