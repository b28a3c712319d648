"""``envbuild cancel``: end a job."""

from __future__ import annotations

from collections.abc import Sequence

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.output import json_option, print_json
from envbuild.context import Context
from envbuild.job.track.cancel import cancel_job


@click.command("cancel")
@click.argument("jobs", metavar="ID…", shell_complete=complete_job, nargs=-1, required=True)
@json_option
@click.pass_obj
def command(context: Context, *, jobs: Sequence[str], as_json: bool) -> None:
    """End jobs that were submitted from this folder; a job that has ended already stays as it is."""
    rows = []
    for job in jobs:
        done = cancel_job(job, context)
        what = "was cancelled" if done.state == "cancelled" else "has ended already"
        context.report.say(f"job {done.number} {what}")
        rows.append({"job": done.number, "state": done.state})
    if as_json:
        print_json(rows)
