"""``envbuild submit``: hand a job to the cluster, wait for it, or sit down on one of its nodes."""

from __future__ import annotations

import os

import click

from envbuild.app.image import find_image, refuse_old_image
from envbuild.app.job.again import plan_again
from envbuild.app.job.prepare import JobRequest, hand_variables, plan_job, refuse_unfit
from envbuild.app.site import find_job_site
from envbuild.cli.complete import complete_job
from envbuild.cli.follow import follow_job
from envbuild.cli.job import job_options, show_submission
from envbuild.cli.options import CommandAfterDashes, flag, image_argument, value_option
from envbuild.cli.output import print_result
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.model import Job
from envbuild.job.preflight import check_client, check_predecessors
from envbuild.job.schedulers import scheduler_of
from envbuild.job.sites.site import Site
from envbuild.job.submit import (
    client_environment,
    log_sizes,
    make_log_folder,
    place_client,
    submit,
    write_script,
)
from envbuild.job.track.records import log_files, plain_id
from envbuild.run import hand_over


@click.command("submit", cls=CommandAfterDashes)
@image_argument
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@job_options
@flag("--wait", "Print the log until the job ends; the exit code is the job's.")
@flag("--interactive", "Open a shell, or run CMD, in the image on a node, in this terminal.")
@value_option(
    "--again", "ID", "Submit again what failed: tasks of an array, or the job.", complete_job
)
@flag("--stale", "Submit an image that is older than the recipe's lock.")
@flag("--dry-run", "Print the script and the command that submits it; submit nothing.")
@flag("--json as_json", "Print the submitted job as JSON.")
@click.pass_obj
def command(
    context: Context,
    *,
    request: JobRequest,
    wait: bool,
    interactive: bool,
    again: str | None,
    stale: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Submit a job that runs CMD in the image on a cluster.

    \b
    envbuild submit keras-bert --on amane --walltime 1h -- python train.py

    The job writes a log into ./logs and, at its end, a receipt into .envbuild/jobs: exit code and
    times. With --wait the exit code is the job's, and 125 when envbuild itself failed; Ctrl-C then
    ends the waiting, not the job.
    """
    if wait and interactive:
        raise UsageError("--wait and --interactive cannot be used together", where="--interactive")
    if as_json and (wait or interactive or dry_run):
        raise UsageError(
            "--json prints the job's id and files; it does not go with --wait, --interactive or --dry-run"
        )
    if again is not None:
        repeated = plan_again(again, request, context)
        if repeated is None:
            context.report.say(f"nothing of job {again} has failed")
            return 0
        job, site, found = repeated
    else:
        if request.site:  # a wrong one is told before an image is asked for
            find_job_site(request.site, context)
        if not stale:
            refuse_old_image(find_image(request.image, context), "--stale submits it as it is")
        job, site, found = plan_job(request, context)
    if found is not None:
        refuse_unfit(found, job.intent, site)
    if dry_run:
        show_submission(job, site)
        return 0
    check_client(site, context)
    job = check_predecessors(job, site, context)
    job, key = hand_variables(job, request, context)
    if interactive:
        _replace_by_client(job, site, context, key)
    return _submit(job, site, context, key, wait=wait, as_json=as_json)


def _submit(job: Job, site: Site, context: Context, key: str, *, wait: bool, as_json: bool) -> int:
    """Submit a job, say how to follow it, and with ``wait`` return its exit code."""
    settings = context.settings
    before = log_sizes(job, settings)
    record = submit(job, site, context, key=key)
    number = plain_id(record.id)
    if wait:
        context.report.say(f"submitted job {number} to {site.name}")
        return follow_job(context, record, site, before=before)
    logs = [str(path) for path in log_files(record, settings.cwd)]
    found = {"job": number, "site": site.name, "name": record.name, "logs": logs}
    print_result(found, number, as_json=as_json)
    follow, cancel = f"envbuild logs {number} -f", f"envbuild cancel {number}"
    context.report.say(f"submitted job {number} to {site.name}: {follow}, {cancel}")
    return 0


def _replace_by_client(job: Job, site: Site, context: Context, key: str) -> None:
    """Replace this process by the scheduler's interactive client."""
    settings = context.settings
    make_log_folder(job, settings)
    script = write_script(job, site, settings, key)
    scheduler = scheduler_of(site)
    argv, folder = place_client(scheduler.interactive(str(script), job, site), site, settings)
    os.chdir(folder)
    terminal = {"TERM": settings.environment.get("TERM", "dumb")}
    hand_over(argv, {**client_environment(settings.environment), **terminal})
