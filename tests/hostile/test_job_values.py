"""Values of a table or a grid that are shell code: the command gets them as they are written."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.run import Command, LocalRunner
from tests.cli.test_cli_job import project

__all__ = ["project"]
"""A fixture of another folder."""
SHELL = (
    "$(touch ran)",
    "`touch ran`",
    "a'b\"c",
    "$HOME",
    "x; touch ran",
    "*",
    "!!",
    "\\",
    "-n",
    "{a}",
)


def words_given(script: str, task: int) -> list[str]:
    """Return what bash makes of a task's command line."""
    row = re.search(rf"^ *{task}\) (command=\(.*\)) ;;$", script, re.MULTILINE)
    assert row is not None
    told = LocalRunner()(
        Command(argv=("bash", "-c", f'{row[1]}; printf "%s\\0" "${{command[@]}}"'))
    )
    return told.stdout.split("\0")[:-1]


def test_are_words_and_no_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (project / "each.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], *([value, f"{value}{value}"] for value in SHELL)])
    given = ["--on", "tsubame4", "--each", "each.csv", "--", "echo", "{a}", "--x={b}"]
    assert run_cli(["job", "thing", *given]) == 0
    script = capsys.readouterr().out
    for task, value in enumerate(SHELL, 1):
        assert words_given(script, task) == ["echo", value, f"--x={value}{value}"]
    for value in SHELL:
        given = ["--on", "tsubame4", "--grid", f"a=plain,{value}", "--", "echo", "{a}"]
        assert run_cli(["job", "thing", *given]) == 0
        assert words_given(capsys.readouterr().out, 2) == ["echo", value]
    assert not (project / "ran").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("value", ["a\nb", "\x1b[2J", "\u202ea"])
def test_with_control_characters_are_refused(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_cli(["job", "thing", "--on", "tsubame4", "--grid", f"a={value}", "--", "echo", "{a}"])
        == 2
    )
    assert "\x1b" not in capsys.readouterr().err
