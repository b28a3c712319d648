"""The things that a new user types first (benchmarks/forty.toml) end as the table says; what builds is left to the script."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from benchmarks.forty import Row, make_place, rows
from envbuild.cli import run_cli

QUICK = [row for row in rows() if not row.live]


def test_there_are_forty() -> None:
    assert len(rows()) == 40
    assert len({(row.place, row.typed) for row in rows()}) == 40


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.place}: {row.typed}")
def test_as_the_table_says(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make_place(row.place, tmp_path))
    for name in ("ENVBUILD_SITE", "ENVBUILD_STORE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code = run_cli(shlex.split(row.typed))
    told = capfd.readouterr()
    assert row.fault(code, told.out + told.err) is None, told.out + told.err


def test_a_row_that_is_not_as_expected_is_told() -> None:
    row = Row(place="empty", typed="list", codes=(0,), says="keras")
    assert row.fault(2, "keras") == "ends with 2"
    assert row.fault(0, "torch") == "does not say 'keras'"
