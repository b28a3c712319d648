"""Tables of columns on standard output, as wide as the terminal at most."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence

import click

GAP = "  "
NARROWEST = 12
"""Columns to which a long column is cut at most; below it a value says nothing any more."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a head line and one line a row; on a terminal the longest column is cut until a line fits."""
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, rows, terminal):
        click.echo(line)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]], terminal: int | None = None) -> list[str]:
    """Return the lines of a table; ``terminal`` is its width in character cells, None for no limit."""
    table = [tuple(columns), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*table, strict=True)]
    if terminal is not None:
        _fit_widths(widths, terminal)
    lines = []
    for row in table:
        cells = [_pad_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        lines.append(GAP.join(cells).rstrip())
    return lines


def cell_width(text: str) -> int:
    """Return how many character cells a text takes; Japanese characters take two (Unicode annex 11)."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def _fit_widths(widths: list[int], terminal: int) -> None:
    """Take from the widest column, one cell at a time, until a line fits or no column can give."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - terminal
    while excess > 0 and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
        excess -= 1


def _pad_cell(cell: str, width: int) -> str:
    """Return a cell cut and filled to exactly ``width`` character cells."""
    if cell_width(cell) > width:
        while cell_width(cell) > width - 1:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - cell_width(cell))
