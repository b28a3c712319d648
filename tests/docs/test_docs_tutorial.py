"""docs/tutorial.md: its commands are run in order, in a folder with the files that it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Step, blocks, steps
from tests.docs.shown import compare, shell
from tests.support import needs
from tests.tiny_image import tiny_image

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
STEPS = [step for block in blocks(PAGE, "console") for step in steps(block)]
IN_THE_IMAGE = ("make", "check", "exec", "submit")
"""Verbs whose steps need PyTorch's image, of 3 GB; the others get a tiny one in its place."""


def _verb(step: Step) -> str:
    return step.command.split()[1]


def _files(folder: Path) -> None:
    for block in (*blocks(PAGE, "text"), *blocks(PAGE, "python")):
        first, rest = block.split("\n", 1)
        (folder / first.removeprefix("# ")).write_text(rest, "utf-8")


def test_the_way_is_init_lock_make_exec_submit_job() -> None:
    assert [_verb(step) for step in STEPS] == ["init", "lock", "make", "exec", "submit", "job"]


def test_the_script_of_the_tutorial_is_python_and_takes_its_steps_from_the_command_line() -> None:
    [script] = blocks(PAGE, "python")
    compile(script, "train.py", "exec")
    assert all(
        re.search(r"python train\.py( \d+)?$", step.command)
        for step in STEPS
        if "--" in step.command.split()
    )


@pytest.mark.live
@needs("apptainer", "apt-get", "mmdebstrap")
def test_the_commands_print_what_the_tutorial_shows(tmp_path: Path) -> None:
    folder, home = tmp_path / "digits", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    _files(folder)
    for step in STEPS:
        if _verb(step) not in IN_THE_IMAGE:
            compare(step, shell(step.command, folder, home))
        elif _verb(step) == "make":
            shutil.copy(tiny_image(), folder / "digits.sif")
    assert "torch==2.5.1" in (folder / "recipes/digits.toml").read_text()
