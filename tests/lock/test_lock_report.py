"""The one line that tells how much a lock holds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envbuild.lock.read import read_lock
from envbuild.lock.report import summarize_lock

LOCK = Path(__file__).parents[2] / "lockfiles/torch-mnist.lock"


def test_what_a_build_needs_too_is_counted_once() -> None:
    lock = read_lock(LOCK)
    again = tuple(msgspec.structs.replace(package, group="build") for package in lock.installed[:5])
    twice = msgspec.structs.replace(lock, python=(*lock.python, *again))
    assert summarize_lock(twice)[0] == summarize_lock(lock)[0]
    assert summarize_lock(lock)[0].startswith(f"{len(lock.python)} Python and ")
