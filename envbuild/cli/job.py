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
    value_option("--gpus", "[TYPE:]N", "Number of GPUs in total: 1, or a100:2."),
    click.option(
        "--nodes",
        type=click.IntRange(min=1),
        help="Number of nodes (default: as few as have the GPUs).",
    ),
    click.option("--tasks", type=click.IntRange(min=1), help="Number of processes in total."),
    click.option("--cpus", type=click.IntRange(min=1), help="Number of cores for each process."),
    value_option("--memory", "SIZE", "Memory of each node, with its unit: 32GiB."),
    value_option("--walltime", "TIME", "The longest time of the job: 24h, 90m, HH:MM:SS."),
    click.option("--partition", help="The partition or queue."),
    click.option("--account", help="The account, project or group that pays."),
    flag("--trial", "Run without an account, at sites that offer trial runs."),
    value_option(
        "--array",
        "FIRST-LAST[%AT-ONCE]",
        "One task for each number; the task finds it in the scheduler's variable.",
    ),
    path_option("--each", "One task for each row of a CSV file; {column} in CMD is its value."),
    values_option(
        "--grid", "NAME=V,V…", "One task for each combination; {NAME} in CMD is the value."
    ),
    values_option("--after", "ID", "Start after these jobs have succeeded."),
    values_option("--after-any", "ID", "Start after these jobs have ended."),
    value_option("--launcher", "single|torchrun|lightning|mpi", "What starts the processes."),
    values_option("--env variables", "KEY[=VALUE]", "Set a variable, or pass on your own."),
    path_option("--env-file", "Set the KEY=VALUE lines of a file that only you can read."),
    value_option("--output", "FILE", "The log file; {name}, {id} and {task} become their values."),
    values_option("--input inputs", "PATH", "Check first that the container can read this path."),
    values_option("--stage", "PATH", "First copy this to the node's own disk; unpack archives."),
    values_option("--bind -B binds", "SRC[:DEST][:ro]", "Show a file or folder inside, at DEST."),
    values_option("--with packages", "PKG", "Add a package to the image, for this job only."),
    values_option("--option options", "TEXT", "Pass this option to the scheduler, unchanged."),
    value_option("--warn", "TIME", "Send TERM to CMD this long before its walltime ends."),
    click.option(
        "--requeue",
        type=click.IntRange(min=1, max=1000),
        help="Queue the job again when its walltime ends, at most N times.",
    ),
    value_option(
        "--checkpoint",
        "NAME",
        "Name the folder $ENVBUILD_CHECKPOINT, which the next run finds again.",
    ),
    value_option(
        "--notify",
        "CMD",
        "Run this shell line on the node when the job, or its last task, has ended.",
    ),
    click.option("--name", "job_name", help="The name of the job (default: the recipe's)."),
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


class _JobVerb(CommandAfterDashes):
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


@click.command("job", cls=_JobVerb)
@click.argument("name", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@job_options
@click.pass_obj
def command(context: Context, *, request: JobRequest) -> None:
    """Print the job script that runs CMD in the image on a cluster; nothing is submitted.

    "envbuild job lint FILE" finds mistakes in a batch script of yours.

    Without CMD, the job runs the recipe's [run] command. The script needs no envbuild: submit it
    from the project folder.
    """
    job, site, _ = plan_job(request, context)
    print_text(render(job, site, scheduler_of(site)), nl=False)


def show_submission(job: Job, site: Site) -> None:
    """Print what would be called, and the script."""
    scheduler = scheduler_of(site)
    verb = scheduler.interactive if job.interactive else scheduler.submit
    print_text(f"# {shlex.join(verb('SCRIPT', job, site))}")
    print_text(render(job, site, scheduler), nl=False)
