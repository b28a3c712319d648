"""Licences that a lab does not take, by the settings."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from envbuild.conda.model import CondaFound
from envbuild.errors import UsageError
from envbuild.settings import Settings


def refuse_licenses(packages: Sequence[CondaFound], settings: Settings) -> None:
    """Raise UsageError for a package whose licence the settings deny.

    Licences are SPDX expressions: of what is joined by OR, one that is not denied is enough.
    """
    for package in packages:
        denied = denied_license(package.license or "", settings.licenses_denied)
        if denied is not None:
            raise UsageError(
                f"{package.name} {package.version} is under {package.license}, which the settings "
                f'deny ("{denied}")',
                where=settings.config,
                hint="take another package, or take the pattern out of [conda] deny-licenses",
            )


def denied_license(expression: str, patterns: Sequence[str]) -> str | None:
    """Return the pattern that denies an expression, None where none does."""
    found = None
    for choice in re.split(r"(?<!\s)\s+OR\s+", expression, flags=re.IGNORECASE):
        words = re.split(r"[\s()]+", choice.lower())
        denying = [pattern for pattern in patterns if fnmatch.filter(words, pattern.lower())]
        if not denying:
            return None
        found = denying[0]
    return found
