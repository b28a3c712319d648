"""A small input takes little: every attack of attacks.py ends in an error of ours, in 512 MB and a minute at most."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.run import Command, LocalRunner
from tests.hostile.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
USAGE = ("bundle_header_of_gigabytes", "lock_")
"""Attacks by a file that a user names: what is no such file at all is a mistake of usage."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("caged")
    environment = {
        **os.environ,
        "MALLOC_ARENA_MAX": "1",
        "TMPDIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    argv = (sys.executable, "-m", "tests.hostile.caged")
    result = LocalRunner()(Command(argv=argv, env=environment, cwd=ROOT, timeout=600), check=False)
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.code == 0, result.stderr
    return {one["name"]: one for one in told}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_told_within_the_limits(name: str, outcomes: dict[str, Any]) -> None:
    code = "2: " if name.startswith(USAGE) else "6: "
    assert outcomes[name]["told"].startswith(code)


def test_each_is_told_for_what_it_is(
    outcomes: dict[str, Any], golden: Callable[[str, str], None]
) -> None:
    """An attack that is refused for another reason would be no test of its limit."""
    told = (f"{name}: {outcomes[name]['told']}"[:300] for name in sorted(ATTACKS))
    text = "\n\n".join(told) + "\n"
    # a newer tarfile sees it itself, before ours
    text = text.replace("damaged: invalid offset", "damaged: a member of less than no bytes")
    golden("hostile/attacks.txt", text)
