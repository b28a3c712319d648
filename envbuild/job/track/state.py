"""What became of a job, in one word and a line: its receipts first, then the scheduler's word."""

from __future__ import annotations

from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.job.model import Receipt, Record
from envbuild.job.sites.find import load_site
from envbuild.job.track.monitor import exit_code, reason_of_end, status_of
from envbuild.job.track.records import is_stopped, is_whole, read_receipts
from envbuild.records import frozen_record


@frozen_record
class JobState:
    """``word`` is succeeded, failed, queued, running, stuck, ended, cancelled or unknown.

    ``detail`` says more.
    """

    word: str
    detail: str


def find_state(record: Record, context: Context) -> JobState:
    """Return the state of a job.

    The scheduler is asked where its receipts are not all there, or tell of a signal.
    """
    receipts = read_receipts(record, context.settings.cwd)
    whole = is_whole(record, receipts)
    if whole and not is_stopped(receipts):
        return _ended(receipts, "")
    try:
        site = load_site(record.site, context.settings)
    except EnvbuildError as error:
        return JobState(word="unknown", detail=str(error))
    status = status_of(record, site, context)
    if whole and status.phase not in ("queued", "running"):
        return _ended(receipts, reason_of_end(status))
    count = f"{len(receipts)} of {len(record.tasks)} tasks ended" if record.tasks else ""
    if record.cancelled and status.phase in ("ended", "unknown") and status.answered:
        return JobState(word="cancelled", detail=count if receipts else "before it started")
    word = "stuck" if status.stuck else status.phase
    detail = status.reason or (f"on {status.node}" if status.node else "")
    if status.phase == "ended":
        code = f" (exit code {status.code})" if status.code is not None else ""
        detail = f"{status.reason or 'without a receipt'}{code}"
    return JobState(word=word, detail=", ".join(filter(None, (count, detail))))


def _ended(receipts: tuple[Receipt, ...], reason: str) -> JobState:
    code = exit_code(receipts)
    signals = sorted({receipt.signal for receipt in receipts if receipt.signal})
    reasons = sorted({receipt.reason for receipt in receipts if receipt.reason})
    failed = [receipt for receipt in receipts if receipt.code]
    worst = failed or receipts
    parts = [f"code {code} on {worst[0].node}"]
    if failed and len(receipts) > 1:
        parts.insert(0, f"{len(failed)} of {len(receipts)} tasks failed")
    if signals:
        parts.append(f"signal {', '.join(signals)}")
    parts += reasons or ([reason] if reason else [])
    uses = (receipt.use for receipt in receipts)
    advice = sorted({use.advice for use in uses if use and use.advice})
    parts += advice[:1]
    return JobState(word="succeeded" if code == 0 else "failed", detail=", ".join(parts))
