"""Reports as a table for people, as JSON with a schema, and kept by image digest."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import msgspec

from envbuild.check.model import Finding, Outcome, Report
from envbuild.errors import CheckFailedError
from envbuild.limits import decode_kept
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store

SIGNS: dict[Outcome, str] = {"passed": "+ passed ", "failed": "X FAILED ", "skipped": "- skipped"}
"""Signs that read without colour and in any encoding."""
WIDTH = 110
# columns below which reasons do not get a column of their own
NARROWEST = 40
Style = Callable[[str, Outcome], str]


def format_report(
    report: Report, *, style: Style = lambda text, _: text, columns: int = WIDTH
) -> str:
    """Write a report as an aligned table with reasons and hints; ``style`` colours an outcome.

    Lines of ``columns`` characters at most.
    """
    width = max((len(finding.title) for finding in report.findings), default=0)
    lines: list[str] = []
    for finding in report.findings:
        lines += _finding_lines(finding, width, columns, style)
    counts = [f"{report.count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped")]
    where = f" on {', '.join(report.gpu)}, driver {report.driver}" if report.gpu else ""
    where += f" for {report.target}" if report.target else ""
    summary = (
        f"{report.image}: {style(report.verdict, report.verdict)}{where} ({', '.join(counts)})"
    )
    return "\n".join([*lines, "", summary])


def to_json(report: Report) -> str:
    """Write a report as JSON (schema: ``envbuild schema --of report``)."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def save_report(report: Report, store: Store) -> None:
    """Keep a report as the last one on its image of that level, on such GPUs, for that node.

    One that has seen no GPU though it was to is no verdict, and not kept.  Raises SpaceError or
    HostError.
    """
    if report.verdict == "skipped":
        return
    of = msgspec.json.encode([report.level, report.target, report.gpu, report.driver])
    name = hash_bytes(of)[:16]
    write_bytes(store.verdicts(report.digest) / f"{name}.json", msgspec.json.encode(report))


def kept_reports(digest: str, store: Store) -> tuple[Report, ...]:
    """Return the reports on an image, oldest first; those that cannot be read are left out."""
    paths = store.verdicts(digest).glob("*.json")
    found = filter(None, (decode_kept(path, Report) for path in paths))
    return tuple(sorted(found, key=lambda report: report.when))


def find_last_report(digest: str, store: Store) -> Report | None:
    """Return the last verdict on an image itself, else the last one for a kind of node.

    None where there is none.
    """
    reports = kept_reports(digest, store)
    own = [report for report in reports if report.target is None]
    return next(reversed(own or reports), None)


def require_verdict(report: Report) -> None:
    """Raise CheckFailedError for a report of a machine without the GPU that was to be checked."""
    if report.verdict == "skipped":
        raise CheckFailedError(
            "no GPU was checked: this machine has no NVIDIA driver (all else passed, and no verdict is kept)",
            where=report.image,
            hint="check it on a node with a GPU: envbuild check NAME --require-gpu --on SITE",
        )


def _finding_lines(finding: Finding, width: int, columns: int, style: Style) -> list[str]:
    head = f"{style(SIGNS[finding.outcome], finding.outcome)}  {finding.title:<{width}}"
    indent = len(SIGNS["passed"]) + width + 4
    is_narrow = columns - indent < NARROWEST
    if is_narrow:
        indent = 4
    margin, room = " " * indent, columns - indent
    reason = textwrap.wrap(finding.reason, room)
    lines = [head.rstrip() if is_narrow or not reason else f"{head}  {reason.pop(0)}"]
    lines += [f"{margin}{line}" for line in reason]
    if finding.outcome != "failed":
        return lines
    for hint in (finding.hint or "").splitlines():
        start, *rest = textwrap.wrap(hint, room - 2) or [""]
        lines.append(f"{margin}> {start}")
        lines += [f"{margin}  {line}" for line in rest]
    return lines
