from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.store.units import UNITS, human_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (475_000_000, "475.0 MB"),
        (4_400_000_000, "4.4 GB"),
        (10**18, "1000.0 PB"),
        (-2500, "-2.5 kB"),
    ],
)
def test_sizes_read_like_people_write_them(count: int, text: str) -> None:
    assert human_bytes(count) == text


@given(st.integers(0, 10**17))
def test_the_text_is_never_far_from_the_count(count: int) -> None:
    number, unit = human_bytes(count).split()
    assert abs(float(number) * 1000 ** UNITS.index(unit) - count) <= max(
        0.051 * 1000 ** UNITS.index(unit), 0
    )
    assert float(number) < 1000
