"""What a user sees first: the help in groups, other tools' names, tables and completion."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.cli import ALIASES, GROUPS, VERBS, main_group, run_cli
from envbuild.cli.faults import recipe_named
from envbuild.cli.make import example_script
from envbuild.cli.output import GAP, NARROWEST, cell_width, table_lines, wrap_line
from envbuild.cli.terminal import Lines, Pretty, short_path
from envbuild.store.units import count_noun

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), max_size=12)
CELLS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), max_size=40)


def test_the_help_names_every_verb_once_and_the_daily_ones_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [
        line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in VERBS
    ]
    assert names == list(VERBS)
    assert len(GROUPS["Every day"]) == 10
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *GROUPS]


def test_every_line_of_the_help_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_cli(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(("alias", "verb"), ALIASES.items())
def test_names_of_other_tools_are_understood(
    alias: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alias not in VERBS
    run_cli([verb, "--help"])
    expected = capsys.readouterr().out
    run_cli(["help", alias])
    assert capsys.readouterr().out.replace(f"envbuild {alias}", f"envbuild {verb}") == expected


def test_an_unknown_verb_is_told_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["mak"]) == 2
    assert 'there is no command "mak"; did you mean "make"?' in capsys.readouterr().err


def test_a_table_is_as_wide_as_its_cells_where_nothing_limits_it() -> None:
    assert table_lines(("a", "long name"), [("1", "x"), (22, "")]) == [
        "a   long name",
        "1   x",
        "22",
    ]


def test_the_longest_column_is_cut_on_a_narrow_terminal() -> None:
    lines = table_lines(
        ("name", "summary"), [("keras-bert", "BERT in Keras on TensorFlow 2.15")], 30
    )
    assert lines == ["name        summary", "keras-bert  BERT in Keras on …"]


def test_japanese_takes_two_cells_a_character() -> None:
    assert cell_width("画像") == 4
    lines = table_lines(("name", "summary"), [("a", "画像を作る研究室のレシピ"), ("b", "x")], 20)
    assert all(cell_width(line) <= 20 for line in lines)
    assert lines[1].endswith("…")


def test_a_row_takes_several_lines_where_its_columns_do_not_fit() -> None:
    columns = ("recipe", "lock", "image", "last verdict")
    rows = [
        ("a-recipe-of-a-long-name", "fits", "144.5 MB, current", "passed 2026-11-22"),
        ("b", "-", "", "-"),
    ]
    assert table_lines(columns, rows, 45) == [
        "a-recipe-of-a-long-name",
        "  lock: fits; image: 144.5 MB, current",
        "  last verdict: passed 2026-11-22",
        "b",
    ]
    assert table_lines(columns, rows, 80)[0].startswith("recipe                   lock")


@given(st.lists(st.tuples(NAMES, CELLS, CELLS), min_size=1, max_size=5), st.integers(52, 120))
def test_no_line_is_wider_than_the_terminal(
    rows: list[tuple[str, str, str]], terminal: int
) -> None:
    lines = table_lines(("one", "two", "three"), rows, terminal)
    assert len(lines) == len(rows) + 1
    assert terminal >= 4 * NARROWEST + 2 * len(GAP)
    assert all(cell_width(line) <= terminal for line in lines)


def _complete(words: str, folder: Path) -> list[str]:
    variables = {
        "_ENVBUILD_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "HOME": str(folder),
        "PATH": str(Path(sys.executable).parent),
    }
    program = Path(sys.executable).parent / "envbuild"
    found = subprocess.run(
        [program], env=variables, cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    return [line.partition(",")[2] for line in found.split()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("envbuild make keras", ["keras-bert", "keras-bert-hub"]),
        ("envbuild submit --on am", ["amane"]),
        ("envbuild exec min", ["mine.sif"]),
        ("envbuild logs 1", []),
        ("envbuild remove keras-bert keras", ["keras", "keras-bert"]),
        ("envbuild remove keras-bert tensorf", []),  # the base's: nothing that can be removed
        ("envbuild why tensorflow keras", ["keras-bert", "keras-bert-hub"]),
    ],
)
def test_the_shell_completes_names(words: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.sif").touch()
    assert _complete(words, tmp_path) == expected


def test_the_shell_completes_paths_of_images_itself(tmp_path: Path) -> None:
    assert _complete("envbuild check images/m", tmp_path) == ["images/m"]


def test_completion_is_silent_about_broken_settings(tmp_path: Path) -> None:
    settings = tmp_path / ".config/envbuild/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[", encoding="utf-8")
    assert _complete("envbuild make keras", tmp_path) == []


def test_a_stage_is_named_once_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines().stage("pack 3 packages", total=3) as stage:
        stage.advance()
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "pack 3 packages"
    ]


class Remembered(Lines):
    """Lines that come as often as can be, with an event that is set where one matches."""

    def __init__(self, pattern: str) -> None:
        super().__init__(every=0.01)
        self.pattern, self.came = pattern, threading.Event()

    def say(self, text: str) -> None:
        super().say(text)
        if re.fullmatch(self.pattern, text):
            self.came.set()


def test_a_long_stage_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Remembered(r"  pack 3 packages: 66 %, [\d.]+ s so far")
    with lines.stage("pack 3 packages", total=3) as stage:
        stage.advance(2)
        assert lines.came.wait(60)
    assert re.fullmatch(r"pack 3 packages: [\d.]+ s", capsys.readouterr().err.splitlines()[-1])


def test_a_long_stage_of_unknown_length_says_what_it_counted() -> None:
    lines = Remembered(r"  resolve: 14 pages, [\d.]+ s so far")
    with lines.stage("resolve", unit="page") as stage:
        stage.advance(14)
        assert lines.came.wait(60)


def test_a_transfer_shows_bytes_and_counts_no_files_that_nobody_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(every=0.0).transfer("hash", files=3, size=4_000_000) as transfer:
        transfer.advance(1_000_000)
    first, share, last = capsys.readouterr().err.splitlines()
    assert first == "hash: 3 files, 4.0 MB"
    assert re.fullmatch(r"  1\.0 MB of 4\.0 MB, [\d.]+ \w+/s, [\d.]+ s left", share)
    assert last.startswith("hash: 1.0 MB in ")


def test_a_terminal_shows_the_share_from_the_first_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda *_, description: shown.append(description)
    )
    with Pretty().stage("check") as stage:
        stage.expect(4)
        stage.advance()
    assert shown == ["check", "check: 0 %", "check: 25 %"]


def test_a_long_line_goes_on_below_its_text_and_names_stay_whole() -> None:
    line = "fine  store  /home/me/.cache/envbuild (ext4): 31.3 GB free"
    assert wrap_line(line, 13, 40) == [
        "fine  store  /home/me/.cache/envbuild",
        "             (ext4): 31.3 GB free",
    ]
    assert wrap_line(line, 13, None) == wrap_line(line, 13, 80) == [line]
    assert wrap_line("     see docker://pytorch/pytorch:2.1.2", 5, 20)[-1].endswith(":2.1.2")


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_one_of_a_kind_is_no_plural(count: int, text: str) -> None:
    assert count_noun(count, "file") == text


def test_paths_below_the_folder_are_written_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_path(f"{tmp_path}/recipes/a.toml:3: no") == "recipes/a.toml:3: no"
    assert short_path(f"{tmp_path}-other/a.toml: no") == f"{tmp_path}-other/a.toml: no"
    assert short_path(f"file://{tmp_path}/wheels") == f"file://{tmp_path}/wheels"
    assert short_path(f"the folder {tmp_path} is full") == f"the folder {tmp_path} is full"


DOCUMENTS = {
    "attach",
    "completion",
    "def",
    "exec",
    "export",
    "job",
    "logs",
    "run",
    "schema",
    "shell",
    "site probe",
    "watch",
}
"""Verbs that print or write a document, or print what the user's own command prints."""


def _leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            yield from _leaves(f"{name} {sub.name}", sub)
    else:
        yield name, command


def _commands() -> dict[str, click.Command]:
    context = click.Context(main_group)
    found: dict[str, click.Command] = {}
    for name in VERBS:
        command = main_group.get_command(context, name)
        assert command is not None
        found |= dict(_leaves(name, command))
    return found


def test_every_verb_that_prints_values_prints_them_as_json() -> None:
    without = {
        name
        for name, command in _commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == DOCUMENTS


@pytest.mark.parametrize(
    ("recipes", "arguments", "expected"),
    [
        ({"mine"}, ["check", "mine"], "mine"),
        ({"mine", "other"}, ["check", "other", "--level", "full"], "other"),
        ({"mine"}, ["check"], "mine"),
        ({"mine", "other"}, ["check"], "NAME"),
        (set(), ["make", "keras-bert"], "keras-bert"),
    ],
)
def test_a_remedy_names_the_recipe(
    recipes: set[str],
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "recipes").mkdir()
    for name in recipes:
        (tmp_path / f"recipes/{name}.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert recipe_named(arguments) == expected


@pytest.mark.parametrize(
    ("files", "script"),
    [
        ((), "train.py"),
        (("fit.py",), "fit.py"),
        (("a fit.py",), "'a fit.py'"),
        (("\x1b[2Jfit.py",), "'?[2Jfit.py'"),
        (("models.py", "main.py"), "main.py"),
        (("main.py", "train.py"), "train.py"),
        (("a.py", "b.py"), "train.py"),
        (("setup.py",), "train.py"),
        (("setup.py", "fit.py"), "fit.py"),
    ],
)
def test_make_shows_a_script_that_is_there(
    files: tuple[str, ...], script: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert example_script(tmp_path) == script
