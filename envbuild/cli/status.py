"""``envbuild status``: what became of the jobs submitted from this folder."""

from __future__ import annotations

import json
from typing import Any

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.output import print_table
from envbuild.context import Context
from envbuild.job.model import Record
from envbuild.job.records import find_record, load_records, plain_id
from envbuild.job.state import find_state

COLUMNS = ("job", "site", "name", "submitted", "state", "detail")
LAST = 20


@click.command("status")
@click.argument("job", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def command(context: Context, *, job: str | None, as_json: bool) -> None:
    """Tell the state of one job, or of the last ones submitted from this folder.

    A job that has left its receipt has ended, whatever the scheduler says. A job without a receipt that the scheduler
    does not know is shown as unknown, not as finished.
    """
    folder = context.settings.cwd
    records = (find_record(job, folder),) if job else load_records(folder)[-LAST:]
    rows = [row(record, context) for record in records]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("no job was submitted from this folder")
        return
    print_table(COLUMNS, [tuple(item.values()) for item in rows])


def row(record: Record, context: Context) -> dict[str, Any]:
    """Return a job's state as a row of the table."""
    state = find_state(record, context)
    return {
        "job": plain_id(record.id),
        "site": record.site,
        "name": record.name,
        "submitted": record.submitted,
        "state": state.word,
        "detail": state.detail,
    }
