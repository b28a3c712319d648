"""What became of every task of a submission: parameters, state, receipt, reported values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from envbuild.context import Context
from envbuild.job.model import Receipt, Record, ResourceUse
from envbuild.job.sites.find import load_site
from envbuild.job.track.monitor import status_of
from envbuild.job.track.records import (
    list_receipts,
    load_records,
    parse_time,
    plain_id,
    read_plain,
    result_file,
)
from envbuild.records import frozen_record, replace

MOST_BYTES = 100_000
"""Of a file of results; a larger one is no table's row."""
Value = str | int | float | bool | None


@frozen_record
class TaskResult:
    """One task: the last job that ran it, and how often it was submitted.

    ``number`` is that of the first submission, None for a job that is no array.  ``state`` is
    succeeded or failed by the receipt, "lost" where the job is over without one, else the word of
    the scheduler: queued, running, unknown.
    """

    job: str
    number: int | None
    parameters: dict[str, str]
    state: str
    receipt: Receipt | None
    values: dict[str, Value]
    attempts: int = 1

    @property
    def failed(self) -> bool:
        """Whether the task is over, and did not succeed."""
        return self.state in ("failed", "lost")


def find_origin(record: Record, records: Sequence[Record]) -> Record:
    """Return the first submission, whose tasks this one repeats; else the record itself."""
    origin = record.job.origin if record.job else ""
    known = (item for item in records if origin and _key(item) == origin)
    return next(known, record)


def find_repetitions(record: Record, records: Sequence[Record]) -> list[Record]:
    """Return those of ``records`` that repeat tasks of a first one, oldest first."""
    key = _key(record)
    return [item for item in records if key and item.job and item.job.origin == key]


def collect_results(record: Record, context: Context) -> tuple[TaskResult, ...]:
    """Return every task of a first submission as its last repetition left it, in their order."""
    found = {task.number: task for task in _tasks_of(record, context)}
    # oldest first: what a repetition says of a task takes the place of what was there
    for again in find_repetitions(record, load_records(context.settings.cwd)):
        for task in _tasks_of(again, context):
            before = found.get(task.number)
            if before is not None:
                found[task.number] = replace(
                    task, parameters=before.parameters, attempts=before.attempts + 1
                )
    return tuple(found.values())


def _key(record: Record) -> str:
    return record.job.key or "" if record.job else ""


def _tasks_of(record: Record, context: Context) -> list[TaskResult]:
    """Return the tasks of one submission; the scheduler is asked where a receipt is missing."""
    project = context.settings.cwd
    receipts = list_receipts(record, project)
    open_word = ""
    if any(receipt is None or receipt.signal for receipt in receipts):
        open_word = _ask_for_word(record, context)
    numbers: tuple[int | None, ...] = record.tasks or (None,)
    job = record.job
    repeats, table = (job.repeats, job.table) if job else ((), None)
    every = job.intent.array.numbers if job and job.intent.array else numbers
    found = []
    for task, receipt in zip(numbers, receipts, strict=True):
        index = every.index(task)  # type: ignore[arg-type]  # a record may be of one task alone
        parameters = dict(zip(table.names, table.rows[index], strict=True)) if table else {}
        result = TaskResult(
            job=plain_id(record.id),
            number=repeats[index] if repeats else task,
            parameters=parameters,
            state=_state(receipt, open_word),
            receipt=receipt,
            values=_read_values(result_file(record, project, task)),
        )
        found.append(result)
    return found


def _state(receipt: Receipt | None, open_word: str) -> str:
    """Return a task's word; one that a signal stopped may have been put back into the queue."""
    if receipt is None or (receipt.signal and open_word in ("queued", "running")):
        return open_word
    return "failed" if receipt.code else "succeeded"


def _ask_for_word(record: Record, context: Context) -> str:
    site = load_site(record.site, context.settings)
    status = status_of(record, site, context)
    if status.phase in ("queued", "running"):
        return status.phase
    return "lost" if status.answered else "unknown"


def _read_values(path: Path) -> dict[str, Value]:
    """Return the flat JSON object that a task wrote for the table; anything else counts as nothing."""
    try:
        data = json.loads(read_plain(path)[:MOST_BYTES])
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        key: value
        for key, value in data.items()
        if key.isprintable() and isinstance(value, (str, int, float, bool, type(None)))
    }


def result_row(task: TaskResult) -> dict[str, Value]:
    """Return a task as a row of the table."""
    receipt = task.receipt
    row: dict[str, Value] = {"job": task.job}
    if task.number is not None:
        row["task"] = task.number
    row |= task.parameters
    row |= {"state": task.state, "code": receipt.code if receipt else None}
    row |= {"seconds": _seconds(receipt), "node": receipt.node if receipt else None}
    row |= _use_columns(receipt.use if receipt else None)
    if task.attempts > 1:
        row["attempts"] = task.attempts
    return row | {key: value for key, value in task.values.items() if key not in row}


def _seconds(receipt: Receipt | None) -> int | None:
    if receipt is None:
        return None
    try:
        began, ended = map(parse_time, (receipt.started, receipt.ended))
    except ValueError:
        return None
    return int((ended - began).total_seconds())


def _use_columns(use: ResourceUse | None) -> dict[str, Value]:
    if use is None:
        return {}
    row: dict[str, Value] = {"cores": use.cores, "memory-gib": _gibibytes(use.memory)}
    if use.gpu_busy is not None:
        row |= {"gpu-busy": use.gpu_busy, "gpu-memory-gib": _gibibytes(use.gpu_memory)}
    return row


def _gibibytes(size: int) -> float:
    return round(size / 2**30, 2)
