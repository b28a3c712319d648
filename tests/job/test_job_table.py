"""Tables of parameters: CSV files, grids, both; what is refused with which words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.job.request.table import fill_rows, plan_table, read_grid


def rows_of(path: Path, argv: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    table = plan_table(path, ())
    assert table is not None
    return fill_rows(table, argv, str(path))


def test_a_table(tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text('rate,word\n0.1,"a, b"\n0.2,c\n')
    assert rows_of(table, ("x", "--rate={rate}", "{word}")) == (
        ("x", "--rate=0.1", "a, b"),
        ("x", "--rate=0.2", "c"),
    )


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("", ("{a}",), "has no rows below its header"),
        ("a\n", ("{a}",), "has no rows below its header"),
        ("a,b\n1\n", ("{a}{b}",), "has 1 values for 2 columns"),
        ("a,b\n1,2\n", ("{a}",), "the command does not use the column 'b'"),
        ("a,a\n1,2\n", ("{a}",), "has two columns 'a'"),
        ("a,b;c\n1,2\n", ("{a}",), "'b;c' is not a valid column name"),
        ("a\n1\n", ("{a}", "{print}"), "has no column 'print'; known: a"),
        ("a\n1\n", ("${a}",), "the command names no column, so all tasks would be the same"),
        ("rate\n1\n", ("{rat}",), "the command names no column, so all tasks would be the same"),
        ("rate,x\n1,2\n", ("{x}", "{rat}"), "has no column 'rat'; did you mean \"rate\"?"),
        ('a\n"x\ny"\n', ("{a}",), "has a value with a control character"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, argv: tuple[str, ...], message: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(UsageError) as told:
        rows_of(tmp_path / "p.csv", argv)
    assert told.value.what == message


def test_a_table_in_another_encoding(tmp_path: Path) -> None:
    """As a Japanese Excel writes it."""
    (tmp_path / "p.csv").write_bytes("名前\n日本\n".encode("cp932"))
    with pytest.raises(UsageError, match="cannot be read as CSV: 'utf-8' codec"):
        rows_of(tmp_path / "p.csv", ("{a}",))


def test_columns_are_called_as_tables_call_them(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("batch-size,n.layers,lr rate,#note\n8,2,0.1,slow\n")
    argv = (
        "--bs={batch-size}",
        "{n.layers}",
        "{lr rate}",
        "awk '{{print}}' ${batch-size}",
        "{a,b}",
    )
    assert rows_of(tmp_path / "p.csv", argv) == (
        ("--bs=8", "2", "0.1", "awk '{print}' ${batch-size}", "{a,b}"),
    )


def test_a_grid_is_every_combination_the_last_name_fastest() -> None:
    table = plan_table(None, ("lr=0.1,0.01", 'text="a, b",c'))
    assert table is not None
    assert table.names == ("lr", "text")
    assert table.rows == (("0.1", "a, b"), ("0.1", "c"), ("0.01", "a, b"), ("0.01", "c"))
    assert fill_rows(table, ("--lr={lr}", "{text}"), "--grid")[1] == ("--lr=0.1", "c")


def test_each_row_meets_each_point_of_a_grid(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("seed,data\n1,a\n2,b\n")
    table = plan_table(tmp_path / "p.csv", ("lr=0.1,0.01",))
    assert table is not None
    assert table.rows == (
        ("1", "a", "0.1"),
        ("1", "a", "0.01"),
        ("2", "b", "0.1"),
        ("2", "b", "0.01"),
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_grid_has_as_many_rows_as_combinations(sizes: list[int]) -> None:
    texts = tuple(f"n{i}={','.join(map(str, range(size)))}" for i, size in enumerate(sizes))
    table = plan_table(None, texts)
    assert table is not None
    assert len(set(table.rows)) == math.prod(sizes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "'lr' is not a column with values"),
        ("lr=", "has an empty value"),
        ("lr=1,,2", "has an empty value"),
        ("lr=1,1", "has the same value twice"),
        ("l;r=1,2", "'l;r' is not a valid column name"),
        ('lr="1', "cannot be read: unexpected end of data"),
        ("lr=1,\x1b[2J", "has a value with a control character"),
    ],
)
def test_broken_grids(text: str, message: str) -> None:
    with pytest.raises(UsageError) as told:
        plan_table(None, (text,))
    assert told.value.what == message


def test_a_name_of_two_grids_and_too_many_rows() -> None:
    with pytest.raises(UsageError) as twice:
        plan_table(None, ("lr=1,2", "lr=3"))
    assert twice.value.what == "has two columns 'lr'"
    values = ",".join(map(str, range(101)))
    with pytest.raises(UsageError) as many:
        plan_table(None, (f"a={values}", f"b={values}"))
    assert many.value.what == "makes 10201 rows; at most 10000 fit into one script"


def test_a_value_with_blanks_around_it() -> None:
    assert read_grid("lr= 0.1 , 0.01").rows == (("0.1",), ("0.01",))
