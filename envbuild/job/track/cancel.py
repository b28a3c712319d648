"""End a job, or one task of an array, that was submitted from here."""

from __future__ import annotations

import re

from msgspec import structs

from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.job.schedulers import scheduler_of
from envbuild.job.sites.find import load_site
from envbuild.job.submit import ask_site
from envbuild.job.track.records import (
    current_id,
    find_record,
    is_stopped,
    is_whole,
    plain_id,
    read_receipts,
    save_record,
    task_number,
)
from envbuild.records import frozen_record


@frozen_record
class Cancelled:
    """What became of a job to cancel: its number, with the task if one was named, and "cancelled" or "ended"."""

    number: str
    state: str


def cancel_job(job: str, context: Context) -> Cancelled:
    """Cancel a job, or the one task that ``job`` names ("174[3]"); a job that has ended already stays as it is.

    Raises HostError, UsageError.
    """
    settings = context.settings
    record = find_record(job, settings.cwd)  # with a task named, a record of that task alone
    task = task_number(job.rpartition(":")[2])
    number = plain_id(record.id) if task is None else f"{plain_id(record.id)}[{task}]"
    receipts = read_receipts(record, settings.cwd)
    whole = is_whole(record, receipts)
    if whole and not is_stopped(receipts):
        return Cancelled(number=number, state="ended")
    site = load_site(record.site, settings)
    scheduler = scheduler_of(site)
    argv = scheduler.cancel(current_id(record, settings.cwd), task)
    result = ask_site(argv, site, context)
    # stopped and not put back into the queue, or ended at this moment
    gone = whole or re.search(scheduler.features.unknown, result.stdout + result.stderr)
    if result.code and gone:
        return Cancelled(number=number, state="ended")
    if result.code or result.timed_out:
        output = result.last_lines(3) or "nothing"
        raise HostError(f"{argv[0]} said: {output}", where=f"job {record.id}")
    if task is None:
        # a job that never started leaves no trace on some schedulers
        save_record(structs.replace(record, cancelled=True), settings.cwd)
    return Cancelled(number=number, state="cancelled")
