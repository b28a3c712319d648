"""``envbuild status``: what became of the jobs submitted from this folder."""

from __future__ import annotations

import csv
import re
import sys
from itertools import chain

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.options import flag
from envbuild.cli.output import print_json, print_rows, print_table
from envbuild.context import Context
from envbuild.job.model import Record
from envbuild.job.track.records import find_job, load_records, plain_id
from envbuild.job.track.results import collect_results, find_origin, result_row
from envbuild.job.track.state import find_state
from envbuild.names import Texts
from envbuild.store.units import as_printable

FORMULA = re.compile(r"\A(?=[=@\t\r]|[+-](?![\d.]|inf|nan))")
COLUMNS = ("job", "site", "name", "submitted", "state", "detail")
LAST = 20


@click.command("status")
@click.argument("job", metavar="[ID|NAME]", required=False, shell_complete=complete_job)
@flag(
    "--table as_table",
    "One row for each task: parameters, state, use, what it wrote to $ENVBUILD_RESULT.",
)
@flag("--csv as_csv", "Print that table as CSV.")
@flag("--json as_json", "Print as JSON.")
@click.pass_obj
def command(
    context: Context, *, job: str | None, as_table: bool, as_csv: bool, as_json: bool
) -> None:
    """Show the state of one job, or of the last ones submitted from this folder.

    A job writes a receipt at its end. So a job with a receipt has ended, whatever the scheduler
    says. A job without one that the scheduler does not know is shown as unknown, not as ended.
    """
    folder = context.settings.cwd
    if as_table or as_csv:
        record = find_job(job, folder)
        _print_results(record, context, as_csv=as_csv, as_json=as_json)
        return
    records = (find_job(job, folder),) if job else load_records(folder)[-LAST:]
    rows = [_state_row(record, context) for record in records]
    print_rows(COLUMNS, rows, as_json=as_json, none="no job was submitted from this folder")


def _print_results(record: Record, context: Context, *, as_csv: bool, as_json: bool) -> None:
    """Print every task of a submission, with its repetitions."""
    first = find_origin(record, load_records(context.settings.cwd))
    rows = [result_row(task) for task in collect_results(first, context)]
    if as_json:
        print_json(rows)
        return
    columns = tuple(dict.fromkeys(chain.from_iterable(rows)))
    table = [tuple(_cell(item.get(name)) for name in columns) for item in rows]
    if not as_csv:
        print_table(columns, table)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(map(_without_formula, row) for row in (columns, *table))


def _without_formula(cell: str) -> str:
    """Mark a text of a job that a spreadsheet would take for a formula."""
    return FORMULA.sub("'", cell)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return as_printable(text)


def _state_row(record: Record, context: Context) -> Texts:
    state = find_state(record, context)
    job = plain_id(record.id)
    return (job, record.site, record.name, record.submitted, state.word, state.detail)
