"""Tables of parameters, from a CSV file or a grid: one row a task, and the command of each."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.job.model import ParameterTable
from envbuild.limits import TABLE, read_whole
from envbuild.names import Texts
from envbuild.toml import CONTROL, closest

MOST_ROWS = 10_000
"""Rows of one table: each becomes a line of the script, which schedulers take up to about 4 MB."""

COLUMN = r"[\w](?:[\w .-]*[\w])?"
"""A column's name: a table may well call one "batch-size" or "n.layers"."""
PLACE = re.compile(
    r"\$\{[^}]*\}|\{\{(?P<literal>" + COLUMN + r")\}\}|\{(?P<name>" + COLUMN + r")\}"
)
"""In a command: ${shell}, which stays, {{literal}} and {column}."""


def plan_table(each: Path | None, grid: Texts) -> ParameterTable | None:
    """Return the table of a CSV file, of a grid, or of each row with each point of the grid.

    Raises UsageError for a table that cannot be read, a name that comes twice, and too many rows.
    """
    tables = [read_grid(text) for text in grid]
    if each is not None:
        tables.insert(0, read_table(each))
    if not tables:
        return None
    names = tuple(itertools.chain.from_iterable(table.names for table in tables))
    options = {"--each": each, "--grid": grid}
    where = " and ".join(option for option, value in options.items() if value)
    _check_names(names, where)
    count = math.prod(len(table.rows) for table in tables)
    if count > MOST_ROWS:
        what = f"makes {count} rows; at most {MOST_ROWS} fit into one script"
        raise UsageError(what, where=where)
    points = itertools.product(*(table.rows for table in tables))
    rows = tuple(tuple(itertools.chain(*parts)) for parts in points)
    return ParameterTable(names=names, rows=rows)


def read_grid(text: str) -> ParameterTable:
    """Read "lr=0.1,0.01", whose values are written as in a CSV file; raises UsageError."""
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(
            f"{text!r} is not a column with values", where="--grid", hint="--grid lr=0.1,0.01"
        )
    try:
        rows = list(csv.reader([values], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise UsageError(f"cannot be read: {error}", where=f"--grid {text}") from error
    points = rows[0] if rows else []
    if not all(points) or not points:
        raise UsageError("has an empty value", where=f"--grid {text}")
    if len(set(points)) < len(points):
        raise UsageError("has the same value twice", where=f"--grid {text}")
    table = ParameterTable(names=(name.strip(),), rows=tuple((point.strip(),) for point in points))
    _check_rows(table, "--grid")
    return table


def read_table(path: Path) -> ParameterTable:
    """Read a CSV table; raises UsageError: no table, or rows of unequal length."""
    where = str(path)
    try:
        text = read_whole(path, TABLE).decode("utf-8-sig")
        header, *rows = [row for row in csv.reader(io.StringIO(text, "")) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot be read as CSV: {error}", where=where) from error
    if not rows:
        raise UsageError("has no rows below its header", where=where)
    names = tuple(name.strip() for name in header)
    _check_names(names, where)
    table = ParameterTable(names=names, rows=tuple(map(tuple, rows)))
    _check_rows(table, where)
    return table


def _check_names(names: Texts, where: str) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"has two columns {double[0]!r}", where=where)
    bad = [name for name in names if not re.fullmatch(COLUMN, name.removeprefix("#"))]
    if bad:
        hint = "letters, digits, blank, dot, underscore and hyphen"
        raise UsageError(f"{bad[0]!r} is not a valid column name", where=where, hint=hint)


def _check_rows(table: ParameterTable, where: str) -> None:
    # the header is row 1
    for number, row in enumerate(table.rows, 2):
        place = f"{where}, row {number}"
        if len(row) != len(table.names):
            what = f"has {len(row)} values for {len(table.names)} columns"
            raise UsageError(what, where=place)
        if any(re.search(r"[\t\n]", value) or CONTROL.search(value) for value in row):
            raise UsageError("has a value with a control character", where=place)


def fill_rows(table: ParameterTable, argv: Texts, where: str) -> tuple[Texts, ...]:
    """Return a command for each row: {column} in ``argv`` becomes the row's value.

    Raises UsageError for a column that the command does not use, and for one that is not there.
    """
    columns = [name for name in table.names if not name.startswith("#")]
    _check_columns(columns, argv, where)
    tasks = [dict(zip(table.names, row, strict=True)) for row in table.rows]
    return tuple(_fill_in(argv, values) for values in tasks)


def _check_columns(names: list[str], argv: Texts, where: str) -> None:
    """Raise UsageError for a {…} of the command that is no column, and for an unused column."""
    used = list(itertools.chain.from_iterable(map(_named, argv)))
    if not set(used) & set(names):
        what = "the command names no column, so all tasks would be the same"
        columns = ", ".join(f"{{{name}}}" for name in names)
        raise UsageError(what, where=where, hint=columns)
    for name in used:
        if name not in names:
            what = f"has no column {name!r}{closest(name, names)}"
            hint = f"write {{{{{name}}}}} for the word {{{name}}} itself"
            raise UsageError(what, where=where, hint=hint)
    for name in names:
        if name not in used:
            what = f"the command does not use the column {name!r}"
            hint = (
                f"put {{{name}}} into the command, or call the column #{name} where it is a remark"
            )
            raise UsageError(what, where=where, hint=hint)


def _named(word: str) -> list[str]:
    """Return the columns that a word names: not ${name}, which is the shell's, nor {{name}}."""
    return [found["name"] for found in PLACE.finditer(word) if found["name"]]


def _fill_in(argv: Texts, values: dict[str, str]) -> Texts:
    def value(found: re.Match[str]) -> str:
        if found["name"]:
            return values[found["name"]]
        return f"{{{found['literal']}}}" if found["literal"] else found[0]

    return tuple(PLACE.sub(value, word) for word in argv)
