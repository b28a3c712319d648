"""What strangers say is shown by a terminal, and does nothing to it."""

from __future__ import annotations

import io

import pytest

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
)


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
    assert not set(shown) & {"\x1b", "\x9b", "\r", "\x08", "\x07", "\u202e"}


def test_colours_lines_and_all_writing_stay() -> None:
    text = "\x1b[31mrot\x1b[0m\tゼロ\n✓ 日本語"
    assert plain_text(text) == text
