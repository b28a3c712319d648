"""Follow the log of a job to its end: for ``submit --wait``, ``logs -f``, ``check --on`` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from envbuild.context import Context
from envbuild.errors import INTERRUPTED
from envbuild.job.model import Record
from envbuild.job.sites.site import Site
from envbuild.job.track.monitor import exit_code, wait
from envbuild.job.track.records import log_files, plain_id
from envbuild.job.track.tail import LogTail


def follow_job(
    context: Context, record: Record, site: Site, *, before: Mapping[Path, int] | None = None
) -> int:
    """Follow a job's log to its end and return its exit code; Ctrl-C says how to go on and leaves the job alone."""
    tail = LogTail(
        log_files(record, context.settings.cwd),
        lambda text: click.echo(text, nl=False),
        before=before,
    )
    try:
        receipts = wait(record, site, context, tail=tail)
    except KeyboardInterrupt:
        number = plain_id(record.id)
        click.echo(
            f"\nenvbuild: job {number} goes on. Follow it again: envbuild logs {number} -f\n"
            f"          end it: envbuild cancel {number}",
            err=True,
        )
        return INTERRUPTED
    for receipt in receipts:
        task = f" task {receipt.task}" if receipt.task else ""
        ended = f", after signal {receipt.signal}" if receipt.signal else ""
        context.report.say(
            f"job {receipt.job}{task} ended with code {receipt.code} on {receipt.node}{ended}"
        )
    return exit_code(receipts)
