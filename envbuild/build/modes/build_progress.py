"""How far a build from a definition is: by what its tools print, and what its installer has unpacked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from envbuild.build.model import DefinitionBuild
from envbuild.plan.shell import BUILD
from envbuild.progress import Stage

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
