"""``envbuild submit``: hand a job to the cluster, wait for it, or sit down on one of its nodes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli.complete import complete_image
from envbuild.cli.enter import CommandAfterDashes, find_image
from envbuild.cli.job import job_options, plan_job, refuse_unfit
from envbuild.cli.output import print_json
from envbuild.context import Context
from envbuild.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from envbuild.job.model import Job, Receipt, Record
    from envbuild.job.site import Site


@click.command("submit", cls=CommandAfterDashes)
@click.argument("name", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@job_options
@click.option("--wait", is_flag=True, help="Follow the log, and end with the job's exit code.")
@click.option(
    "--interactive",
    is_flag=True,
    help="Open a shell (or CMD) in the image on a node, with this terminal.",
)
@click.option(
    "--stale", is_flag=True, help="Submit an image that is not of the recipe's lock of today."
)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be run, and the script; submit nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the submitted job as JSON.")
@click.pass_obj
def command(
    context: Context,
    *,
    name: str,
    argv: tuple[str, ...],
    given: dict[str, Any],
    wait: bool,
    interactive: bool,
    stale: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Submit a job that runs CMD in the image on a cluster.

    The log folder is made first; the job writes its log and, at its end, a receipt beside it. With --wait the exit
    code is the job's, 125 when envbuild itself failed; Ctrl-C leaves the job alone.
    """
    from envbuild.app.current import recipe_of, refuse_old
    from envbuild.job.before import check_client, check_predecessors

    if wait and interactive:
        raise UsageError("--wait and --interactive exclude each other", where="--interactive")
    if as_json and (wait or interactive or dry_run):
        raise UsageError(
            "--json prints the job's id and files; it does not go with --wait, --interactive or --dry-run"
        )
    image, source = find_image(name, context), recipe_of(name, context)
    if not stale:
        refuse_old(image, source)
    job, site = plan_job(context, name, argv, given, interactive=interactive)
    refuse_unfit(image, source, job.intent, site)
    if dry_run:
        _show(job, site)
        return 0
    check_client(site, context.settings, context.runner)
    check_predecessors(job, site, context.settings, context.runner)
    job, key = _with_variables(job, context, given)
    if interactive:
        _sit_down(job, site, context, key)
    return hand_in(context, job, site, key=key, wait=wait, as_json=as_json)


def hand_in(
    context: Context,
    job: Job,
    site: Site,
    *,
    key: str,
    wait: bool,
    purpose: str = "command",
    subject: str = "",
    as_json: bool = False,
) -> int:
    """Submit a job, say how to follow it, and with ``wait`` return its exit code."""
    from envbuild.job.records import log_files, plain_id
    from envbuild.job.submit import log_sizes, submit

    before = log_sizes(job, context.settings)
    record = submit(
        job, site, context.settings, context.runner, key=key, purpose=purpose, subject=subject
    )
    number = plain_id(record.id)
    if not wait:
        if as_json:
            logs = [str(path) for path in log_files(record, context.settings.cwd)]
            print_json({"job": number, "site": site.name, "name": record.name, "logs": logs})
        else:
            click.echo(f"{number}")
        context.report.say(
            f"submitted job {number} to {site.name}: envbuild logs {number} -f, envbuild cancel {number}"
        )
        return 0
    context.report.say(f"submitted job {number} to {site.name}")
    return follow(context, record, site, before=before)


def follow(
    context: Context, record: Record, site: Site, *, before: Mapping[Path, int] | None = None
) -> int:
    """Follow a job's log to its end and return its exit code; Ctrl-C says how to go on and leaves the job alone."""
    from envbuild.job.follow import Tail, exit_code, wait
    from envbuild.job.records import log_files, plain_id

    tail = Tail(
        log_files(record, context.settings.cwd),
        lambda text: click.echo(text, nl=False),
        before=before,
    )
    try:
        receipts = wait(
            record, site, context.settings, context.runner, tail=tail, say=context.report.say
        )
    except KeyboardInterrupt:
        number = plain_id(record.id)
        click.echo(
            f"\nenvbuild: job {number} goes on. Follow it again: envbuild logs {number} -f\n"
            f"          end it: envbuild cancel {number}",
            err=True,
        )
        return INTERRUPTED
    _tell(receipts, context)
    return exit_code(receipts)


def _tell(receipts: tuple[Receipt, ...], context: Context) -> None:
    for receipt in receipts:
        task = f" task {receipt.task}" if receipt.task else ""
        ended = f", after signal {receipt.signal}" if receipt.signal else ""
        context.report.say(
            f"job {receipt.job}{task} ended with code {receipt.code} on {receipt.node}{ended}"
        )


def _with_variables(job: Job, context: Context, given: dict[str, Any]) -> tuple[Job, str]:
    """Write the handed-on variables where only their owner can read them, and tell the job the file."""
    from envbuild.cli.enter import parse_variables
    from envbuild.job.compose import collect, read_env_file
    from envbuild.job.submit import new_key, write_secrets

    settings = context.settings
    from_file = read_env_file(settings.cwd / given["env_file"]) if given["env_file"] else {}
    named = parse_variables(given["variables"], settings.environment)
    values = collect(job.intent.environment, {**from_file, **named}, settings.environment)
    key = new_key(job.name)
    return replace(job, secrets=write_secrets(values, settings, key)), key


def _sit_down(job: Job, site: Site, context: Context, key: str) -> None:
    """Replace this process by the scheduler's interactive client."""
    from envbuild.job.schedulers import scheduler_of
    from envbuild.job.submit import client_environment, make_log_folder, write_script
    from envbuild.run import hand_over

    settings = context.settings
    make_log_folder(job, settings)
    script = write_script(job, site, settings, key)
    scheduler = scheduler_of(site)
    argv = scheduler.interactive(str(script), job, site)
    if scheduler.title == "PBS":
        context.report.say(f"on the node, type: bash {shlex.quote(str(script))}")
    terminal = {"TERM": settings.environment.get("TERM", "dumb")}
    hand_over(argv, {**client_environment(settings.environment), **terminal})


def _show(job: Job, site: Site) -> None:
    from envbuild.job.schedulers import scheduler_of
    from envbuild.job.script import render

    scheduler = scheduler_of(site)
    verb = scheduler.interactive if job.interactive else scheduler.submit
    click.echo(f"# {shlex.join(verb('SCRIPT', job, site))}")
    click.echo(render(job, site, scheduler), nl=False)
