"""Compare versions in answers."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.resolve.pylock import Chosen


def older(answer: Mapping[str, Chosen], name: str, version: str) -> bool:
    """Whether an answer has a package in an older version than this one."""
    from packaging.version import Version

    return name in answer and Version(answer[name].version) < Version(version)


def previews(answer: Mapping[str, Chosen]) -> set[str]:
    """Return the names of what an answer brings that is no final release."""
    return {name for name, one in answer.items() if not one.from_base and is_preview(one.version)}


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version is within bounds."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)


def newer(version: str, specifier: str) -> bool:
    """Whether a version is newer than one that bounds name."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return any(
        Version(version) > Version(one.version.removesuffix(".*"))
        for one in SpecifierSet(specifier)
    )


def is_preview(version: str) -> bool:
    """Whether a version is no final release."""
    from packaging.version import Version

    return Version(version).is_prerelease
