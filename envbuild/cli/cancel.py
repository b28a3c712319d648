"""``envbuild cancel``: end a job."""

from __future__ import annotations

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.output import json_option, print_json
from envbuild.context import Context
from envbuild.errors import HostError


@click.command("cancel")
@click.argument("jobs", metavar="ID…", shell_complete=complete_job, nargs=-1, required=True)
@json_option
@click.pass_obj
def command(context: Context, *, jobs: tuple[str, ...], as_json: bool) -> None:
    """End jobs that were submitted from this folder; a job that has ended already stays as it is."""
    rows = [
        {"job": number, "state": state} for number, state in (_cancel(job, context) for job in jobs)
    ]
    if as_json:
        print_json(rows)


def _cancel(job: str, context: Context) -> tuple[str, str]:
    """Cancel one job, say so, and return its id with "cancelled" or "ended".  Raises HostError, UsageError."""
    from envbuild.job.follow import stopped
    from envbuild.job.records import find_record, plain_id, read_receipts
    from envbuild.job.schedulers import scheduler_of
    from envbuild.job.sites import load_site
    from envbuild.job.submit import ask, missing

    record = find_record(job, context.settings.cwd)
    number = plain_id(record.id)
    receipts = read_receipts(record, context.settings.cwd)
    whole = len(receipts) >= max(1, len(record.tasks))
    if whole and not stopped(receipts):
        context.report.say(f"job {number} has ended already")
        return number, "ended"
    site = load_site(record.site, context.settings)
    argv = scheduler_of(site).cancel(record.id)
    try:
        result = ask(argv, context.settings, context.runner)
    except HostError as error:
        raise missing(site, argv, error) from error
    if result.code and whole:  # stopped, and not put back into the queue
        context.report.say(f"job {number} has ended already")
        return number, "ended"
    if result.code or result.timed_out:
        raise HostError(
            f"{argv[0]} said: {result.last_lines(3) or 'nothing'}", where=f"job {record.id}"
        )
    context.report.say(f"job {number} was cancelled")
    return number, "cancelled"
