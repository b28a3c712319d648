"""Watch a job: its receipt says how it ended, the scheduler whether it waits, runs or is gone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs

from envbuild.context import Context
from envbuild.errors import HostError, ToolMissingError
from envbuild.job.model import Receipt, Record, Status
from envbuild.job.schedulers import features_of, scheduler_of
from envbuild.job.schedulers.protocol import StateQuestion
from envbuild.job.sites.site import Site
from envbuild.job.submit import ask
from envbuild.job.track.records import current_id, log_files, plain_id, read_receipt, receipt_files
from envbuild.job.track.tail import LogTail, list_sizes
from envbuild.records import frozen_record, replace

GRACE = 60.0
"""Seconds in which a job that the scheduler does not know, or that has ended, may still hand in its
receipt."""
KILLED_GRACE = 5.0
"""The same for a job of which the scheduler says that it was killed: it leaves none."""
FIRST, LAST = 0.5, 30.0
"""Seconds between two questions to the scheduler: the first, and the longest as it backs off."""
SETTLED = 2.0
"""Seconds for which a stopped job must be unknown: one that is put back into the queue is unknown
for a moment."""
LOOK, LOOK_PER_TASK, LONGEST_LOOK = 0.3, 0.005, 10.0
"""Seconds between two looks at logs and receipts: they cost the scheduler nothing, and the file
system little."""
EVIDENCE = re.compile(
    r"[Ee]xceeded (?:job |step )?memory limit|oom[-_]kill|Out [Oo]f [Mm]emory|job killed: |"
    r"No space left on device|Disk quota exceeded|DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)"
)
"""What schedulers, the kernel and tools write into a job's log about its end."""
MOST_NAMED = 5
"""Tasks of an array that one message names."""
TAIL = 4000
"""Bytes at the end of a log that are looked through for it."""


@frozen_record
class Clock:
    """Time, as a parameter for tests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def status_of(record: Record, site: Site, context: Context) -> Status:
    """Ask the scheduler about a job; "unknown" is what it is, and never means that the job has ended.

    ``answered`` is False where the scheduler itself could not be asked: then nobody knows anything.
    """
    silence, reason = "", ""
    record = structs.replace(record, id=current_id(record, context.settings.cwd))
    for number, question in enumerate(scheduler_of(site).questions(record.id)):
        found, failure = _answer(question, record, site, context)
        if failure and number == 0:
            silence = failure
        if found is None:
            continue
        if found.phase == "unknown":
            # of the clients that are not there, only the first matters
            reason = found.reason if found.answered or number == 0 else reason
            continue
        why = question.why if found.phase == "queued" else None
        better = _answer(why, record, site, context)[0] if why else None
        return replace(found, reason=better.reason) if better else found
    if silence:
        text = f"the scheduler does not answer: {silence}"
        return Status(phase="unknown", reason=text, answered=False)
    return Status(phase="unknown", reason=reason or "the scheduler does not know it")


def _answer(
    question: StateQuestion, record: Record, site: Site, context: Context
) -> tuple[Status | None, str]:
    """Ask one question; return what it says of the job, and why there is no answer where there is none.

    A client that fails with other words than that it knows no such job says nothing about it.
    """
    try:
        result = ask(question.argv, context, patience=30)
    except ToolMissingError as error:
        return Status(phase="unknown", reason=error.what, answered=False), ""
    except HostError as error:
        return None, error.what
    if result.timed_out:
        return None, f"{question.argv[0]} hangs"
    found = question.read(result, record.id)
    if found is not None or result.code == 0:
        return found, ""
    output = f"{result.stderr}\n{result.stdout}"
    if re.search(features_of(site).unknown, output):
        return None, ""
    last = result.last_lines(1) or "nothing"
    return None, f"{question.argv[0]} said (exit code {result.code}): {last}"


class _Receipts:
    """The receipts of a job as they come: each is read once, but those of a stopped task, which may run again."""

    def __init__(self, record: Record, project: Path) -> None:
        self.logs = dict(
            zip(receipt_files(record, project), log_files(record, project), strict=True)
        )
        self.final: dict[Path, Receipt] = {}
        self.stopped: dict[Path, Receipt] = {}

    def look(self) -> list[Path]:
        """Read what is new.

        Return the logs of tasks that have ended for good since the last look.
        """
        waited = set(self.logs) - set(self.final)
        self.stopped = {}
        ended = []
        for path in list_sizes(waited):
            receipt = read_receipt(path)
            if receipt is None:
                continue
            if receipt.signal:
                self.stopped[path] = receipt
                continue
            self.final[path] = receipt
            ended.append(self.logs[path])
        return ended

    @property
    def all(self) -> tuple[Receipt, ...]:
        """The receipts in the order of the tasks."""
        found = {**self.final, **self.stopped}
        return tuple(found[path] for path in self.logs if path in found)

    @property
    def whole(self) -> bool:
        """Whether every task has left one."""
        return len(self.final) + len(self.stopped) >= len(self.logs)


def wait(
    record: Record,
    site: Site,
    context: Context,
    *,
    tail: LogTail,
    clock: Clock | None = None,
) -> tuple[Receipt, ...]:
    """Follow the log until every task has written its receipt, and return these.

    A scheduler that does not answer is waited for: nothing is known of the job then.  Raises
    HostError for a job that can never start, that ended without a receipt (killed, cancelled, node
    lost), or that the scheduler has lost; the job itself is left alone whatever happens here.
    """
    hand, project, report = clock or Clock(), context.settings.cwd, context.report
    receipts = _Receipts(record, project)
    look = min(LONGEST_LOOK, max(LOOK, len(record.tasks) * LOOK_PER_TASK))
    shown, pause, due, halted = "", FIRST, hand.now(), False
    gone_since: float | None = None
    while True:
        over = receipts.look()
        tail.move()
        tail.close(over, hand.now())
        if receipts.whole and not receipts.stopped:
            _read_to_the_end(tail, (), hand)
            return receipts.all
        if receipts.whole and not halted:
            # ask at once: a signal has ended a task,
            # and only the scheduler knows whether it will run again
            halted, pause, due = True, FIRST, hand.now()
        if hand.now() < due:
            hand.sleep(look)
            continue
        status = status_of(record, site, context)
        # a scheduler serves all users of a site: it is asked less and less often
        due, pause = hand.now() + pause, min(LAST, pause * 1.5)
        if (line := _line(status)) != shown:
            shown = line
            report.say(f"job {plain_id(record.id)} {line}")
        _refuse_stuck(record, site, status)
        if status.phase not in ("ended", "unknown") or not status.answered:
            gone_since = None
            continue
        # over for the scheduler; the receipt may still be on its way through the file system
        gone_since = hand.now() if gone_since is None else gone_since
        gone = hand.now() - gone_since
        receipts.look()  # a second run may have ended since the first look
        settled = gone >= SETTLED or not receipts.stopped
        if receipts.whole and settled:
            _read_to_the_end(tail, tuple(receipts.logs.values()), hand)
            if receipts.stopped and (why := reason_of_end(status)):
                report.say(f"job {plain_id(record.id)}: {why}")
            return receipts.all
        if gone > _grace(record, status):
            raise _lost(record, site, status, project)


def _read_to_the_end(tail: LogTail, logs: tuple[Path, ...], hand: Clock) -> None:
    tail.close(logs, hand.now())
    while tail.closing:
        hand.sleep(LOOK)
        tail.close((), hand.now())


def _refuse_stuck(record: Record, site: Site, status: Status) -> None:
    if status.stuck:
        raise HostError(
            f"job {record.id} will never start: {status.reason}",
            where=f"site {site.name}",
            hint=f"envbuild cancel {plain_id(record.id)}, and ask for something else",
        )


def reason_of_end(status: Status) -> str:
    """Return the scheduler's word on the end of a job that says more than the command's code."""
    plain = status.reason.startswith(("it failed", "signal ")) or status.phase != "ended"
    return "" if plain else status.reason


def _grace(record: Record, status: Status) -> float:
    if record.cancelled and status.phase == "unknown":
        return KILLED_GRACE
    return KILLED_GRACE if status.phase == "ended" and status.reason else GRACE


def _line(status: Status) -> str:
    if not status.answered:
        return f"is not known for now; {status.reason}; waiting goes on until it answers"
    if status.phase == "queued":
        return f"waits{f' ({status.reason})' if status.reason else ''}"
    if status.phase == "running":
        verb = f"is {status.reason}" if status.reason else "runs"
        return f"{verb}{f' on {status.node}' if status.node else ''}"
    return "has ended" if status.phase == "ended" else "is not known to the scheduler (yet)"


def _lost(record: Record, site: Site, status: Status, project: Path) -> HostError:
    """Return the error about a job that is over, or gone, without its receipts."""
    logs = [path for path in log_files(record, project) if path.is_file()]
    what = _describe_loss(record, status, logs, project)
    return HostError(what, where=f"site {site.name}", hint=_log_hint(record, site, logs, project))


def _describe_loss(record: Record, status: Status, logs: Sequence[Path], project: Path) -> str:
    code = f" (exit code {status.code})" if status.code else ""
    job = f"job {record.id}{_missing_tasks(record, project)}"
    evidence = next((line for path in logs if (line := _find_evidence(path))), None)
    if record.cancelled:
        return f"job {record.id} was cancelled{'' if logs else ' before it started'}"
    if evidence:
        return f"{job} ended without a receipt{code}; its log says: {evidence}"
    if status.phase == "ended":
        reason = status.reason or "it was ended from outside, or its receipt could not be written"
        after = record.job.intent.after if record.job else ()
        if after and not logs:
            reason += f"; it follows {', '.join(after)}, which may have failed"
        return f"{job} ended without a receipt: {reason}{code}"
    return f"job {record.id} is gone: {status.reason}, and it left no receipt"


def _log_hint(record: Record, site: Site, logs: Sequence[Path], project: Path) -> str:
    """Return where to look: at the logs, or for the reason why there are none."""
    if logs:
        near = [
            path.relative_to(project) if path.is_relative_to(project) else path for path in logs
        ]
        return f"what it had written: {', '.join(map(str, near[:3]))}"
    folder = next((path.parent for path in log_files(record, project)), project)
    if not folder.is_dir():
        return f"it has written no log: {folder} is no folder"
    hint = "it has written no log, so look whether its script could begin"
    if features_of(site).reads_logins:
        hint += ": your login files (~/.bash_profile, ~/.profile) are read first, and may take long"
    return hint


def _missing_tasks(record: Record, project: Path) -> str:
    """Return which tasks of an array have left no receipt, where others have: ", task 3"."""
    files = dict(zip(receipt_files(record, project), record.tasks, strict=False))
    there = list_sizes(files)
    missing = [str(task) for path, task in files.items() if path not in there]
    if not there or not missing:
        return ""
    more = ", …" if len(missing) > MOST_NAMED else ""
    return f", task {', '.join(missing[:MOST_NAMED])}{more},"


def _find_evidence(path: Path) -> str | None:
    """Return the last line of a log that says why the job was ended; None where none does."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    found = [line.strip() for line in lines if EVIDENCE.search(line)]
    return found[-1][:300] if found else None


def exit_code(receipts: tuple[Receipt, ...]) -> int:
    """Return the exit code of a job: the highest of its tasks."""
    return max((receipt.code for receipt in receipts), default=0)
