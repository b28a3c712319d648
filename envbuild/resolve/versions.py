"""Compare versions in answers."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.resolve.pylock import Chosen


def older(answer: Mapping[str, Chosen], name: str, version: str) -> bool:
    """Whether an answer has a package in an older version than this one."""
    from packaging.version import Version

    return name in answer and Version(answer[name].version) < Version(version)


def is_preview(version: str) -> bool:
    """Whether a version is no final release."""
    from packaging.version import Version

    return Version(version).is_prerelease
