"""What packaging raises over a text that is no requirement."""

from __future__ import annotations

from packaging.requirements import Requirement

from envbuild.store.units import minor_version

NO_REQUIREMENT = (ValueError, RecursionError)
"""What reading a requirement raises beside its own error: ValueError for a number of 5,000 digits,
RecursionError for a thousand brackets."""


def allows(wish: Requirement, version: str) -> bool:
    """Tell whether a requirement takes a version; a text that is no version counts as taken."""
    try:
        return wish.specifier.contains(version, prereleases=True)
    except ValueError:
        return True


def marker_values(python: str) -> dict[str, str]:
    """Return the values that markers of requirements (PEP 508) have for a release of Python."""
    minor = minor_version(python)
    return {"extra": "", "python_full_version": python, "python_version": minor}
