"""``envbuild cancel``: end a job."""

from __future__ import annotations

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.context import Context
from envbuild.errors import HostError


@click.command("cancel")
@click.argument("jobs", metavar="ID…", shell_complete=complete_job, nargs=-1, required=True)
@click.pass_obj
def command(context: Context, *, jobs: tuple[str, ...]) -> None:
    """End jobs that were submitted from this folder; a job that has ended already stays as it is."""
    from envbuild.job.follow import stopped
    from envbuild.job.records import find_record, plain_id, read_receipts
    from envbuild.job.schedulers import scheduler_of
    from envbuild.job.sites import load_site
    from envbuild.job.submit import ask, missing

    for job in jobs:
        record = find_record(job, context.settings.cwd)
        receipts = read_receipts(record, context.settings.cwd)
        whole = len(receipts) >= max(1, len(record.tasks))
        if whole and not stopped(receipts):
            context.report.say(f"job {plain_id(record.id)} has ended already")
            continue
        site = load_site(record.site, context.settings)
        argv = scheduler_of(site).cancel(record.id)
        try:
            result = ask(argv, context.settings, context.runner)
        except HostError as error:
            raise missing(site, argv, error) from error
        if result.code and whole:  # stopped, and not put back into the queue
            context.report.say(f"job {plain_id(record.id)} has ended already")
            continue
        if result.code or result.timed_out:
            raise HostError(f"{argv[0]} said: {result.last_lines(3) or 'nothing'}", where=f"job {record.id}")
        context.report.say(f"job {plain_id(record.id)} was cancelled")
