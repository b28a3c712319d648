"""Runs that go on: grids, failed tasks again, tables of results, time limits, words at the end."""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.job.conftest import Project
from tests.job.situations_live.place import NotHereError, Place, situation
from tests.support import wait_until


def results(project: Project, *words: str) -> list[dict[str, object]]:
    told = project.succeed("status", "--table", "--json", *words)
    rows: list[dict[str, object]] = json.loads(told.stdout)
    return rows


def receipt_paths(project: Project) -> list[Path]:
    return list((project.folder / ".envbuild/jobs").glob("*.receipt*.json"))


def wait_for(project: Project, job: str, text: str) -> None:
    log = project.folder / f"logs/tiny-{job}.log"
    wait_until(lambda: log.is_file() and text in log.read_text(), f"{text!r} is in the log")


def read_note(project: Project) -> str:
    """Return what --notify wrote, which it does after the receipt, with which the log ends."""
    told = project.folder / "told"
    wait_until(lambda: told.is_file() and told.read_text(), "the note is written")
    return told.read_text()


@situation
def what_failed_of_a_grid_runs_again(place: Place) -> None:
    project, site = place.project, place.scheduler
    text = (
        '[ "$TOKEN" = "s p" ] || exit 9; [ -e "ok-$1-$2" ] || exit 3; '
        'echo "{\\"loss\\": $1}" >"$ENVBUILD_RESULT"'
    )
    (project.folder / "ok-0.1-8").touch()
    first = place.run(
        *("submit", "./tiny.sif", "--on", site, "--wait", "--env", "TOKEN=s p"),
        *("--grid", "lr=0.1,0.01", "--grid", "width=8,16"),
        *("--", "sh", "-c", text, "x", "{lr}", "{width}"),
    )
    assert first.code == 3, first.stdout + first.stderr
    rows = results(project)
    points = [("0.1", "8"), ("0.1", "16"), ("0.01", "8"), ("0.01", "16")]
    assert [(row["lr"], row["width"]) for row in rows] == points
    assert [row["state"] for row in rows] == ["succeeded", "failed", "failed", "failed"]
    number = str(rows[0]["job"])

    for name in ("ok-0.1-16", "ok-0.01-8"):
        (project.folder / name).touch()
    again = place.run("submit", "--again", number, "--walltime", "20m", "--wait")
    assert again.code == 3, again.stdout + again.stderr
    assert f"3 of 4 tasks of job {number} (2, 3, 4)" in again.stderr
    rows = results(project, number)
    assert [row["state"] for row in rows] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert [row.get("attempts", 1) for row in rows] == [1, 2, 2, 2]

    # one task is no array on PBS; the last submission stands for the first
    (project.folder / "ok-0.01-16").touch()
    last = str(rows[3]["job"])
    assert place.run("submit", "--again", last, "--wait").code == 0
    told = project.run("status", "--csv", number)
    table = list(csv.DictReader(io.StringIO(told.stdout)))
    assert [(row["task"], row["lr"], row["loss"], row["code"]) for row in table] == [
        ("1", "0.1", "0.1", "0"),
        ("2", "0.1", "0.1", "0"),
        ("3", "0.01", "0.01", "0"),
        ("4", "0.01", "0.01", "0"),
    ]
    nothing = project.run("submit", "--again", number)
    assert (nothing.code, nothing.stdout) == (0, "")
    assert f"nothing of job {number} has failed" in nothing.stderr


@situation
def a_task_of_an_array_gets_its_old_number_again(place: Place) -> None:
    project, site = place.project, place.scheduler
    text = 'n=$SLURM_ARRAY_TASK_ID$PBS_ARRAY_INDEX; [ -n "$n" ] || n=$SGE_TASK_ID; [ -e ok ] || [ $n = 4 ]; echo done-$n'
    text = text.replace("; echo", " && echo")
    words = ("submit", "./tiny.sif", "--on", site, "--array", "4-8:2", "--wait")
    first = place.run(*words, "--", "sh", "-c", text)
    assert first.code == 1, first.stdout + first.stderr
    assert "done-4" in first.stdout
    (project.folder / "ok").touch()
    number = str(results(project)[0]["job"])
    again = place.succeed("submit", "--again", number, "--wait")
    assert "done-6" in again.stdout
    assert "done-8" in again.stdout
    assert "done-4" not in again.stdout
    assert [row["task"] for row in results(project, number)] == [4, 6, 8]


@situation
def what_a_job_used_is_in_log_receipt_and_table(place: Place) -> None:
    project, site = place.project, place.scheduler
    work = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 1"
    words = ("submit", "./tiny.sif", "--on", site, "--walltime", "10m")
    done = place.succeed(*words, "--wait", "--", "sh", "-c", work)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("envbuild: used ")]
    assert line.endswith("of 600 s")
    [receipt] = [json.loads(path.read_text()) for path in receipt_paths(project)]
    assert receipt["use"]["walltime"] == 600
    assert 0.05 < receipt["use"]["cores"] < 1.5
    assert 0 < receipt["use"]["memory"] < 64 << 20
    [row] = results(project)
    assert row["cores"] == receipt["use"]["cores"]
    left = [path.name for path in (project.folder / ".envbuild/jobs").glob("*.use*")]
    assert left == []


TRAINING = (
    'n=$(cat "$ENVBUILD_CHECKPOINT/step" 2>/dev/null || echo 0); '
    'trap "exit 0" TERM; echo "begins at $n"; '
    '[ "$n" = 0 ] || { echo "finished at $n"; exit 0; }; echo 7 >"$ENVBUILD_CHECKPOINT/step"; '
    "while :; do sleep 1; done"
)
"""Works until it is told to end; the second run has nothing left to do."""


@situation
def a_job_goes_on_after_its_time_limit(place: Place) -> None:
    project, site = place.project, place.scheduler
    # Slurm counts minutes; a busy machine takes long to start a container, and to put a job back
    walltime, warn = ("1m", "42s") if site == "slurm" else ("40s", "22s")
    limits = ("--walltime", walltime, "--warn", warn, "--requeue", "3")
    words = ("submit", "./tiny.sif", "--on", site, *limits)
    told = project.succeed(*words, "--checkpoint", "train", "--", "sh", "-c", TRAINING)
    if site == "slurm":
        wait_for(project, told.stdout.strip(), "back into the queue")
        place.start_at_once(told.stdout.strip())
    done = project.succeed("logs", told.stdout.strip(), "-f", timeout=300)
    assert "begins at 0\n" in done.stdout
    assert "envbuild: back into the queue, for run 2 of 4" in done.stdout
    assert done.stdout.count("begins at ") == 2
    assert "finished at 7\n" in done.stdout
    [receipt] = [json.loads(path.read_text()) for path in receipt_paths(project)]
    assert (receipt["code"], receipt["signal"], receipt["runs"]) == (0, "", 2)
    assert project.run("status").stdout.count("succeeded") == 1


WORKER = """
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

storage = JournalStorage(JournalFileBackend("study.journal"))
study = optuna.create_study(storage=storage, study_name="digits", load_if_exists=True)
study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=5)
"""


@situation
def the_tasks_of_an_array_share_one_study(place: Place) -> None:
    """Optuna's workers, with a Python of this machine: every trial is there once."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError as error:
        raise NotHereError("not installed: optuna") from error
    project, site = place.project, place.scheduler
    (project.folder / "tune.py").write_text(WORKER)
    packages = Path(optuna.__file__).parents[1]
    binds = [f"--bind={path}:{path}:ro" for path in ("/usr", str(packages))]
    words = ("submit", "./tiny.sif", "--on", site, *binds, "--array", "1-4", "--wait")
    python = f"PYTHONPATH={packages} exec {Path(sys.executable).resolve()} tune.py"
    done = project.succeed(*words, "--", "sh", "-c", python, timeout=180)
    assert "SQLite" not in done.stderr
    backend = optuna.storages.journal.JournalFileBackend(str(project.folder / "study.journal"))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(storage=storage, study_name="digits")
    assert sorted(trial.number for trial in study.trials) == list(range(20))
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}


NOTE = "echo \"$ENVBUILD_NAME $ENVBUILD_CODE $HOOK\" >>told; tr '\\0' ' ' </proc/$$/cmdline >>lines"


@situation
def the_end_of_a_job_is_told_once_with_a_secret_that_nobody_sees(place: Place) -> None:
    project, site = place.project, place.scheduler
    secret = "https://hooks.invalid/T0/hush-hush"
    words = ("submit", "./tiny.sif", "--on", site, "--env", "HOOK", "--notify", NOTE)
    done = place.run(*words, "--wait", "--", "sh", "-c", "exit 3", variables={"HOOK": secret})
    assert done.code == 3, done.stdout + done.stderr
    lines = wait_for_lines(project.folder / "told", 1)
    assert lines == [f"tiny 3 {secret}"]
    assert secret not in (project.folder / "lines").read_text()
    for path in (project.folder / ".envbuild/jobs").iterdir():
        hidden = path.suffix == ".env" and path.stat().st_mode & 0o077 == 0
        assert hidden or secret not in path.read_text()


@situation
def an_array_is_told_of_once_after_its_last_task(place: Place) -> None:
    project, site = place.project, place.scheduler
    text = 'n=${SLURM_ARRAY_TASK_ID:-${PBS_ARRAY_INDEX:-$SGE_TASK_ID}}; [ "$n" != 2 ] || sleep 4; exit "$n"'
    words = ("submit", "./tiny.sif", "--on", site, "--array", "1-4", "--notify")
    done = place.run(*words, 'echo "$ENVBUILD_CODE" >>told', "--wait", "--", "sh", "-c", text)
    assert done.code == 4, done.stdout + done.stderr
    assert wait_for_lines(project.folder / "told", 1) == ["4"]
    place.succeed(
        "submit", "./tiny.sif", "--on", site, "--notify", "exit 9", "--wait", "--", "sh", "-c", ":"
    )
    said = "the command of --notify failed (code 9)"
    logs = project.folder / "logs"
    wait_until(lambda: any(said in path.read_text() for path in logs.iterdir()), said)


def wait_for_lines(path: Path, count: int) -> list[str]:
    """Return the lines of a file; the job is known to have ended a moment before they are there."""
    wait_until(lambda: path.is_file() and path.read_text().count("\n") >= count, str(path))
    time.sleep(2)
    return path.read_text().splitlines()
