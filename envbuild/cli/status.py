"""``envbuild status``: what became of the jobs submitted from this folder."""

from __future__ import annotations

import json
from typing import Any

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.output import print_table
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.job.model import Record
from envbuild.job.monitor import exit_code, is_stopped, status_of
from envbuild.job.records import find_record, load_records, plain_id, read_receipts
from envbuild.job.sites import load_site

COLUMNS = ("job", "site", "name", "submitted", "state", "detail")
LAST = 20


@click.command("status")
@click.argument("job", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def command(context: Context, *, job: str | None, as_json: bool) -> None:
    """Tell the state of one job, or of the last ones submitted from this folder.

    A job that has left its receipt has ended, whatever the scheduler says. A job without a receipt
    that the scheduler does not know is shown as unknown, not as finished.
    """
    folder = context.settings.cwd
    records = (find_record(job, folder),) if job else load_records(folder)[-LAST:]
    rows = [job_row(record, context) for record in records]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("no job was submitted from this folder")
        return
    print_table(COLUMNS, [tuple(item.values()) for item in rows])


def job_row(record: Record, context: Context) -> dict[str, Any]:
    """Return a job's state as a row of the table."""
    known = {
        "job": plain_id(record.id),
        "site": record.site,
        "name": record.name,
        "submitted": record.submitted,
    }
    receipts = read_receipts(record, context.settings.cwd)
    whole = len(receipts) >= max(1, len(record.tasks))
    state, detail = (
        ("", "") if whole and not is_stopped(receipts) else _ask_scheduler(record, context)
    )
    why = detail if state == "ended" else ""
    if whole and state not in ("queued", "running"):
        code = exit_code(receipts)
        signals = {receipt.signal for receipt in receipts if receipt.signal}
        detail = f"code {code} on {receipts[0].node}" + (
            f", signal {', '.join(sorted(signals))}" if signals else ""
        )
        reasons = {receipt.reason for receipt in receipts if receipt.reason} or {why}
        detail += "".join(f", {reason}" for reason in sorted(reasons) if reason)
        return {**known, "state": "succeeded" if code == 0 else "failed", "detail": detail}
    if record.cancelled and state == "unknown" and not receipts:
        return {**known, "state": "cancelled", "detail": "before it started"}
    if record.tasks:
        detail = (
            f"{len(receipts)} of {len(record.tasks)} tasks ended{', ' if detail else ''}{detail}"
        )
    return {**known, "state": state, "detail": detail}


def _ask_scheduler(record: Record, context: Context) -> tuple[str, str]:
    try:
        site = load_site(record.site, context.settings)
    except EnvbuildError as error:
        return "unknown", str(error)
    found = status_of(record, site, context.settings, context.runner)
    if found.stuck:
        return "stuck", found.reason
    if found.phase == "ended":
        code = f" (exit code {found.code})" if found.code is not None else ""
        return "ended", f"{found.reason or 'without a receipt'}{code}"
    return found.phase, found.reason or (f"on {found.node}" if found.node else "")
