"""``envbuild logs``: what a job has written so far."""

from __future__ import annotations

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.follow import follow_job
from envbuild.cli.options import flag
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.sites.find import load_site
from envbuild.job.track.records import find_job, log_files, plain_id
from envbuild.job.track.tail import LogTail


@click.command("logs")
@click.argument("job", metavar="[ID|NAME]", required=False, shell_complete=complete_job)
@flag("-f --follow go_on", "Print new lines until the job ends; the exit code is the job's.")
@click.pass_obj
def command(context: Context, *, job: str | None, go_on: bool) -> int:
    """Print the log of a job that was submitted from this folder.

    NAME is the last job of a recipe. Without both it is the last job.
    """
    folder = context.settings.cwd
    record = find_job(job, folder)
    job = job or plain_id(record.id)
    if go_on:
        return follow_job(context, record, load_site(record.site, context.settings))
    found = [path for path in log_files(record, folder) if path.is_file()]
    if not found:
        hint = f"envbuild status {job}"
        raise UsageError("the job has written nothing yet", where=job, hint=hint)
    LogTail(tuple(found), lambda text: click.echo(text, nl=False)).move()
    return 0
