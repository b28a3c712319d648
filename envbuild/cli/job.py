"""``envbuild job``: the script of a job, printed; and the options that ``submit`` shares with it."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable
from typing import Any

import click

from envbuild.app.job.prepare import JobRequest, plan_job
from envbuild.cli.complete import complete_image
from envbuild.cli.job_lint import command as lint
from envbuild.cli.options import (
    CommandAfterDashes,
    flag,
    path_option,
    site_option,
    value_option,
    values_option,
)
from envbuild.cli.output import print_text
from envbuild.context import Context
from envbuild.job.model import Job
from envbuild.job.render.script import render
from envbuild.job.request.intent import Flags
from envbuild.job.schedulers import scheduler_of
from envbuild.job.sites.site import Site

_OPTIONS = (
    site_option("--on --for site", "The cluster (envbuild site list)."),
    value_option("--gpus", "[TYPE:]N", "GPUs in total."),
    click.option(
        "--nodes", type=click.IntRange(min=1), help="Nodes; left out: as few as hold the GPUs."
    ),
    click.option("--tasks", type=click.IntRange(min=1), help="Processes in total."),
    click.option("--cpus", type=click.IntRange(min=1), help="Cores per process."),
    value_option("--memory", "SIZE", "Memory per node, with its unit: 32GiB."),
    value_option("--walltime", "TIME", "With its unit: 24h, 90m, or HH:MM:SS."),
    click.option("--partition", help="Partition or queue."),
    click.option("--account", help="Account, project or group that pays."),
    flag("--trial", "A trial run without an account, where the site has them."),
    value_option(
        "--array",
        "FIRST-LAST[%AT-ONCE]",
        "One task per number, which is in the scheduler's own variable.",
    ),
    path_option("--each", "One task per row of a CSV file; {column} in CMD is its value."),
    values_option(
        "--grid", "NAME=V,V…", "One task per combination of the values; {NAME} in CMD is the value."
    ),
    values_option("--after", "ID", "Start when these jobs have succeeded."),
    values_option("--after-any", "ID", "Start when these jobs have ended."),
    value_option("--launcher", "single|torchrun|lightning|mpi", "Who starts the processes."),
    values_option("--env variables", "KEY[=VALUE]", "Set a variable, or hand on yours."),
    path_option("--env-file", "Hand on the KEY=VALUE lines of a 0600 file."),
    value_option("--output", "FILE", "Log file, with {name}, {id}, {task}."),
    values_option("--input inputs", "PATH", "Check first that the container can read it."),
    values_option("--stage", "PATH", "Copy (unpack) it to the node's own disk first."),
    values_option("--bind -B binds", "SRC[:DEST][:ro]", "Bind a file or folder."),
    values_option("--with packages", "PKG", "Lay a package over the image, for this job alone."),
    values_option("--option options", "TEXT", "Give one option to the scheduler as it is."),
    value_option("--warn", "TIME", "Send TERM to CMD this long before the end."),
    click.option(
        "--requeue",
        type=click.IntRange(min=1, max=1000),
        help="Go back into the queue at the end of the walltime, at most N times.",
    ),
    value_option(
        "--checkpoint",
        "NAME",
        "Name the folder in $ENVBUILD_CHECKPOINT, which the next run finds again.",
    ),
    value_option(
        "--notify",
        "CMD",
        "Run this shell line on the node when the job, or the last task, has ended.",
    ),
    click.option("--name", "job_name", help="Name of the job; left out: the recipe's."),
)
RESOURCES = ("gpus", "cpus", "memory", "walltime", "partition", "account", "trial", "options")
"""Of these, what a job of one process asks for."""
AS_GIVEN = ("argv", "site", "each", "grid", "variables", "env_file", "binds", "packages")
"""Of these, what a request has under the same name."""


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the arguments and options that describe a job, as one ``request``."""

    @functools.wraps(function)
    def with_request(*arguments: Any, **options: Any) -> Any:
        known = {field.name for field in dataclasses.fields(Flags)} & options.keys()
        flags = Flags(**{name: options.pop(name) for name in known})
        request = JobRequest(
            image=options.pop("name"),
            name=options.pop("job_name"),
            flags=flags,
            interactive=options.get("interactive", False),
            **{name: options.pop(name) for name in AS_GIVEN},
        )
        return function(*arguments, request=request, **options)

    wrapped: Callable[..., Any] = with_request
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def job_option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a verb some of these options, by the names of their parameters."""

    def collect() -> None: ...

    params: Any = collect
    for option in reversed(_OPTIONS):
        option(params)
    chosen = [param for param in params.__click_params__ if param.name in names]

    def add_options(function: Any) -> Callable[..., Any]:
        known = getattr(function, "__click_params__", [])
        function.__click_params__ = [*known, *chosen]
        wrapped: Callable[..., Any] = function
        return wrapped

    return add_options


class JobVerb(CommandAfterDashes):
    """The verb, whose first word may also be "lint"."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the words, or leave them to ``job lint``."""
        if args[:1] != ["lint"]:
            return super().make_context(info_name, args, parent, **extra)
        return lint.make_context("job lint", args[1:], parent, **extra)


@click.command("job", cls=JobVerb)
@click.argument("name", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@job_options
@click.pass_obj
def command(context: Context, *, request: JobRequest) -> None:
    """Print the job script that runs CMD in the image on a cluster; nothing is submitted.

    "envbuild job lint FILE" names the traps of a batch script that is there already.

    Left out, CMD is the recipe's [run] command. The script stands alone: submit it from the project
    folder.
    """
    job, site, _ = plan_job(request, context)
    print_text(render(job, site, scheduler_of(site)), nl=False)


def show_submission(job: Job, site: Site) -> None:
    """Print what would be called, and the script."""
    scheduler = scheduler_of(site)
    verb = scheduler.interactive if job.interactive else scheduler.submit
    print_text(f"# {shlex.join(verb('SCRIPT', job, site))}")
    print_text(render(job, site, scheduler), nl=False)
