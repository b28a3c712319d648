"""Commands below a verb: their help cuts no sentence, and a wrong word gets the nearest or all names."""

from __future__ import annotations

import importlib

import click
import pytest

from envbuild.cli import VERBS, module_of, run_cli

GROUPS = sorted(
    name
    for name in VERBS
    if isinstance(importlib.import_module(module_of(name)).command, click.Group)
)


@pytest.mark.parametrize("verb", GROUPS)
def test_no_sentence_of_its_help_is_cut(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli([verb, "--help"]) == 0
    told = capsys.readouterr().out
    assert "..." not in told.partition("Commands:")[2]


@pytest.mark.parametrize("verb", VERBS)
def test_its_help_fits_a_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_cli([verb, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("verb", GROUPS)
def test_a_word_that_is_no_command_gets_the_names(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli([verb, "zzzzzz"]) == 2
    assert f'there is no command "{verb} zzzzzz"; known: ' in capsys.readouterr().err


def test_a_slip_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["store", "verfy"]) == 2
    assert 'did you mean "verify"?' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cancel", "error: missing argument 'ID…'\n  what to do: envbuild cancel ID…\n"),
        ("diff a", "error: missing argument 'B'\n  what to do: envbuild diff A B\n"),
        ("add", "error: missing argument 'NAME|PKG'\n  what to do: envbuild add NAME|PKG [PKG]…\n"),
        ("export x", "error: missing option '--format'. Choose from: pylock, requirements, "),
        ("keras-bert make", "error: the command comes first: envbuild make keras-bert\n"),
        ("exec keras-bert", "CMD…'\n  what to do: envbuild exec keras-bert -- CMD…\n"),
        ("store", "error: envbuild store needs a command: du, gc, path, verify\n"),
        ("completion zs", "'zs' is not one of 'bash', 'zsh', 'fish'\n  what to do: envbuild comp"),
    ],
)
def test_what_is_missing_is_told_with_what_to_type(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(line.split()) == (125 if line.startswith("exec") else 2)
    assert told in capsys.readouterr().err
