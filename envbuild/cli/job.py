"""``envbuild job``: the script of a job, printed; and the options that ``submit`` shares with it."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli.complete import complete_image, complete_site
from envbuild.cli.enter import CommandAfterDashes
from envbuild.context import Context
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.caches import Caches
    from envbuild.job.model import Image, Intent, Job
    from envbuild.job.site import Site
    from envbuild.recipe.model import Source

_OPTIONS = (
    click.option(
        "--on",
        "--for",
        "site",
        metavar="SITE[:PARTITION]",
        shell_complete=complete_site,
        help="The cluster (envbuild site list).",
    ),
    click.option("--gpus", metavar="[TYPE:]N", help="GPUs in total."),
    click.option(
        "--nodes", type=click.IntRange(min=1), help="Nodes; left out: as few as hold the GPUs."
    ),
    click.option("--tasks", type=click.IntRange(min=1), help="Processes in total."),
    click.option("--cpus", type=click.IntRange(min=1), help="Cores per process."),
    click.option("--memory", metavar="SIZE", help="Memory per node, with its unit: 32GiB."),
    click.option("--walltime", metavar="TIME", help="With its unit: 24h, 90m, or HH:MM:SS."),
    click.option("--partition", help="Partition or queue."),
    click.option("--account", help="Account, project or group that pays."),
    click.option(
        "--trial", is_flag=True, help="A trial run without an account, where the site has them."
    ),
    click.option(
        "--array",
        metavar="FIRST-LAST[%AT-ONCE]",
        help="One task per number, which is in the scheduler's own variable.",
    ),
    click.option(
        "--each",
        type=click.Path(path_type=Path),
        help="One task per row of a CSV file; {column} in CMD is its value.",
    ),
    click.option(
        "--after", multiple=True, metavar="ID", help="Start when these jobs have succeeded."
    ),
    click.option(
        "--after-any", multiple=True, metavar="ID", help="Start when these jobs have ended."
    ),
    click.option(
        "--launcher", metavar="single|torchrun|lightning|mpi", help="Who starts the processes."
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="KEY[=VALUE]",
        help="Set a variable, or hand on yours.",
    ),
    click.option(
        "--env-file",
        type=click.Path(path_type=Path),
        help="Hand on the KEY=VALUE lines of a 0600 file.",
    ),
    click.option("--output", metavar="FILE", help="Log file, with {name}, {id}, {task}."),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="PATH",
        help="Check first that the container can read it.",
    ),
    click.option(
        "--stage",
        multiple=True,
        metavar="PATH",
        help="Copy (unpack) it to the node's own disk first.",
    ),
    click.option(
        "--bind",
        "-B",
        "binds",
        multiple=True,
        metavar="SRC[:DEST][:ro]",
        help="Bind a file or folder.",
    ),
    click.option(
        "--option",
        "options",
        multiple=True,
        metavar="TEXT",
        help="Give one option to the scheduler as it is.",
    ),
    click.option("--name", "job_name", help="Name of the job; left out: the recipe's."),
)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that describe a job, as one dictionary ``given``."""

    @functools.wraps(function)
    def with_options(*arguments: Any, **options: Any) -> Any:
        names = ("site", "each", "variables", "env_file", "binds", "job_name", *_FLAGS)
        given = {name: options.pop(name) for name in names}
        return function(*arguments, given=given, **options)

    wrapped: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_FLAGS = (
    "gpus",
    "nodes",
    "tasks",
    "cpus",
    "memory",
    "walltime",
    "partition",
    "account",
    "trial",
    "array",
    "after",
    "after_any",
    "launcher",
    "output",
    "inputs",
    "stage",
    "options",
)


@click.command("job", cls=CommandAfterDashes)
@click.argument("name", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@job_options
@click.pass_obj
def command(context: Context, *, name: str, argv: tuple[str, ...], given: dict[str, Any]) -> None:
    """Print the job script that runs CMD in the image on a cluster; nothing is submitted.

    Left out, CMD is the recipe's [run] command. The script stands alone: submit it from the project folder.
    """
    from envbuild.job.schedulers import scheduler_of
    from envbuild.job.script import render

    job, site = plan_job(context, name, argv, given)
    click.echo(render(job, site, scheduler_of(site)), nl=False)


def plan_job(
    context: Context,
    name: str,
    argv: tuple[str, ...],
    given: dict[str, Any],
    *,
    interactive: bool = False,
) -> tuple[Job, Site]:
    """Put the job together from recipe, flags and site; its handed-on variables are left to ``submit``.

    An image that is old or whose CUDA the site cannot run is told.
    """
    from envbuild.app.current import recipe_of, tell_old
    from envbuild.app.site import find_site
    from envbuild.cli.enter import find_image, parse_bind
    from envbuild.job.compose import check_visible, compose, git_commit
    from envbuild.job.intent import read_each
    from envbuild.job.submit import check_project

    settings = context.settings
    check_project(settings.cwd)
    site = find_site(given["site"], context)
    partition = (given["site"] or "").partition(":")[2]
    source = recipe_of(name, context)
    flags = {key: given[key] for key in _FLAGS}
    if partition and flags["partition"] is None:
        flags["partition"] = partition
    image = find_image(name, context)
    tell_old(image, source, context)
    intent = _intent(flags, site, image, source, context)
    if unfit := find_unfit(image, source, intent, site):
        context.report.say(f"note: {unfit}")
    words = argv or (("bash",) if interactive else _own_command(source, name))
    binds = tuple(parse_bind(text, settings.cwd) for text in given["binds"])
    job = compose(
        given["job_name"] or (source.recipe.name if source else Path(name).stem),
        words,
        intent,
        site,
        settings,
        image=_image(image, context),
        rows=read_each(settings.cwd / given["each"], words) if given["each"] else (),
        binds=binds,
        commit=git_commit(settings.cwd, context.runner),
        interactive=interactive,
    )
    job = replace(job, caches=_caches(job, image, source, given, context))
    for warning in check_visible(job, site, settings, binds):
        context.report.say(f"note: {warning} (--bind shows it)")
    if job.intent.array or job.intent.launcher != "single":
        from envbuild.job.advice import shared_sqlite

        if told := shared_sqlite(job, settings.cwd):
            context.report.say(f"note: {told}")
    return job, site


def _own_command(source: Source | None, name: str) -> tuple[str, ...]:
    if source is None or not source.recipe.run.command:
        raise UsageError(
            "which command?",
            where=name,
            hint=f"envbuild submit {shlex.quote(name)} -- python train.py",
        )
    return source.recipe.run.command


def find_unfit(image: Path, source: Source | None, intent: Intent, site: Site) -> str | None:
    """Return why a job's image computes on no GPU of the site; None where it may, or asks for none."""
    from envbuild.app.current import cuda_in
    from envbuild.job.fit import why_unfit

    cuda = cuda_in(image, source) if intent.gpus else None
    return why_unfit(cuda, site, intent.partition) if cuda else None


def refuse_unfit(image: Path, source: Source | None, intent: Intent, site: Site) -> None:
    """Raise UsageError for a job whose image computes on no GPU of the site: it would run on the CPU, or fail."""
    unfit = find_unfit(image, source, intent, site)
    if unfit is None:
        return
    hint = (
        f"envbuild base suggest --driver {site.host.driver or 'VERSION'} names bases that fit\n"
        f"or correct the site file, if the nodes are others by now: envbuild site probe --on {site.name}"
    )
    raise UsageError(unfit, where=image.name, hint=hint)


def _intent(
    flags: dict[str, Any], site: Site, image: Path, source: Source | None, context: Context
) -> Intent:
    """Join recipe and flags; where neither says how many GPUs, an image with CUDA gets one for each node."""
    from envbuild.app.current import cuda_in
    from envbuild.job.intent import Flags, make_intent
    from envbuild.recipe.model import Job as Wanted

    wanted = source.recipe.job if source else Wanted()
    intent = make_intent(wanted, Flags(**flags))
    if flags["gpus"] is not None or wanted.gpus is not None:
        return intent
    cuda = cuda_in(image, source)
    if cuda is None:
        return intent
    if not site.has_gpus:
        context.report.say(
            f"note: {image.name} has CUDA {cuda}, and {site.name} has no GPUs: the job gets none"
        )
        return intent
    gpus = intent.nodes or 1
    count = "one GPU" if gpus == 1 else f"{gpus} GPUs"
    context.report.say(
        f"the job gets {count}, as {image.name} has CUDA {cuda} (--gpus N, or gpus in [job])"
    )
    return replace(intent, gpus=gpus)


def _caches(
    job: Job, image: Path, source: Source | None, given: dict[str, Any], context: Context
) -> Caches:
    """Return what outlives the job of its HOME; variables that anybody sets are left alone."""
    from envbuild.caches import plan_caches
    from envbuild.recipe.model import Run

    run = source.recipe.run if source else Run()
    named = {text.partition("=")[0] for text in given["variables"]}
    taken = {*named, *run.environment, *job.intent.environment}
    return plan_caches(image, context.settings, wanted=run.caches, taken=taken)


def _image(path: Path, context: Context) -> Image:
    """Return the image as the job sees it: a path below the project stays relative."""
    from envbuild.base.digests import known_digest
    from envbuild.build.image.origin import locked_by
    from envbuild.job.model import Image

    if path.is_dir():
        raise UsageError(
            "a job needs an image file, not a sandbox", where=str(path), hint="envbuild make"
        )
    below = path.is_relative_to(context.settings.cwd)
    return Image(
        path=str(path.relative_to(context.settings.cwd) if below else path),
        digest=known_digest(path, context.store),
        lock=locked_by(path),
    )
