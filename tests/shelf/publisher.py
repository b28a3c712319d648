"""A publisher in a process of its own, for tests that run several, kill one, or run one as another user.

Forked, so that it starts in milliseconds and needs not read the source tree; or started in a namespace: python -m tests.shelf.publisher FOLDER PLACE NAME SUMMARY [kill-at=N] [umask=OCTAL] [clock=SECONDS] [user=UID:GID]
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envbuild import settings
from envbuild.errors import EnvbuildError
from envbuild.shelf import publish as shelf_publish
from tests.shelf.people import member

STEPS = ("mkdir", "link", "replace", "rename", "fsync", "open", "unlink", "chmod", "fchmod")


def kill_at(number: int) -> None:
    """Kill this process before the so manieth step of the shelf's own that changes the file system."""
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal done
            caller = sys._getframe(1).f_globals["__name__"]
            if caller in ("envbuild.shelf.folder", "pathlib") and "shelf" in str(arguments[:2]):
                done += 1
                if done == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def main(folder: str, place: str, name: str, summary: str, *options: str) -> int:
    """Publish once; exit code as the command line's."""
    given = dict(option.split("=", 1) for option in options)
    who = member(Path(folder), place)
    who.recipe(name, summary=summary)
    if "umask" in given:
        os.umask(int(given["umask"], 8))
    if "clock" in given:
        _shift(float(given["clock"]))
    if "kill-at" in given:
        kill_at(int(given["kill-at"]))
    try:
        who.publish(name)
    except EnvbuildError as error:
        print(type(error).__name__, error, file=sys.stderr)
        return error.code
    return 0


def _shift(seconds: float) -> None:
    """Let this publisher's clock go wrong."""
    from datetime import datetime, timedelta, tzinfo

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    vars(shelf_publish)["datetime"] = Wrong


class Forked:
    """A publisher that runs beside the test."""

    def __init__(
        self,
        folder: Path,
        place: str,
        name: str,
        summary: str,
        *options: str,
        user: int = 0,
        group: int = 0,
    ):
        self.said = folder.with_name(f"{folder.name}.said")
        sys.stdout.flush()
        self.number = os.fork()
        if self.number == 0:
            code = 99
            try:
                self._be(user, group, folder)
                code = main(str(folder), place, name, summary, *options)
            except EnvbuildError as error:
                print(type(error).__name__, error, file=sys.stderr)
                code = error.code
            except BaseException:  # noqa: BLE001  (nothing of the test may run on in the child)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def _be(self, user: int, group: int, folder: Path) -> None:
        handle = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        if user:
            settings.shipped_folder = lambda: folder  # this source tree may be closed to others
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            os.chdir(folder)

    def ended(self) -> tuple[int, str]:
        """Wait, and return its exit code (negative: a signal) and what it said."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        return code, self.said.read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
