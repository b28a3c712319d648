"""``envbuild watch``: is it on the GPU now."""

from __future__ import annotations

import time
from pathlib import Path

import click

from envbuild.check.gpu_use.nvml import Nvml
from envbuild.check.gpu_use.watch import Course, Look, find_family, find_on_cards
from envbuild.cli.options import flag
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.run import beside


@click.command("watch")
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="PID", help="Watch a process that runs already."
)
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=5.0, help="Seconds between two lines (5)."
)
@flag("--once", "Print one line and end; exit code 1 when the GPU is not used.")
@click.argument("argv", metavar="[-- CMD…]", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def command(context: Context, *, pid: int | None, every: float, once: bool, argv: Texts) -> int:
    """Print every few seconds whether a command, or a process and its children, uses the GPU.

    \b
    envbuild watch -- envbuild run NAME -- python train.py
    envbuild watch --pid 4242

    The exit code is the command's. The lines go to standard error.
    """
    if (pid is None) == (not argv):
        raise UsageError(
            "watch takes a command behind --, or --pid PID",
            hint="envbuild watch -- python train.py",
        )
    nvml, course = Nvml(), Course()
    if pid is not None:
        return _watch_process(context, nvml, pid, course, every=every, once=once)
    if once:
        raise UsageError("--once goes with --pid: a command has not begun when it is looked at")
    code = beside(
        argv,
        context.settings.environment,
        lambda child: _report_use(context, nvml, child, course),
        every=every,
    )
    context.report.say(f"watch: {course}")
    return code


def _watch_process(
    context: Context, nvml: Nvml, pid: int, course: Course, *, every: float, once: bool
) -> int:
    if not Path(f"/proc/{pid}").exists():
        raise UsageError("there is no such process on this machine", where=f"--pid {pid}")
    while Path(f"/proc/{pid}").exists():
        seen = _report_use(context, nvml, pid, course)
        if once:
            return 0 if seen.mine else 1
        time.sleep(every)
    context.report.say(f"watch: {course}")
    return 0


def _report_use(context: Context, nvml: Nvml, pid: int, course: Course) -> Look:
    seen = find_on_cards(find_family(pid), nvml.cards())
    course.add(seen)
    context.report.say(f"{time.strftime('%H:%M:%S')}  {seen}")
    if warning := course.warning():
        context.report.say(f"watch: {warning}")
    return seen
