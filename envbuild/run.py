"""The one door to other processes: argument lists, both pipes drained, time limits, errors that carry the evidence."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import select
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal, NoReturn, Protocol

from envbuild.errors import HostError, ToolFailedError, ToolMissingError
from envbuild.interrupts import ASKED_TO_END
from envbuild.names import Texts, Variables
from envbuild.records import frozen_record
from envbuild.session_keys import without_session_keys

CAPTURE_LIMIT = 8 * 1024 * 1024
"""Bytes kept of each stream; a child that prints more is drained but only its last part is kept."""
GRACE_SECONDS = 10.0
"""How long a child may usually take to clean up after an interrupt before it is killed."""
CHUNK = 65536
OWN_PATH = "import sys; sys.path[:] = filter(None, sys.path)"
"""First line of a program for our own Python: nothing is imported from the current folder."""
GUARD = (
    f'read -r told && exit; kill -s TERM -- "-$1"; sleep {GRACE_SECONDS:.0f}; kill -s KILL -- "-$1"'
)
Ended = Literal["by itself", "at its time limit", "at its memory limit"]
GUARDED_FROM = 60.0
"""Seconds: what may run longer is ended when envbuild is killed."""


@frozen_record
class Command:
    """One process to start.

    ``env`` is the child's whole environment (None: the parent's); ``timeout`` is in seconds;
    ``log`` is a file that both streams are appended to while they come; ``on_line`` is called with
    every complete line of either stream.  ``bounds`` are resource limits (RLIMIT_…) and their
    values, for the child and what it starts; ``memory``: how many bytes it may take at most;
    ``grace``: the seconds to clean up before it is killed; ``foreign`` code gets no session keys.
    """

    argv: Texts
    cwd: Path | None = None
    env: Variables | None = None
    stdin: str | None = None
    timeout: float | None = None
    log: Path | None = None
    on_line: Callable[[str], None] | None = None
    bounds: tuple[tuple[int, int], ...] = ()
    memory: float = math.inf
    grace: float = GRACE_SECONDS
    foreign: bool = False

    def __str__(self) -> str:
        return shlex.join(self.argv)


@frozen_record
class Result:
    """What a process left behind.

    ``seconds`` is wall time; a limit of time (``timed_out``) or memory (``too_large``) ended it.
    """

    argv: Texts
    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    too_large: bool = False

    def last_lines(self, count: int = 12) -> str:
        """Return the last lines of stderr, or of stdout where stderr is empty."""
        text = self.stderr.strip() or self.stdout.strip()
        return "\n".join(text.splitlines()[-count:])


class Runner(Protocol):
    """Anything that can carry out a command; tests pass their own."""

    def __call__(self, command: Command, *, check: bool = True) -> Result:
        """Run the command; with ``check`` a non-zero exit raises ToolFailedError."""


class _Stream:
    """Keep the last CAPTURE_LIMIT bytes of one stream and hand on its complete lines."""

    def __init__(self, log: IO[bytes] | None, on_line: Callable[[str], None] | None) -> None:
        self.kept = bytearray()
        self.partial = b""
        self.log = log
        self.on_line = on_line

    def feed(self, chunk: bytes) -> None:
        self.kept += chunk
        if len(self.kept) > 2 * CAPTURE_LIMIT:
            del self.kept[:-CAPTURE_LIMIT]
        if self.log is not None:
            self.log.write(chunk)
            self.log.flush()
        if self.on_line is not None:
            *lines, self.partial = (self.partial + chunk).split(b"\n")
            self.partial = self.partial[-CHUNK:]
            for line in lines:
                self._hand_on(line)

    def finish(self) -> None:
        """Hand on a last line that has no newline."""
        if self.partial:
            self._hand_on(self.partial)
            self.partial = b""

    def _hand_on(self, line: bytes) -> None:
        if self.on_line is not None:
            self.on_line(line.decode("utf-8", "replace").rstrip("\r"))

    def text(self) -> str:
        return bytes(self.kept[-CAPTURE_LIMIT:]).decode("utf-8", "replace")


def _stop(process: subprocess.Popen[bytes], *, first: int, grace: float) -> None:
    """End the child's whole group: first signal, then TERM, then KILL, with a grace period between."""
    for number, patience in (
        (first, grace),
        (signal.SIGTERM, grace / 2),
        (signal.SIGKILL, 5.0),
    ):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=patience)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue  # a second Ctrl-C asks for more haste, not for a child that lives on by itself
        # grandchildren may outlive their leader; the group is ours, so nothing else can be hit
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return


def _drain(
    process: subprocess.Popen[bytes],
    out: _Stream,
    err: _Stream,
    command: Command,
) -> Ended:
    """Move bytes until both streams are closed, or the child has passed one of its limits.

    Raises KeyboardInterrupt when this process is asked to end meanwhile.  What is started after
    that is cleaning up, and goes on.
    """
    cleans_up = ASKED_TO_END.is_set()
    stdin = (command.stdin or "").encode()
    deadline = time.monotonic() + (math.inf if command.timeout is None else command.timeout)
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        if process.stdin is not None:
            selector.register(process.stdin, selectors.EVENT_WRITE, None)
        offset = 0
        while selector.get_map():
            if passed := _passed_limit(process.pid, command, deadline):
                return passed
            if ASKED_TO_END.is_set() and not cleans_up:
                raise KeyboardInterrupt
            for key, _ in selector.select(timeout=0.5):
                if key.data is None:
                    offset += _write_some(key.fd, stdin[offset:])
                    if offset >= len(stdin):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                    continue
                chunk = os.read(key.fd, CHUNK)
                if chunk:
                    key.data.feed(chunk)
                else:
                    selector.unregister(key.fileobj)
            if (
                selector.get_map()
                and process.poll() is not None
                and not selector.select(timeout=0.2)
            ):
                break  # a daemon holds the pipes open: the child itself has ended
    return "by itself"


def _passed_limit(process: int, command: Command, deadline: float) -> Ended | None:
    if time.monotonic() > deadline:
        return "at its time limit"
    with contextlib.suppress(OSError, IndexError):  # it has ended
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        if pages * resource.getpagesize() > command.memory:
            return "at its memory limit"
    return None


def _write_some(pipe: int, data: bytes) -> int:
    """Write what a ready pipe takes at once, and return how much; all of it where nobody reads any more."""
    try:
        # a pipe that is ready takes so many bytes; more may block (pipe(7))
        return os.write(pipe, data[: select.PIPE_BUF])
    except BrokenPipeError:
        return len(data)


@contextlib.contextmanager
def _guarded(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the child's whole group when envbuild itself is killed: a shell waits for that, holding the end of a pipe.

    PR_SET_PDEATHSIG would reach the child alone, and mmdebstrap for one leaves every signal to its
    own children.
    """
    argv = ("/bin/sh", "-c", GUARD, "envbuild-guard", str(process.pid))
    try:
        guard = subprocess.Popen(
            argv,
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        yield  # a machine without a shell has no builds either
        return
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            guard.communicate(b"done\n")


def _encode(word: str) -> bytes:
    """Return a word of a command as bytes: a path has the locale's, our own scripts may have more."""
    try:
        return os.fsencode(word)
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogateescape")


class LocalRunner:
    """Run commands on this machine.

    Each child leads its own process group, so that it can be ended whole.
    """

    def __call__(self, command: Command, *, check: bool = True) -> Result:
        """Run one command to its end.

        Raises HostError when the program is missing, ToolFailedError on a non-zero exit (with
        ``check``) or when the time limit ended it; KeyboardInterrupt passes through after the child
        has been ended.
        """
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(command.log.open("ab")) if command.log else None
            start = functools.partial(_start, command)
            process = without_session_keys(start) if command.foreign else start()
            if command.timeout is None or command.timeout > GUARDED_FROM:
                stack.enter_context(_guarded(process))
            out, err = _Stream(log, command.on_line), _Stream(log, command.on_line)
            ended = _follow(process, out, err, command)
        out.finish()
        err.finish()
        result = Result(
            argv=command.argv,
            code=process.returncode if process.returncode is not None else -1,
            stdout=out.text(),
            stderr=err.text(),
            seconds=time.monotonic() - started,
            timed_out=ended == "at its time limit",
            too_large=ended == "at its memory limit",
        )
        if check and (result.code != 0 or ended != "by itself"):
            raise failure(result, timeout=command.timeout)
        return result


def _start(command: Command) -> subprocess.Popen[bytes]:
    words = [_encode(word) for word in command.argv]
    try:
        process = subprocess.Popen(
            words,
            cwd=command.cwd,
            env=None if command.env is None else dict(command.env),
            stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(command, error) from error
    for kind, most in command.bounds:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            resource.prlimit(process.pid, kind, (most, most))
    return process


def _follow(
    process: subprocess.Popen[bytes], out: _Stream, err: _Stream, command: Command
) -> Ended:
    """Read what a process prints until it has ended; end it at a limit, and tell of that."""
    try:
        ended = _drain(process, out, err, command)
        if ended == "by itself":
            process.wait()
        else:
            _stop(process, first=signal.SIGTERM, grace=command.grace)
    except BaseException:
        _stop(process, first=signal.SIGINT, grace=command.grace)
        raise
    finally:
        for pipe in filter(None, (process.stdout, process.stderr, process.stdin)):
            with contextlib.suppress(OSError):
                pipe.close()
    return ended


def _not_started(command: Command, error: OSError) -> HostError:
    """Tell why a process could not be started: the folder, the program, or what the system said."""
    program = command.argv[0]
    if command.cwd is not None and not command.cwd.is_dir():
        return HostError(f"the folder to run {program} in does not exist", where=command.cwd)
    if isinstance(error, FileNotFoundError):
        return ToolMissingError(f"{program} was not found", hint="run: envbuild doctor")
    return HostError(f"{program} could not be started: {error.strerror}")


def failure(result: Result, *, timeout: float | None = None) -> ToolFailedError:
    """Turn the result of a failed command into the error that tells it."""
    name = Path(result.argv[0]).name
    if result.timed_out:
        what = (
            f"{name} was ended after {timeout:.0f} s without finishing"
            if timeout
            else f"{name} was ended"
        )
    elif result.code < 0:
        what = f"{name} was killed by signal {-result.code}"
    else:
        what = f"{name} failed with exit code {result.code}"
    lines = result.last_lines()
    return ToolFailedError.of(result, f"{what}\n{lines}" if lines else what)


def beside(argv: Texts, env: Variables, tick: Callable[[int], object], *, every: float) -> int:
    """Run a command with our own terminal, calling ``tick(pid)`` every so many seconds; return its exit code.

    Death by a signal is 128 + its number, as shells tell it.  Raises HostError when the program is
    missing; KeyboardInterrupt passes through after the child has had its time to clean up.
    """
    try:
        process = subprocess.Popen(argv, env=dict(env))
    except OSError as error:
        raise _not_started(Command(argv=argv), error) from error
    try:
        while (code := _ended(process, every)) is None:
            tick(process.pid)
    except BaseException:
        # a Ctrl-C of the terminal has reached the child too:
        # it gets its time before it is told again
        for number, patience in (
            (None, GRACE_SECONDS),
            (signal.SIGTERM, GRACE_SECONDS),
            (signal.SIGKILL, 5.0),
        ):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if number is not None:
                    process.send_signal(number)
                process.wait(timeout=patience)
                break
        raise
    return code if code >= 0 else 128 - code


def _ended(process: subprocess.Popen[bytes], patience: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=patience)
    return None


def hand_over(argv: Texts, env: Variables) -> NoReturn:
    """Replace this process by the command: its exit code, signals and terminal become the user's."""
    try:
        os.execvpe(argv[0], argv, dict(env))  # noqa: S606
    except FileNotFoundError as error:
        raise ToolMissingError(f"{argv[0]} was not found", hint="run: envbuild doctor") from error
