"""What is known of an image from an earlier check."""

from __future__ import annotations

from pathlib import Path

from envbuild.base.digests import known_digest
from envbuild.check.expected import asked_digest
from envbuild.check.model import Report
from envbuild.check.reports.report import find_last_report
from envbuild.recipe.model import Source
from envbuild.store.layout import Store


def known_report(image: Path, digest: str | None, source: Source, store: Store) -> Report | None:
    """Return the report of an image that was checked before.

    None unless it passed, and the recipe asks the same of it today.
    """
    report = find_last_report(digest or known_digest(image, store), store)
    if report is None or report.verdict != "passed":
        return None
    asked = asked_digest(source.recipe, check_script(source))
    return report if report.asked == asked else None


def check_script(source: Source | None) -> Path | None:
    """Return the recipe's own check as a file; None where it has none."""
    if source is None or source.recipe.check.script is None:
        return None
    return source.path.parent / source.recipe.check.script
