"""What verbs print on standard output: tables as wide as the terminal at most, and JSON."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from envbuild.cli.terminal import ACTING, plain_text
from envbuild.context import Context
from envbuild.store.atomic import refuse_special, write_text

json_option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
"""The option of every verb that prints values; those that print a document (a lock, a script) have none."""
MOST_LINES = 20
GAP = "  "
NARROWEST = 12
"""Columns to which a long column is cut at most; below it a value says nothing any more."""


def print_text(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, of which a terminal only shows what strangers say in it."""
    click.echo(plain_text(text), err=err, nl=nl)


def write_document(text: str, output: Path | None, context: Context) -> None:
    """Write a text to the file of ``-o``, or print it."""
    if output is None:
        print_text(text, nl=False)
    else:
        target = context.settings.cwd / output
        refuse_special(target)
        write_text(target, text)


def print_first(lines: Sequence[str]) -> None:
    """Print as many lines as fit a screen, and how many more there are."""
    for line in lines[:MOST_LINES]:
        print_text(f"  {line}")
    if len(lines) > MOST_LINES:
        print_text(f"  and {len(lines) - MOST_LINES} more (--json has all)")


def print_json(value: Any) -> None:
    """Print a record, list or dictionary as JSON, indented by one blank a level.

    Keys are written as in recipes and locks: small letters, words joined by hyphens.  Sizes are
    bytes, durations seconds, times UTC in ISO 8601.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    click.echo(ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result as JSON, or what is said of it to people."""
    if as_json:
        print_json(value)
    else:
        print_text(text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a head line and one line a row; on a terminal the longest column is cut until a line fits."""
    for line in table_lines(columns, rows, terminal_width()):
        print_text(line)


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool, none: str = ""
) -> None:
    """Print rows as a table, or as JSON by their columns; ``none`` is what no rows print."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows or not none:
        print_table(columns, rows)
    else:
        print_text(none)


def terminal_width() -> int | None:
    """Return how many characters a line of the terminal has; None where nobody reads it there."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrap_line(line: str, indent: int, terminal: int | None) -> list[str]:
    """Return a line in lines that fit, the later ones after ``indent`` blanks; words stay whole."""
    if terminal is None or cell_width(line) <= terminal:
        return [line]
    return textwrap.wrap(
        line,
        terminal,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[object]], terminal: int | None = None
) -> list[str]:
    """Return the lines of a table; ``terminal`` is its width in character cells, None for no limit.

    Where the columns do not fit, each row takes several lines: its first cell, then the others.
    """
    table = [tuple(columns), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*table, strict=True)]
    if terminal is not None and not _fit_widths(widths, terminal):
        return list(chain.from_iterable(_row_lines(columns, row, terminal) for row in table[1:]))
    lines = []
    for row in table:
        cells = [_pad_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        lines.append(GAP.join(cells).rstrip())
    return lines


def cell_width(text: str) -> int:
    """Return how many character cells a text takes; Japanese characters take two (Unicode annex 11)."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def _fit_widths(widths: list[int], terminal: int) -> bool:
    """Take from the widest column, one cell at a time, until a line fits; tell whether it does.

    The first column stays: people copy the names in it.
    """
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - terminal
    while excess > 0 and max(widths[1:], default=0) > NARROWEST:
        widths[widths.index(max(widths[1:]), 1)] -= 1
        excess -= 1
    return excess <= 0


def _row_lines(columns: Sequence[str], row: Sequence[str], terminal: int) -> list[str]:
    """Return a row as its first cell, and "column: value" below it, as many in a line as fit."""
    line, lines = "", [row[0]]
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if cell in ("", "-"):
            continue
        pair = f"{column}: {cell}"
        if line and cell_width(f"{GAP}{line}; {pair}") <= terminal:
            line += f"; {pair}"
            continue
        lines += _wrap(line, terminal)
        line = pair
    return [*lines, *_wrap(line, terminal)]


def _wrap(text: str, terminal: int) -> list[str]:
    """Return a text in lines of whole words, each a little to the right."""
    return textwrap.wrap(
        text, terminal, initial_indent=GAP, subsequent_indent=2 * GAP, break_long_words=False
    )


def _pad_cell(cell: str, width: int) -> str:
    """Return a cell cut and filled to exactly ``width`` character cells."""
    if cell_width(cell) > width:
        while cell_width(cell) > width - 1:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - cell_width(cell))
