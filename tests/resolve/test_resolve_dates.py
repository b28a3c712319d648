from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.data.package_tables import load_pythons
from envbuild.errors import UsageError
from envbuild.resolve.dates import default_as_of
from tests.resolve.conftest import base

TODAY = dt.date(2026, 11, 21)


@pytest.mark.parametrize(
    ("created", "python", "expected"),
    [
        ("2020-01-08", "3.6.9", "2020-04-07"),
        ("2020-01-08T17:30:01Z", "3.6.9", "2020-04-07"),
        ("2024-03-12", "3.11.2", "2024-06-10"),
        ("2025-05-20", "3.12.3", "2025-08-18"),
        ("2025-05-21", "3.12.3", None),
        ("2025-05-22", "3.12.3", None),
        ("2026-11-01", "3.12.3", None),
        ("2026-09-01", "3.9.2", "2026-11-21"),
        ("2026-07-01", "3.9.2", "2026-09-29"),
        ("2026-07-01", "3.15.0", None),
    ],
)
def test_default_date(created: str, python: str, expected: str | None) -> None:
    assert default_as_of(base(created=created, python=python), TODAY) == expected


@pytest.mark.parametrize(("days", "expected"), [(0, None), (1, "2026-01-30")])
def test_a_python_counts_as_ended_from_the_day_after_its_last(
    days: int, expected: str | None
) -> None:
    last = next(one.ends for one in load_pythons().python if one.version == "3.10")
    today = last + dt.timedelta(days=days)
    created = (dt.date(2026, 1, 30) - dt.timedelta(days=90)).isoformat()
    assert default_as_of(base(created=created, python="3.10.4"), today) == expected


@pytest.mark.parametrize("day", [29, 30, 31])
def test_eighteen_months_before_the_end_of_august_end_in_february(day: int) -> None:
    today = dt.date(2026, 8, day)
    assert default_as_of(base(created="2025-02-28", python="3.12.3"), today) is None
    assert default_as_of(base(created="2025-02-27", python="3.12.3"), today) == "2025-05-28"


def test_base_without_a_creation_date_has_none() -> None:
    import msgspec

    assert default_as_of(msgspec.structs.replace(base(python="3.6.9"), created=None), TODAY) is None


def test_creation_date_that_is_none() -> None:
    with pytest.raises(UsageError) as caught:
        default_as_of(base(created="last spring"), TODAY)
    assert str(caught.value) == "example/base:1: 'last spring' is not a date such as 2024-06-10"


@given(
    st.dates(dt.date(2015, 1, 1), dt.date(2030, 1, 1)),
    st.dates(dt.date(2015, 1, 1), dt.date(2030, 1, 1)),
)
def test_date_is_never_in_the_future_and_old_bases_always_have_one(
    created: dt.date, today: dt.date
) -> None:
    found = default_as_of(base(created=created.isoformat(), python="3.12.1"), today)
    if found is not None:
        assert dt.date.fromisoformat(found) <= today
    if (today - created).days > 550:
        assert found is not None
    if 0 <= (today - created).days < 540 and today < dt.date(2028, 10, 31):
        assert found is None


def test_ends_of_python_are_in_order() -> None:
    modern = [
        release
        for release in load_pythons().python
        if release.version.startswith("3.") and release.version != "3.4"
    ]
    assert [release.ends for release in modern] == sorted(release.ends for release in modern)
    assert load_pythons().source
