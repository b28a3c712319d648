"""Carry out a build.

Supply the locked files under their names, run the builder, keep the log of a failure.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envbuild.build.in_base.exchange import give_file, make_open
from envbuild.build.model import DefinitionBuild
from envbuild.build.modes import MODES
from envbuild.cage import find_build_cage
from envbuild.context import Context
from envbuild.errors import IntegrityError, SpaceError, ToolFailedError
from envbuild.failures import explain_failure, without_progress
from envbuild.host import read_host
from envbuild.lock.model import Lock
from envbuild.plan.shell import BUILD
from envbuild.progress import Stage
from envbuild.records import replace
from envbuild.run import Command, Result, Runner
from envbuild.runtime import Runtime
from envbuild.store.units import count_noun

KEEP_LOGS = 20
"""Logs of earlier builds that stay in the store."""


@contextmanager
def supplied_files(lock: Lock, context: Context) -> Iterator[Path]:
    """Yield a folder that holds every locked file but the base's, under its own name.

    They are copies: what runs as root in a build could make a link to the store writable. Raises
    IntegrityError where the store has lost or changed one meanwhile.
    """
    store = context.store
    with store.work("files") as work:
        # the working folder itself is closed to the ids that root builds with
        top = work / "supplied/envbuild"
        wanted = [("debian", p.file, p.sha256, p.size) for p in lock.system_packages]
        wanted += [("python", p.file, p.sha256, p.size) for p in lock.python]
        wanted += [("conda", p.file, p.sha256, p.size) for p in lock.conda]
        wanted += [
            ("files", f"{locked.sha256}.tar", locked.sha256, locked.size) for locked in lock.files
        ]
        for folder in ("python", "debian", "conda", "files"):
            make_open(top / folder)
        title = f"copy {count_noun(len(wanted), 'locked file')}"
        with context.report.stage(title, total=sum(size for *_, size in wanted)) as stage:
            for folder, name, sha256, size in wanted:
                kept = store.artifact(sha256)
                if not kept.is_file() or kept.stat().st_size != size:
                    raise IntegrityError(
                        f"{name} is not whole in the store",
                        where=kept,
                        hint="run the command again",
                    )
                give_file(kept, top / folder / name, sha256)
                stage.advance(size)
        yield top


def run_build(request: DefinitionBuild, *, mode: str, context: Context, stage: Stage) -> None:
    """Build ``request.target``; the stage tells the percent that are over.

    Raises SpaceError for a full disk, HostError for what the host lacks; the log of a failed build
    stays, and the error names it.
    """
    make_builder = MODES[mode].builder
    assert make_builder is not None  # noqa: S101  (modes without one are put together)
    builder = make_builder()
    builder.prepare(request)
    runtime = with_build_cage(context.runtime, context.runner)
    _forget_old_logs(request.log.parent)
    progress = BuildProgress(request, stage)

    def take_line(line: str) -> None:
        context.report.detail(line)
        progress.read_line(line)

    for command in builder.commands(request, runtime):
        context.report.detail(str(command))
        with progress.counting_packages():
            result = context.runner(replace(command, on_line=take_line), check=False)
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


def _build_failure(result: Result, request: DefinitionBuild) -> ToolFailedError | SpaceError:
    failure = explain_failure(result)
    more = f"the whole log: {request.log}"
    hint = f"{failure.hint}\n{more}" if failure.hint else more
    if isinstance(failure, SpaceError):
        return SpaceError(failure.what, where=request.tmpdir, hint=hint)
    return ToolFailedError.of(
        without_progress(result), f"the build of {request.name} failed: {failure.what}", hint=hint
    )


def _forget_old_logs(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[:-KEEP_LOGS]:
        path.unlink(missing_ok=True)


MARKS = {
    "Running setup scriptlet": 2,
    "Running post scriptlet": 10,
    "Adding help info": 70,
    "Creating SIF file": 75,
}
"""What Apptainer prints during a build, and about how many percent of the time are over then."""
STEP = re.compile(r"^(?:#\d+ \[(?:\S+ )? *|STEP |Step )(\d+)/(\d+)")
"""A step of a Dockerfile, as BuildKit (--progress=plain), podman and Docker's older builder print it."""
UNPACKING = (10, 60)
"""Percent that are over when the installer starts, and when it has unpacked all packages."""


class BuildProgress:
    """Tells a stage of 100 percent how far a build is; it never goes back."""

    def __init__(self, request: DefinitionBuild, stage: Stage) -> None:
        self._request, self._stage = request, stage
        self._reached = 0
        self._lock = threading.Lock()
        stage.expect(100)

    def read_line(self, line: str) -> None:
        """Take in a line that a tool of the build printed."""
        step = STEP.match(line)
        done, steps = map(int, step.groups()) if step else (0, 0)
        if 0 < done <= steps:
            self._reach(60 * done // steps)
        for mark, percent in MARKS.items():
            if mark in line:
                self._reach(percent)

    @contextmanager
    def counting_packages(self) -> Iterator[None]:
        """Look every second how many packages the installer has unpacked in the root that is built."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(1.0):
                self._reach(self._unpacked_share())

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()

    def _unpacked_share(self) -> int:
        """Return the percent that are over, as far as entries of uv's cache in the root tell."""
        below = f"{BUILD.strip('/')}/cache/archive-v*/*"
        roots = ((self._request.target, below), (self._request.tmpdir, f"*/rootfs/{below}"))
        try:
            unpacked = sum(len(list(root.glob(pattern))) for root, pattern in roots)
        except OSError:  # the root of an ordinary user's build belongs to his subordinate ids
            return 0
        if not unpacked:
            return 0
        first, last = UNPACKING
        count = len(self._request.lock.python)
        return first + (last - first) * min(unpacked, count) // count

    def _reach(self, percent: int) -> None:
        with self._lock:
            step = max(percent - self._reached, 0)
            self._reached += step
        self._stage.advance(step)
