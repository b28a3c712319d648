"""Fuzzing each parser for a short while; the long run is ``python -m tests.hostile.fuzz --inputs 100000``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.fuzz import KINDS, Edit, attempt, changed
from tests.hostile.parsers import PARSERS, seeds_of

EDIT = st.tuples(
    st.sampled_from(KINDS), st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 16) - 1)
)


@pytest.mark.parametrize("name", PARSERS)
def test_a_sound_input_is_taken(name: str, tmp_path: Path) -> None:
    """Else the runs below would show nothing."""
    assert seeds_of(name)
    for seed in seeds_of(name):
        assert attempt(name, seed, tmp_path / "input")


@pytest.mark.parametrize("name", PARSERS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(which=st.integers(0, 9), edits=st.lists(EDIT, min_size=1, max_size=6))
@example(which=0, edits=[("cut", 0, 0)])
def test_only_errors_of_ours_come_out(
    name: str, which: int, edits: list[Edit], tmp_path: Path
) -> None:
    seeds = seeds_of(name)
    attempt(name, changed(seeds[which % len(seeds)], edits), tmp_path / "input")
