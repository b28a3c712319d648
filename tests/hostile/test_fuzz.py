"""Fuzzing each parser for a short while; the long run is ``python -m tests.hostile.fuzz --inputs 100000``."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
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


DIGITS = b"9" * 5000


def need_each_other(sound: bytes) -> bytes:
    """Let forty objects of an image need all others, the way to each of which was tried anew."""
    said = json.loads(sound)
    names = [f"{number}.so" for number in range(40)]
    said["libraries"] |= {
        "damaged": [],
        "damaged_count": 0,
        "other_pythons": [],
        "missing": {"libx.so.1": names},
        "needed_by": dict.fromkeys(names, names),
    }
    return json.dumps(said).encode()


FOUND: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "an answer to what no probe asked": (
        "answers of probes",
        lambda sound: sound.replace(b"torch's cuDNN", b"another"),
    ),
    "damage that is counted and not named": (
        "answers of probes",
        lambda sound: re.sub(
            rb'"(changed|missing|damaged)": \[[^{}]*?\](?=, ")', rb'"\1": []', sound
        ),
    ),
    "a Python, a CUDA and a cuDNN that are no versions": (
        "answers of probes",
        lambda sound: re.sub(
            rb'"(python|cuda|cudnn|version)": "[^"]*"', rb'"\1": "3.("', sound
        ).replace(
            b'"damaged": [["a.so", "is cut"]], "damaged_count": 1',
            b'"damaged": [], "damaged_count": 0',
        ),
    ),
    "objects that need each other in endless ways": ("answers of probes", need_each_other),
    "files that are gone and not named": (
        "answers of probes",
        lambda sound: sound.replace(b'"lost": [["a", "b"]]', b'"lost": []'),
    ),
    "a copied record with bytes that are no text, where no record has a key": (
        "job record",
        lambda sound: sound.replace(b"{", b'{"more": "\xff", ', 1),
    ),
    "the same with a number that is too long": (
        "job record",
        lambda sound: sound.replace(b"{", b'{"more": %s, ' % DIGITS, 1),
    ),
    "a date that is none": ("release file", lambda sound: sound.replace(b"Jan", b"Jun 31")),
    "a date of no time": ("release file", lambda sound: sound.replace(b"2026", DIGITS)),
    "a project's version that is too long": (
        "old project",
        lambda sound: sound.replace(b"version='1'", b"version='%s'" % DIGITS),
    ),
    "numbers of a scheduler that are too long": (
        "scheduler",
        lambda sound: re.sub(rb"\d+", DIGITS, sound),
    ),
    "a scheduler's job that is no table": (
        "scheduler",
        lambda sound: b'{"Jobs": {"77": []}}' if sound.startswith(b"{") else sound,
    ),
    "a list that a project names by a word longer than any name": (
        "setup.py",
        lambda sound: sound.replace(b"requirements.txt", b"requirements%s.txt" % DIGITS),
    ),
    "a login whose letters are none of base64": (
        "logins",
        lambda sound: re.sub(rb'"auth": "\w', b'"auth": "\xd0\xb0', sound),
    ),
    "logins in more brackets than json reads": ("logins", lambda _: b"[" * 100_000),
}
"""What fuzzing found: the parser, and what makes the input out of each sound one."""


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_once(case: str, tmp_path: Path) -> None:
    name, change = FOUND[case]
    for sound in seeds_of(name):
        attempt(name, change(sound), tmp_path / "input")
