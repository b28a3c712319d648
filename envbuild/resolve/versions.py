"""Versions: of files, in answers, against bounds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.resolve.pylock import Chosen

WORTH_DAYS = 365
"""How much newer an answer's packages have to be for what is asked for to become older."""
CHEAP_DAYS = 180
CHEAP = 4
"""Half of that is enough where so many times as much is gained as lost."""


def release_of(file: str) -> tuple[str, Version] | None:
    """Return the canonical name and version in a file's name, None for another form."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[:2]
        return parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None


def is_older(answer: Mapping[str, Chosen], name: str, version: str) -> bool:
    """Whether an answer has a package in an older version than this one."""
    return name in answer and Version(answer[name].version) < Version(version)


def _preview_names(answer: Mapping[str, Chosen]) -> set[str]:
    """Return the names of what an answer brings that is no final release."""
    return {name for name, one in answer.items() if not one.from_base and is_preview(one.version)}


def adds_previews(before: Mapping[str, Chosen], after: Mapping[str, Chosen]) -> bool:
    """Whether the second answer has previews that the first has not.

    A bound above the last final release, or one that names a preview, lets them in (PEP 440).
    """
    return not _preview_names(after) <= _preview_names(before)


def is_worth(before: Mapping[str, Chosen], after: Mapping[str, Chosen]) -> bool:
    """Whether the packages of both answers are newer in the second, by far and all together."""
    gained, lost = 0, 0
    for name in before.keys() & after.keys():
        old, new = before[name].uploaded, after[name].uploaded
        days = (date.fromisoformat(new) - date.fromisoformat(old)).days if old and new else 0
        gained += max(days, 0)
        lost += max(-days, 0)
    is_cheap = gained > CHEAP_DAYS and gained > CHEAP * lost
    return is_cheap or gained - lost > WORTH_DAYS


def is_within(version: str, specifier: str) -> bool:
    """Whether a version is within bounds."""
    return SpecifierSet(specifier).contains(version, prereleases=True)


def is_newer(version: str, specifier: str) -> bool:
    """Whether a version is newer than one that bounds name."""
    return any(
        Version(version) > Version(one.version.removesuffix(".*"))
        for one in SpecifierSet(specifier)
    )


def is_preview(version: str) -> bool:
    """Whether a version is no final release."""
    return Version(version).is_prerelease
