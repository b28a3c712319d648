"""What strangers say is shown by a terminal, and does nothing to it."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

import envbuild.cli
from envbuild.cli import run_cli
from envbuild.cli.complete import complete_image
from envbuild.cli.output import print_table
from envbuild.cli.terminal import Lines, plain_text, show_error
from envbuild.errors import CheckFailedError, EnvbuildError

HARM = (
    "\x1b]52;c;cm0gLXJmIH4=\x07",  # writes to the clipboard
    "\x1b]0;root\x07",  # the window's title
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b[5i",  # prints
    "\x9b2J",
    "passed\r",  # writes over what was said
    "\x08\x08\x08",
    "\u202egnp.exe",
    "num\u200bpy\u200d\ufeff\u2060",  # looks like another name
    "one line\u2028another\u2029",
    "\u061cright to left\u200f",
)
ACTING = {"\x1b", "\x9b", "\r", "\x08", "\x07", "\u202e", "\u061c", "\u200f"}
UNSEEN = {"\u200b", "\u200d", "\ufeff", "\u2060", "\u2028", "\u2029"}


@pytest.mark.parametrize("harm", HARM)
def test_nothing_of_it_reaches_the_terminal(harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = EnvbuildError(f"a{harm}b", where=f"c{harm}", hint=f"d{harm}\ne{harm}")
    failed = CheckFailedError("f", details=f"g{harm}")
    errors = io.StringIO()
    for error in (told, failed):
        show_error(error, errors)
    Lines(verbose=1).say(f"h{harm}")
    Lines(verbose=1).detail(f"i{harm}")
    print_table(("name",), [(f"j{harm}",)])
    shown = "".join((errors.getvalue(), *capsys.readouterr()))
    assert all(letter in shown for letter in "abcdefghij")
    assert not set(shown) & (ACTING | UNSEEN)


@pytest.mark.parametrize("word", ["[", "a ", "a==", "\n"])
def test_of_a_megabyte_the_ends_are_shown(word: str) -> None:
    shown = io.StringIO()
    show_error(EnvbuildError(f"no {word * 1_000_000} here", hint=f"try {word * 1_000_000}!"), shown)
    text = shown.getvalue()
    assert len(text) < 200_000
    assert "error: no" in text
    assert "here\n" in text


def test_only_the_log_of_an_own_job_is_printed_as_it_is() -> None:
    """All else goes through ``print_text``, ``print_json`` or ``terminal.py``."""
    folder = Path(envbuild.cli.__file__).parent
    printing = {path.name for path in folder.glob("*.py") if "click.echo(" in path.read_text()}
    assert printing == {"output.py", "terminal.py", "completion.py", "follow.py", "logs.py"}


@pytest.mark.parametrize("harm", HARM)
def test_a_log_that_is_explained(
    harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(f"RuntimeError: {harm} here\n", "utf-8", newline="")
    for words in ((), ("--json",)):
        assert run_cli(["explain", str(tmp_path / "log"), *words]) == 0
    assert not set(capsys.readouterr().out) & (ACTING | UNSEEN)


@pytest.mark.parametrize("name", ["$(id).sif", "a;id.sif", "a\nb.sif", "`id`.sif", "a b.sif"])
def test_a_name_that_a_shell_would_run_is_not_completed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (name, "ok.sif"):
        (tmp_path / one).touch()
    monkeypatch.chdir(tmp_path)
    found = complete_image(click.Context(click.Command("check")), click.Argument(["image"]), "")
    assert "ok.sif" in found
    assert name not in found


def test_colours_lines_and_all_writing_stay() -> None:
    text = "\x1b[31mrot\x1b[0m\tゼロ\n✓ 日本語"
    assert plain_text(text) == text
