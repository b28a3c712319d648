"""A report as one page of HTML that needs nothing else: the verdict first, then what it stands on."""

from __future__ import annotations

from html import escape

import msgspec

from envbuild.check.model import Finding, Report

WORDS = {"passed": "passed", "failed": "failed", "skipped": "skipped"}
ORDER = {"failed": 0, "passed": 1, "skipped": 2}
STYLE = """
:root { color-scheme: light dark; --text: #1c2128; --soft: #57606a; --line: #d8dee4; --page: #fff; --card: #f6f8fa;
  --passed: #1a7f37; --failed: #b42318; --skipped: #7a5b00; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4ae; --line: #30363d; --page: #0d1117;
  --card: #161b22; --passed: #4ac26b; --failed: #ff8f85; --skipped: #e3b341; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: .2rem 0; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; }
.verdict { border-left: .4rem solid var(--tone); background: var(--card); padding: .8rem 1rem; border-radius: .3rem; }
.passed { --tone: var(--passed); } .failed { --tone: var(--failed); } .skipped { --tone: var(--skipped); }
.word { color: var(--tone); font-weight: 600; }
.soft, dt { color: var(--soft); }
article { border-top: 1px solid var(--line); padding: .7rem 0; }
article h3 { font-size: 1rem; margin: 0; display: flex; flex-wrap: wrap; gap: .1rem .6rem; align-items: baseline; }
article h3 code { font-weight: 400; color: var(--soft); font-size: .85rem; }
.do { border-left: .2rem solid var(--tone); padding-left: .7rem; white-space: pre-line; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; gap: .1rem 1rem; margin: .4rem 0; }
dd { margin: 0; }
pre { background: var(--card); border-radius: .3rem; padding: .6rem; overflow-x: auto; font-size: .8rem;
  max-height: 24rem; overflow-wrap: normal; }
summary { cursor: pointer; color: var(--soft); padding: .2rem 0; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; } }
"""


def format_page(report: Report) -> str:
    """Write a report as a page; what an image has answered is shown as text, never as markup."""
    counts = ", ".join(f"{report.count(word)} {word}" for word in WORDS)
    name = escape(report.image.rsplit("/", 1)[-1])
    findings = sorted(report.findings, key=lambda finding: ORDER[finding.outcome])
    groups = "".join(
        _group(word, [one for one in findings if one.outcome == word]) for word in ORDER
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{name}: {report.verdict}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<header class="verdict {report.verdict}">\n<h1>{name}: <span class="word">{report.verdict}</span></h1>\n'
        f"<p>{escape(_summary(report))}</p>\n"
        f'<p class="soft">{counts}; level {report.level}; {escape(report.when)}</p>\n</header>\n'
        f"{groups}{_identity(report)}</body>\n</html>\n"
    )


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


def _group(outcome: str, findings: list[Finding]) -> str:
    if not findings:
        return ""
    return f"<section>\n<h2>{outcome.capitalize()}</h2>\n{''.join(map(_article, findings))}</section>\n"


def _article(finding: Finding) -> str:
    hint = (
        f'<p class="do">{escape(finding.hint)}</p>\n'
        if finding.hint and finding.outcome != "passed"
        else ""
    )
    evidence = ""
    if finding.evidence:
        text = msgspec.json.format(msgspec.json.encode(finding.evidence), indent=2).decode()
        shown = " open" if finding.outcome == "failed" else ""
        evidence = (
            f"<details{shown}><summary>evidence</summary><pre>{escape(text)}</pre></details>\n"
        )
    seconds = f" · {finding.seconds:.1f} s" if finding.seconds >= 0.05 else ""
    return (
        f'<article class="{finding.outcome}">\n<h3><span class="word">{WORDS[finding.outcome]}</span> '
        f"{escape(finding.title)} <code>{escape(finding.check)}{seconds}</code></h3>\n"
        f"<p>{escape(finding.reason)}</p>\n{hint}{evidence}</article>\n"
    )


def _identity(report: Report) -> str:
    rows = {
        "image": report.image,
        "image digest": report.digest,
        "lock digest": report.lock,
        "judged for": report.target,
        "envbuild": report.envbuild,
    }
    listed = "".join(
        f"<dt>{name}</dt><dd>{escape(value)}</dd>\n" for name, value in rows.items() if value
    )
    return f"<section>\n<h2>Of what</h2>\n<dl>\n{listed}</dl>\n</section>\n"
