"""Records of jobs that came with a copied folder: they are shown, and nothing is done that they say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.app.job.remote import START, submit_check
from envbuild.app.wrap.notebook import PURPOSE, TOLD
from envbuild.cli import run_cli
from envbuild.errors import IntegrityError, UsageError
from envbuild.job.track.records import (
    load_own_records,
    load_records,
    receipt_files,
    result_file,
)
from envbuild.recipe.find import find_recipe
from envbuild.recipe.undo import Undo, undo_path
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from tests.cli.test_cli_job import project
from tests.cli.test_cli_submit import AMANE, client, no_account
from tests.support import quiet_context

__all__ = ["no_account", "project"]
Plant = Callable[..., Path]


@pytest.fixture
def plant(no_account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Return what makes the folder that of a stranger, whose job 77 has a record with these changes."""

    def plant_record(*, job: dict[str, Any] | None = None, **changes: Any) -> Path:
        client(tmp_path, monkeypatch, "sbatch", "echo 77")
        client(tmp_path, monkeypatch, "squeue", "echo '77|RUNNING|None|n3'")
        monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "stranger's"))
        assert run_cli([*AMANE, "--env", "KEY=x", "--", "./train"]) == 0
        monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
        path = no_account / ".envbuild/jobs/plai-77.json"
        record = json.loads(path.read_bytes())
        path.write_text(json.dumps({**record, **changes, "job": {**record["job"], **(job or {})}}))
        return path

    return plant_record


def leave_receipt(path: Path) -> None:
    """Let the planted job have ended."""
    record = json.loads(path.read_bytes())
    told = {"job": "77", "name": "thing", "code": 0, "node": "n", "started": "", "ended": ""}
    (path.parents[2] / record["receipt"]).write_text(json.dumps(told))


def test_no_folder_is_removed_that_a_record_names(plant: Plant, tmp_path: Path) -> None:
    victim = tmp_path / "thesis"
    victim.mkdir()
    (victim / "text").write_text("mine")
    argv = ["sh", "-c", TOLD, str(victim)]
    leave_receipt(plant(purpose=PURPOSE, job={"argv": argv}))
    run_cli(["notebook", "thing", "--on", "plai"])
    assert (victim / "text").read_text() == "mine"


@pytest.mark.parametrize("link", [".envbuild", ".envbuild/jobs"])
def test_no_job_writes_through_a_link_of_the_folder(
    link: str,
    no_account: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client(tmp_path, monkeypatch, "sbatch", f"touch {tmp_path}/submitted; echo 77")
    victim = tmp_path / "thesis"
    (victim / "jobs").mkdir(parents=True)
    place = no_account / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(victim)
    assert run_cli([*AMANE, "--env", "KEY=x", "--", "./train"]) == 6
    assert f"error: {link}: is a link" in capsys.readouterr().err
    assert [path.name for path in victim.rglob("*")] == ["jobs"]
    assert not (tmp_path / "submitted").exists()


def test_no_file_is_removed_that_a_record_names(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "id_secret"
    victim.write_text("mine")
    leave_receipt(plant(job={"secrets": str(victim)}))
    client(tmp_path, monkeypatch, "sbatch", "echo 78")
    assert run_cli([*AMANE, "--", "./other"]) == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("words", [["attach", "77"], ["submit", "--again", "77"]])
def test_nothing_is_run_that_a_record_names(
    words: list[str],
    plant: Plant,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its variables are sourced on the node outside of the image, and it names folders to bind."""
    plant(job={"secrets": "/tmp/harm.env", "binds": [["/", "/host", True]]})
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr("envbuild.cli.attach.hand_over", lambda argv, _: seen.append(argv))
    capsys.readouterr()
    assert run_cli(words) == 6
    assert "job 77: the record of this job is not one that was written from here" in (
        capsys.readouterr().err
    )
    assert not seen


def test_a_foreign_record_of_the_same_number_stands_for_no_own_one(
    plant: Plant,
    no_account: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has another file name, and claims to be the newest."""
    foreign = plant(submitted="2999-01-01T00:00:00Z", job={"argv": ["./steal"]})
    foreign.rename(foreign.with_name("aaa.json"))
    assert run_cli([*AMANE, "--", "./mine"]) == 0
    receipt = json.loads(foreign.read_bytes())["receipt"]
    told = {"job": "77", "name": "thing", "code": 1, "node": "n", "started": "", "ended": ""}
    (no_account / receipt).write_text(json.dumps(told))
    client(tmp_path, monkeypatch, "squeue", "exit 1")
    capsys.readouterr()
    run_cli(["submit", "--again", "77", "--dry-run"])
    assert "./steal" not in capsys.readouterr().out


def test_a_verdict_that_came_with_the_folder_is_not_taken_up(
    plant: Plant, no_account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = f"sha256:{'1' * 64} quick"
    plant(purpose="check", subject=subject)
    client(tmp_path, monkeypatch, "sbatch", "echo 78")
    settings = load_settings(os.environ, no_account)
    context = quiet_context(settings)
    options: dict[str, Any] = {"level": "quick", "require_gpu": False, "account": None}
    record, _ = submit_check("plai", "./thing.sif", context, **options)
    assert record.id == "78"
    assert [found.id for found in load_own_records(settings)] == ["78"]
    assert [found.id for found in load_records(no_account)] == ["77", "78"]
    again, _ = submit_check("plai", "./thing.sif", context, **options)
    assert again.id == "78", "one of our own is taken up"


def test_a_folder_called_envbuild_is_not_taken_for_it(tmp_path: Path) -> None:
    """A check or build on a node starts in the project's folder."""
    (tmp_path / "envbuild").mkdir()
    (tmp_path / "envbuild/__init__.py").write_text("raise SystemExit('harm')")
    (tmp_path / "click.py").write_text("raise SystemExit('harm')")
    argv = (sys.executable, "-c", START, "--version")
    told = LocalRunner()(Command(argv=argv, cwd=tmp_path, timeout=60))
    assert told.stdout.startswith("envbuild ")


@pytest.mark.parametrize("number", ["--user=ada", "-1", "12 13", ""])
def test_no_id_is_an_option_of_the_scheduler(number: str, plant: Plant, no_account: Path) -> None:
    plant(id=number)
    assert load_records(no_account) == ()


def test_what_is_no_plain_file_is_passed_over(plant: Plant, no_account: Path) -> None:
    folder = plant().parent
    os.mkfifo(folder / "pipe.json")
    (folder / "device.json").symlink_to("/dev/zero")
    (folder / "folder.json").mkdir()
    assert [found.id for found in load_records(no_account)] == ["77"]


TWO_TASKS = {"first": 1, "last": 2}
LOOKING = (["status"], ["status", "--table", "77"], ["status", "--json"], ["logs", "77"])


@pytest.mark.parametrize(
    "changes",
    [
        *({"receipt": name} for name in ("", "/", ".", "a\0b.json", "/dev/zero", "\ud800")),
        *({"log": name} for name in ("a\0b", "/dev/zero", "a" * 5000)),
        *({"tasks": tasks} for tasks in ([5], [-1], [2**70], list(range(200_000)))),
        *({"site": name} for name in ("../../x", "a\0b", "plai\x1b[2J")),
        *({"submitted": name} for name in ("\x1b]0;x\x07", "\u202e\u200b\u2028")),
        {"tasks": [1, 2], "job": {"repeats": [1]}},
        {"job": {"table": {"names": ["a"], "rows": []}}},
        {"job": {"table": {"names": ["a", "b"], "rows": [["1"]]}}},
        {"job": {"table": {"names": ["a\x1b[2J"], "rows": [["\u2028"]]}}},
    ],
    ids=lambda changes: ascii(changes)[:40],
)
def test_one_whose_parts_do_not_fit_is_no_record(
    changes: dict[str, Any], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(**changes)
    capsys.readouterr()
    for words in (*LOOKING, ["submit", "--again", "77"]):
        assert run_cli(words) in (0, 2, 6, 7)
    told = capsys.readouterr()
    assert all(char.isprintable() or char == "\n" for char in told.out + told.err)


@pytest.mark.parametrize("change", [{"first": 1, "last": 10**30}, {"step": 0}, {"step": -1}])
def test_an_array_without_end_is_no_record(change: dict[str, int], plant: Plant) -> None:
    path = plant(tasks=[1])
    record = json.loads(path.read_bytes())
    record["job"]["intent"]["array"] = {**TWO_TASKS, **change}
    path.write_text(json.dumps(record))
    assert load_records(path.parents[2]) == ()


@pytest.mark.parametrize("place", ["record", "receipt", "values"])
@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 300_000,
        " " * 17_000_000,
        f'{{"schema":{"9" * 300_000}}}',
        "[1]",
        "NaN",
        "\udcff",
    ],
    ids=("deep list", "deep table", "17 MB", "long number", "list", "NaN", "no UTF-8"),
)
def test_what_is_no_record_is_passed_over(text: str, place: str, plant: Plant) -> None:
    path = plant()
    [record] = load_records(path.parents[2])
    places = {
        "record": path.with_name("plai-78.json"),
        "receipt": receipt_files(record, path.parents[2])[0],
        "values": result_file(record, path.parents[2], None),
    }
    if place == "values":
        leave_receipt(path)
    places[place].write_bytes(text.encode("utf-8", "surrogateescape"))
    for words in LOOKING[:-1]:
        assert run_cli(words) == 0


def note_of(recipe: Path) -> Path:
    """Return where the note of a change of a recipe lies, beside a recipe that is sound."""
    recipe.parent.mkdir()
    recipe.write_text('[recipe]\nname = "a"\n[base]\nbootstrap = "debian:bookworm"\n')
    return undo_path(recipe)


def test_no_file_is_written_that_a_note_of_a_change_names(tmp_path: Path) -> None:
    recipe, victim = tmp_path / "recipes/a.toml", tmp_path / "victim"
    note = Undo(recipe="theirs", lock_path=str(victim), lock="theirs", last="/nowhere", state=None)
    note_of(recipe).write_bytes(msgspec.json.encode(note))
    before = recipe.read_text()
    with pytest.raises(IntegrityError, match="was not written from here"):
        find_recipe("a", load_settings({"HOME": str(tmp_path)}, tmp_path))
    assert not victim.exists()
    assert recipe.read_text() == before


def test_nobody_waits_for_a_pipe_in_the_place_of_such_a_note(tmp_path: Path) -> None:
    recipe = tmp_path / "recipes/a.toml"
    os.mkfifo(note_of(recipe))
    with pytest.raises(UsageError, match="is no plain file"):
        find_recipe("a", load_settings({"HOME": str(tmp_path)}, tmp_path))


@pytest.mark.parametrize("plant", ["pipe", "loop", "root", "device"])
@pytest.mark.parametrize("name", ["recipes/a.toml", "lockfiles/a.lock", "a.dev.json", "a.sif"])
def test_what_is_no_plain_file_ends_with_a_word(
    name: str, plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_of(tmp_path / "recipes/a.toml")
    path = tmp_path / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if plant == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "root": "/", "device": "/dev/zero"}[plant])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    for words in (["list"], ["show", "a"], ["lock", "a", "--check"], ["verify", "a.sif"]):
        assert run_cli(words) in (0, 2, 4, 6)
