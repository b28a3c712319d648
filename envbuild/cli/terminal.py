"""How things look: errors, plain progress lines, and a live progress line on a terminal."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO, cast

import click

from envbuild.errors import CheckFailedError, EnvbuildError, HostError, UsageError
from envbuild.progress import SilentStage, Stage, Transfer
from envbuild.store.atomic import error_of_os
from envbuild.store.units import count_noun, human_bytes
from envbuild.toml import UNSEEN

EVERY = 5.0
"""Seconds between two plain progress lines of one download, and before the first of a stage."""
SELDOM = 60.0
"""Seconds between two plain progress lines of one long stage at most; the first come more often."""


ACTING = re.compile(rf"\x1b(?!\[[0-9;]{{0,20}}m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{UNSEEN}]")
"""Controls but tab, line end and colours; and characters that nobody sees."""


def plain_text(text: str) -> str:
    """Return a text that a terminal shows: what builds, images and servers say may be in it."""
    return ACTING.sub("\N{REPLACEMENT CHARACTER}", text)


LONG_WORD = re.compile(r"([\w.-]{60})[\w.-]{140,}")
"""A word, or a part of a path, that an error shows only the beginning of."""
MOST_SHOWN = 10_000
"""Characters of an error: what it quotes may be a megabyte."""


def show_error(error: EnvbuildError, stream: TextIO | None = None) -> None:
    """Print an error: what happened, to which value, what to do."""
    out = stream or sys.stderr
    if isinstance(error, CheckFailedError) and error.details:
        click.echo(plain_text(short_path(error.details)), file=out)
    head = click.style("envbuild: error:", fg="red", bold=True)
    text = LONG_WORD.sub(r"\1…", _shown(str(error)))
    click.echo(f"{head} {text}", file=out)
    before = click.style("what to do:", bold=True)
    for line in _shown(error.hint or "").splitlines():
        click.echo(f"  {before} {line}", file=out)
        before = " " * len("what to do:")


def _shown(text: str) -> str:
    """Return what is shown of an error: its beginning and its end, if it is very long."""
    if len(text) > MOST_SHOWN:
        half = MOST_SHOWN // 2
        text = f"{text[:half]} … {text[-half:]}"
    return plain_text(short_path(text))


ANY_NAME = re.compile(r"\[NAME(?:\|[A-Z]+)*\]|\bNAME(?:\|[A-Z]+)*\b")
"""The place of a recipe's name in a command, alone or as one of several: "[NAME|IMAGE]"."""


def name_recipe(hint: str, name: str) -> str:
    """Return a hint whose commands of ours have a recipe's name; elsewhere NAME means another."""
    commands = re.finditer(r"(?<=envbuild )[^\n;,()]*", hint)
    for found in reversed(list(commands)):
        named = ANY_NAME.sub(lambda word: word[0] if name == "NAME" else name, found[0])
        hint = hint[: found.start()] + named + hint[found.end() :]
    return hint


def short_path(text: str) -> str:
    """Return a text in which paths below the current folder are written as a user would type them."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed while we run
        return text
    if here == Path("/"):
        return text
    return re.sub(rf"(?<![\w.@:/-]){re.escape(str(here))}/(?=[\w.])", "", text)


def human_seconds(seconds: float) -> str:
    """Return a duration for people: "0.3 s", "41 s", "4 min 10 s"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


class Lines:
    """Plain lines on standard error, for logs and pipes.

    ``every``: the seconds between two lines of progress.
    """

    def __init__(self, *, verbose: int = 0, every: float = EVERY) -> None:
        self.verbose, self.every = verbose, every
        self.lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print one line."""
        with self.lock:
            click.echo(plain_text(short_path(text)), err=True)

    def detail(self, text: str) -> None:
        """Print one line when -v was given."""
        if self.verbose:
            self.say(f"  {text}")

    @contextlib.contextmanager
    def stage(self, title: str, *, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        """Print the stage's name with its seconds when it ended well, and how far it is every few seconds before.

        With -v its name is printed when it begins, too.
        """
        if self.verbose:
            self.say(f"{title} …")
        started = time.monotonic()
        count = _Count(total, unit)
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(title, started, count, ended), daemon=True)
        beat.start()
        try:
            yield count
        finally:
            ended.set()
            beat.join()
        self.say(f"{title}: {human_seconds(time.monotonic() - started)}")

    def _beat(self, title: str, started: float, count: _Count, ended: threading.Event) -> None:
        """Say how far a stage is, again and again, until it has ended."""
        pause = self.every
        while not ended.wait(pause):
            self.say(f"  {title}: {count}{human_seconds(time.monotonic() - started)} so far")
            pause = min(2 * pause, SELDOM)

    @contextlib.contextmanager
    def transfer(self, title: str, *, files: int, size: int) -> Iterator[Transfer]:
        """Print a line every few seconds with bytes, rate and the time left."""
        meter = _Meter(self, size)
        self.say(f"{title}: {count_noun(files, 'file')}, {human_bytes(size)}")
        yield meter
        self.say(f"{title}: {_transfer_text(meter.done, meter.started)}")


def _transfer_text(size: int, started: float) -> str:
    """Return what a transfer that ends now came to: "3 MB in 2.0 s (1.5 MB/s)"."""
    took = max(time.monotonic() - started, 1e-6)
    rate = human_bytes(round(size / took))
    return f"{human_bytes(size)} in {human_seconds(took)} ({rate}/s)"


class _Count:
    """How much of a stage is done: "22 %, " of a known total, else "14 pages, " or nothing."""

    def __init__(
        self, total: int | None, unit: str, on_change: Callable[[str], None] | None = None
    ) -> None:
        self.total, self.unit, self.done = total or 0, unit, 0
        self.on_change = on_change
        self.lock = threading.Lock()
        self._show()

    def expect(self, count: int) -> None:
        with self.lock:
            self.total += count
        self._show()

    def advance(self, count: int = 1) -> None:
        with self.lock:
            self.done += count
        self._show()

    def _show(self) -> None:
        if self.on_change is not None:
            self.on_change(str(self))

    def __str__(self) -> str:
        if self.total:
            return f"{min(100 * self.done // self.total, 100)} %, "
        return f"{count_noun(self.done, self.unit)}, " if self.unit and self.done else ""


class _Meter:
    def __init__(self, lines: Lines, size: int) -> None:
        self.lines, self.size = lines, size
        self.started = self.last_printed = time.monotonic()
        self.done = 0
        self.lock = threading.Lock()

    def advance(self, count: int) -> None:
        with self.lock:
            self.done += count
            now = time.monotonic()
            if now - self.last_printed < self.lines.every:
                return
            self.last_printed = now
            rate = self.done / (now - self.started)
        rest = max(self.size - self.done, 0)
        left = f", {human_seconds(rest / rate)} left" if rate and rest else ""
        share = f"{human_bytes(self.done)} of {human_bytes(self.size)}"
        self.lines.say(f"  {share}, {human_bytes(round(rate))}/s{left}")


class Pretty(Lines):
    """A live line on a terminal (rich, imported when the first stage starts)."""

    @contextlib.contextmanager
    def stage(self, title: str, *, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        """Show a spinner with the share that is done and the running seconds, then one finished line."""
        from rich import console, progress  # late: only on a terminal

        started = time.monotonic()
        columns = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
        )
        with progress.Progress(
            *columns, console=console.Console(stderr=True), transient=True
        ) as display:
            task = display.add_task(title, total=None)

            def show_share(share: str) -> None:
                display.update(task, description=f"{title}: {share}".rstrip(", :"))

            yield _Count(total, unit, show_share)
        self.say(
            f"{click.style('✓', fg='green')} {title}: {human_seconds(time.monotonic() - started)}"
        )

    @contextlib.contextmanager
    def transfer(self, title: str, *, files: int, size: int) -> Iterator[Transfer]:
        """Show a bar with bytes, rate and the time left."""
        from rich import console, progress  # late: only on a terminal

        started = time.monotonic()
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(
            *columns, console=console.Console(stderr=True), transient=True
        ) as display:
            task = display.add_task(title, total=size)

            class Bar(SilentStage):
                def advance(self, count: int = 1) -> None:
                    display.advance(task, count)

            yield Bar()
        done = click.style("✓", fg="green")
        self.say(f"{done} {title}: {count_noun(files, 'file')}, {_transfer_text(size, started)}")


def _explain_click(error: click.ClickException) -> UsageError:
    """Return click's error in the words and form of the others; what must be typed is the remedy."""
    # click lists choices one below the other, with tabs
    text = " ".join(error.format_message().split()).removesuffix(".")
    what = text[:1].lower() + text[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return UsageError(what, hint="envbuild --help")
    remedy = f"{context.command_path} --help"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        verbs = ", ".join(cast("click.Group", context.command).list_commands(context))
        return UsageError(f"{context.command_path} needs a command: {verbs}", hint=remedy)
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        words = context.command.collect_usage_pieces(context)
        typed = " ".join(word for word in words if word != "[OPTIONS]")
        remedy = f"{context.command_path} {typed}\nall options: {remedy}"
    return UsageError(what, hint=remedy)


def explain_error(error: Exception) -> EnvbuildError:
    """Return what is told of an error; raise one that nobody expects."""
    if isinstance(error, EnvbuildError):
        return error
    if isinstance(error, OSError):
        return error_of_os(error, Path(str(error.filename or ".")))
    if isinstance(error, click.ClickException):
        return _explain_click(error)
    if isinstance(error, UnicodeEncodeError):
        wrong = ascii(error.object[error.start : error.end])
        what = f"a word of the command line, or the name of a file, is no text in UTF-8: {wrong}"
        return UsageError(what, hint="rename it, or use a locale of UTF-8")
    if isinstance(error, MemoryError):
        return HostError("this machine's memory, or what is left of it to you, is not enough")
    # what Python says where the kernel allows no more threads or processes
    if "can't start new thread" not in str(error):
        raise error
    what = "this machine, or your limit of processes there, allows no more threads"
    hint = "ulimit -u shows the limit of this shell; on a cluster, work in a job"
    return HostError(what, hint=hint)
