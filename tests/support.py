"""Helpers that tests import: a scripted runner, and marks for the tools that live tests need."""

from __future__ import annotations

import functools
import io
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest

from envbuild.cli import run_cli
from envbuild.context import Context, open_context
from envbuild.host import Host
from envbuild.progress import Silent, SilentStage
from envbuild.run import Command, LocalRunner, Result, Runner, failure
from envbuild.settings import Settings, load_settings

AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
"""What stands before a command that only root may run."""


SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(200)
"""An image in name only."""
USER = Host(
    uid=1000,
    user="ada",
    architecture="x86_64",
    missing_capabilities=frozenset(range(41)),
    subuid=(100000, 65536),
    subgid=(100000, 65536),
    user_namespace_limit=1000,
    fuse=True,
    driver=None,
)
ROOT = replace(USER, uid=0, user="root", missing_capabilities=frozenset())
CRIPPLED = replace(ROOT, missing_capabilities=frozenset({24}))
"""An ordinary user's machine, that of root, and that of a root without all of its rights."""


@functools.cache
def may_be_root() -> bool:
    """Tell whether this user is root, or may become it without a password."""
    if not AS_ROOT:
        return True
    asked = [*AS_ROOT, "true"]
    return shutil.which("sudo") is not None and subprocess.run(asked, check=False).returncode == 0


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skip a live test, with the reason, where a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed here: {', '.join(missing)}")


ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals whose handlers the command line sets."""
PATIENCE = 180.0
"""Seconds that tests wait for what will come: long, as a busy machine is no fault."""


def wait_until(tell: Callable[[], object], what: str) -> None:
    """Look again and again until ``tell`` says yes; fail with ``what`` where it does not."""
    end = time.monotonic() + PATIENCE
    while not tell():
        assert time.monotonic() < end, f"not in {PATIENCE:.0f} s: {what}"
        time.sleep(0.2)


class Golden(Protocol):
    """Compares a text with its golden file."""

    def __call__(self, name: str, text: str, *, beside: str | None = None) -> None:
        """Compare a whole text, or what differs in it from another golden text."""


class ScriptedRunner:
    """A runner that answers from a table: the first key that is part of the command line wins; it notes all calls."""

    def __init__(self, answers: dict[str, tuple[int, str, str]]) -> None:
        self.answers = answers
        self.calls: list[Command] = []

    def __call__(self, command: Command, *, check: bool = True) -> Result:
        self.calls.append(command)
        line = " ".join(command.argv)
        for key, (code, out, err) in self.answers.items():
            if key in line:
                result = Result(argv=command.argv, code=code, stdout=out, stderr=err, seconds=0.0)
                if check and code:
                    raise failure(result)
                return result
        raise AssertionError(f"no answer scripted for: {line}")


class CountingStage(SilentStage):
    """A stage that adds up what is counted on it."""

    def __init__(self) -> None:
        self.total = self.done = 0

    def expect(self, count: int) -> None:
        """Add to the total."""
        self.total += count

    def advance(self, count: int = 1) -> None:
        """Add to what is done."""
        self.done += count


def settings_with(folder: Path, *programs: str, **variables: str) -> Settings:
    """Return the settings of a machine that has these programs, which do nothing, and no others."""
    for name in programs:
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return load_settings({"PATH": str(folder / "bin"), "HOME": str(folder), **variables}, folder)


def context_for(settings: Settings, runner: Runner) -> Context:
    """Return the context of a user who sees no progress."""
    return open_context(settings, runner, Silent())


def quiet_context(settings: Settings) -> Context:
    """Return the context of a user who sees no progress; programs are started for real."""
    return context_for(settings, LocalRunner())


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler], **options: object) -> Iterator[str]:
    """Let a handler, which gets the options, answer on a port of 127.0.0.1; what is lent is the address."""

    class Quiet(handler):  # type: ignore[valid-type,misc]
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, **options)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class SilentServer(ThreadingHTTPServer):
    """A server whose clients break off all the time: it says nothing of that."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Stay silent."""


def run_here(folder: Path, env: Mapping[str, str], *words: str) -> Result:
    """Run a verb in this process: to start a Python for each takes longer than most verbs.

    One that hands over to a command would end the tests, and needs a process of its own.
    """
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in ASKING}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in list(os.environ):
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        code = run_cli(list(words))
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return Result(argv=words, code=code, stdout=out.getvalue(), stderr=err.getvalue(), seconds=0.0)
