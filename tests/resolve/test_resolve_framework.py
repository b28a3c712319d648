from __future__ import annotations

import pytest

from envbuild.base.model import Dist
from envbuild.errors import UsageError
from envbuild.resolve.framework import with_framework
from envbuild.resolve.model import Found, FoundFile, Resolution
from tests.resolve.conftest import base


def found(
    name: str,
    version: str,
    *,
    via: tuple[str, ...],
    requires: tuple[str, ...] = (),
    day: str = "2024-03-08",
) -> Found:
    file = FoundFile(
        file=f"{name}-{version}-py3-none-any.whl", sha256="0" * 64, size=1, url="", uploaded=day
    )
    return Found(
        name=name, version=version, file=file, via=via, requires=requires, requires_python=">=3.9"
    )


TENSORFLOW = found("tensorflow", "2.15.1", via=("(direct)",), requires=("numpy<2", "six"))
SIX = found("six", "1.16.0", via=("tensorflow",), day="2021-05-05")


def test_framework_becomes_part_of_the_base() -> None:
    facts = with_framework(
        base("pip==23.0.1", "Six==1.10", created="2023-06-10"),
        Resolution(packages=(SIX, TENSORFLOW)),
    )
    assert facts.dists == (
        Dist(name="pip", version="23.0.1"),
        Dist(name="six", version="1.16.0", requires_python=">=3.9"),
        Dist(
            name="tensorflow",
            version="2.15.1",
            requires=("numpy<2", "six"),
            requires_python=">=3.9",
        ),
    )
    assert facts.framework == "tensorflow 2.15.1"
    assert facts.created == "2024-03-08"


def test_framework_dates_the_base_however_new_the_system_is() -> None:
    assert (
        with_framework(base(created="2026-01-01"), Resolution(packages=(TENSORFLOW,))).created
        == "2024-03-08"
    )


def test_system_dates_the_base_where_the_index_tells_no_time() -> None:
    undated = found("torch", "2.5.1", via=("(direct)",), day="")
    assert (
        with_framework(base(created="2026-01-01"), Resolution(packages=(undated,))).created
        == "2026-01-01"
    )


def test_framework_that_the_base_holds_already() -> None:
    with pytest.raises(UsageError, match="the framework is already part of the base"):
        with_framework(base("tensorflow==2.15.1"), Resolution(packages=()))
