"""The verdict records (docs/check.md); ``envbuild check --json`` prints a Report."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from envbuild.names import Texts

SCHEMA = 1
Outcome = Literal["passed", "failed", "skipped"]
Level = Literal["quick", "full", "soak"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check's answer.

    ``outcome`` passed, failed or skipped; ``reason`` says what was seen, in one or two sentences;
    ``hint`` what to do next (failed and skipped only); ``evidence`` are the values behind it;
    ``seconds`` is wall time.
    """

    check: str
    title: str
    outcome: Outcome
    reason: str
    hint: str | None = None
    evidence: dict[str, Any] = {}
    seconds: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings about one image; ``digest`` is the image digest; ``when`` is UTC in ISO 8601.

    ``gpu`` and ``driver`` are those of the machine that was checked on, ``target`` the node that
    was judged for; ``asked`` is a digest over the recipe's own part of the check: [check] and its
    script.
    """

    image: str
    digest: str
    verdict: Outcome
    findings: tuple[Finding, ...]
    when: str
    level: Level = "quick"
    gpu: Texts = ()
    driver: str | None = None
    lock: str | None = None
    target: str | None = None
    asked: str | None = None
    envbuild: str = ""
    schema: int = SCHEMA

    def count(self, outcome: str) -> int:
        """Return how many findings have that outcome."""
        return sum(finding.outcome == outcome for finding in self.findings)
