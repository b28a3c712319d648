"""Fuzzing each parser for a short while; the long run is ``python -m tests.hostile.fuzz --inputs 100000``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.hostile.fuzz import attempt, read_inputs
from tests.hostile.parsers import PARSERS, seeds_of

SEED = 0 if os.environ.get("CI") else int(time.time())
"""The same inputs in every run of CI, new ones in runs by hand."""


@pytest.mark.parametrize("name", PARSERS)
def test_a_sound_input_is_taken(name: str, tmp_path: Path) -> None:
    """Else the runs below would show nothing."""
    assert seeds_of(name)
    for seed in seeds_of(name):
        assert attempt(name, seed, tmp_path / "input")


@pytest.mark.parametrize("name", PARSERS)
def test_only_errors_of_ours_come_out(name: str, tmp_path: Path) -> None:
    found = read_inputs(name, range(100), SEED, tmp_path, bytearray(8))
    assert not found["others"], f"seed {SEED}"
