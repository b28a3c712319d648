"""A report as one page of HTML that needs nothing else: the verdict first, then what it stands on."""

from __future__ import annotations

import msgspec

from envbuild.check.model import Report

ORDER = ("failed", "passed", "skipped")


def format_page(report: Report) -> str:
    """Write a report as a page; what an image has answered is shown as text, never as markup."""
    from envbuild.html_pages import make_environment  # late: most checks write no page

    environment = make_environment("envbuild.check")
    environment.filters["indented"] = _indent_evidence
    counts = (f"{report.count(word)} {word}" for word in ("passed", "failed", "skipped"))
    return environment.get_template("report.html").render(
        report=report,
        name=report.image.rsplit("/", 1)[-1],
        counts=", ".join(counts),
        summary=_summary(report),
        groups={word: [f for f in report.findings if f.outcome == word] for word in ORDER},
        identity={
            "image": report.image,
            "image digest": report.digest,
            "lock digest": report.lock,
            "judged for": report.target,
            "envbuild": report.envbuild,
        },
    )


def _indent_evidence(evidence: object) -> str:
    return msgspec.json.format(msgspec.json.encode(evidence), indent=2).decode()


def _summary(report: Report) -> str:
    where = f" on {', '.join(report.gpu)} with driver {report.driver}" if report.gpu else ""
    aim = f" for {report.target}" if report.target else ""
    if report.verdict == "failed":
        return f"Not fit for use{where}{aim}: see what failed below."
    if report.verdict == "skipped":
        return "No verdict: a GPU was to be checked, and this machine has none."
    skipped = [finding.title for finding in report.findings if finding.outcome == "skipped"]
    rest = f" Not looked at: {', '.join(skipped)}." if skipped else ""
    return f"All that was checked{where}{aim} is as it should be.{rest}"
