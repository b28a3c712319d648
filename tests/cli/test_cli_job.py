"""``envbuild job``, ``status``, ``logs`` and ``cancel`` from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.job.model import Record
from envbuild.job.track.records import save_own_record
from envbuild.settings import load_settings

RECIPE = """\
[recipe]
name = "thing"
[base]
bootstrap = "debian:bookworm"
[run]
command = ["python", "train.py"]
[job]
gpus = 1
walltime = "2h"
account = "lab"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a recipe, and something that looks like its image."""
    folder = tmp_path / "project"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/thing.toml").write_text(RECIPE)
    (folder / "thing.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ENVBUILD_SITE", raising=False)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(
        "envbuild.formats.sif_reader.image_digest", lambda *_, **__: "sha256:" + "1" * 64
    )
    return folder


@pytest.mark.usefixtures("project")
def test_the_script_is_printed_and_nothing_is_done(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    assert (
        run_cli(["job", "thing", "--on", "tsubame4", "--", "python", "train.py", "--lr", "a b"])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("#!/bin/bash\n#$ -N thing\n")
    assert "command=(python train.py --lr 'a b')" in out
    assert "#$ -l h_rt=02:00:00" in out
    assert sorted(path.name for path in project.iterdir()) == ["recipes", "thing.sif"]


@pytest.mark.usefixtures("project")
def test_what_follows_the_dashes_is_a_command_and_no_name(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    assert run_cli(["job", "--on", "tsubame4", "--", "python", "train.py"]) == 0
    alone = capsys.readouterr().out
    assert run_cli(["job", "thing", "--on", "tsubame4", "--", "python", "train.py"]) == 0
    assert capsys.readouterr().out == alone
    (project / "recipes/other.toml").write_text(RECIPE.replace('"thing"', '"other"'))
    assert run_cli(["job", "--on", "tsubame4", "--", "python", "train.py"]) == 2
    assert "which recipe? ./recipes holds several: other, thing" in capsys.readouterr().err
    assert run_cli(["job", "--wrong", "--", "python"]) == 2
    assert "envbuild job --help" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_the_recipes_command_and_a_partition_behind_the_site(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["job", "thing", "--for", "alliance-cedar:gpu", "--gpus", "v100l:4"]) == 0
    out = capsys.readouterr().out
    assert "command=(python train.py)" in out
    assert "#SBATCH --partition=gpu\n#SBATCH --account=lab\n" in out
    assert "#SBATCH --gres=gpu:v100l:4" in out


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["job", "thing"], "error: --on: which site?", 2),
        (["job", "thing"], "to run the job on this machine, add: --on local\n", 2),
        (["job", "run.sh"], 'error: there is no recipe called "run.sh"', 2),
        (["submit", "run.sh"], 'error: there is no recipe called "run.sh"', 2),
        (["job", "run.sh", "--on", "amame"], 'there is no site called "amame"', 2),
        (["notebook", "thing", "--on"], "for instance: --on amane (known: abci2, ", 2),
        (["kernel", "thing", "--prefix"], "what to do: envbuild kernel --help", 2),
        (
            ["job", "thing", "--on", "amame"],
            'there is no site called "amame"; did you mean "amane"?',
            2,
        ),
        (["job", "./thing.sif", "--on", "local"], "error: ./thing.sif: which command?", 2),
        (
            ["job", "thing", "--on", "amane"],
            "error: site amane: account: this site knows no accounts",
            2,
        ),
        (
            ["job", "thing", "--on", "local", "--", "cat", "/tmp"],
            "/tmp cannot be seen inside the container",
            2,
        ),
        (["job", "thing", "--on", "local", "python", "--epochs", "3"], "put -- before that", 2),
        (["status", "99"], "error: job 99 was not submitted from this folder", 2),
        (["logs", "99"], "error: job 99 was not submitted from this folder", 2),
        (["cancel", "99"], "error: job 99 was not submitted from this folder", 2),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_goes_wrong(
    arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(arguments) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["job", "nothing", "--gpus", "two"], "two: --gpus takes a number, or TYPE:NUMBER"),
        (["submit", "nothing", "--on", "local", "--walltime", "3"], "--walltime: '3' is no time"),
        (["notebook", "nothing", "--memory", "9"], "--memory: "),
        (["kernel", "nothing", "--on", "amane", "--gpus", "x"], "x: --gpus takes a number"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_wrong_value_is_told_before_an_image_is_asked_for(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "nothing" not in told


@pytest.mark.usefixtures("project")
def test_the_walltime_of_a_recipe_counts_for_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["job", "thing", "--on", "local", "--warn", "5m", "--", "true"]) == 0
    script = capsys.readouterr().out
    assert "walltime=7200\n" in script
    assert "tell_at_end 6900 " in script  # five minutes before


def submitted(
    project: Path,
    job: str,
    *,
    tasks: tuple[int, ...] = (),
    pattern: str = "thing-{id}",
    **receipt: object,
) -> None:
    record = Record(
        id=job,
        site="local",
        name="thing",
        script="s",
        log=f"logs/{pattern}.log",
        receipt=f"logs/{pattern}.json",
        tasks=tasks,
        submitted="2026-01-01T00:00:00Z",
    )
    save_own_record(record, load_settings(os.environ, project))
    (project / "logs").mkdir(exist_ok=True)
    if receipt:
        data = {"job": job, "name": "thing", "node": "n1", "started": "a", "ended": "b", **receipt}
        (project / f"logs/thing-{job}.json").write_text(json.dumps(data))


def test_status_tells_what_the_receipts_say(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(project, "4000001", code=0)
    submitted(project, "4000002", code=143, signal="TERM")
    submitted(project, "4000003")
    assert run_cli(["status", "--json"]) == 0
    rows = {
        row["job"]: (row["state"], row["detail"]) for row in json.loads(capsys.readouterr().out)
    }
    assert rows == {
        "4000001": ("succeeded", "code 0 on n1"),
        "4000002": ("failed", "code 143 on n1, signal TERM"),
        "4000003": ("unknown", "the scheduler does not know it"),
    }
    assert run_cli(["status", "4000001"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["4000001", "local", "thing"]


def test_an_array_is_told_in_the_order_of_its_tasks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {"job": "5", "name": "thing", "started": "a", "ended": "b", "signal": "", "reason": ""}
    submitted(project, "5", tasks=(1, 2, 10), pattern="thing-{id}-{task}")
    for number, code in ((10, 0), (2, 3), (1, 1)):
        receipt = {**task, "code": code, "node": f"n{number}"}
        (project / f"logs/thing-5-{number}.json").write_text(json.dumps(receipt))
        (project / f"logs/thing-5-{number}.log").write_text(f"{number}\n")
    assert run_cli(["status", "5", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["detail"] == "2 of 3 tasks failed, code 3 on n1"
    assert run_cli(["logs", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("==>")] == ["1", "2", "10"]


@pytest.mark.usefixtures("project")
def test_status_of_an_empty_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["status"]) == 0
    assert capsys.readouterr().out == "no job was submitted from this folder\n"


def test_logs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(project, "4000001", code=5)
    assert run_cli(["logs", "4000001"]) == 2
    assert "the job has written nothing yet" in capsys.readouterr().err
    (project / "logs/thing-4000001.log").write_bytes(b"one\n\xfftwo\n")
    assert run_cli(["logs", "4000001"]) == 0
    assert capsys.readouterr().out == "one\n\ufffdtwo\n"
    assert run_cli(["logs", "4000001", "-f"]) == 5


def test_logs_without_an_id_are_those_of_the_last_job(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["logs"]) == 2
    assert "no job was submitted from this folder" in capsys.readouterr().err
    submitted(project, "4000001", code=0)
    submitted(project, "4000002", code=3)
    (project / "logs/thing-4000002.log").write_text("the last one\n")
    assert run_cli(["logs"]) == 0
    assert capsys.readouterr().out == "the last one\n"
    assert run_cli(["logs", "-f"]) == 3


def test_an_ended_job_is_not_cancelled(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(project, "4000001", code=0)
    assert run_cli(["cancel", "4000001"]) == 0
    assert "has ended already" in capsys.readouterr().err


RECIPES_LOGS = ("{home}/.bashrc.d/{{id}}", "out/{{id}}.pth")


@pytest.mark.parametrize("pattern", RECIPES_LOGS)
def test_a_recipes_log_stays_in_the_project(
    pattern: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a job prints is its recipe's word, and in such places it would be code of the user."""
    (project / "out").symlink_to(tmp_path)
    output = pattern.format(home=tmp_path)
    text = RECIPE.replace('account = "lab"\n', f'output = "{output}"\n')
    (project / "recipes/thing.toml").write_text(text)
    assert run_cli(["job", "thing", "--on", "plai"]) == 2
    told = capsys.readouterr().err
    assert f"[job] output: {output!r} lies outside of the project" in told
    assert run_cli(["job", "thing", "--on", "plai", "--output", output]) == 0


@pytest.mark.parametrize(("target", "code"), [(".bashrc.d", 2), ("scratch", 0)])
def test_a_folder_of_logs_that_is_a_link(
    target: str, code: int, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logs on another disk are usual; programs read what lies in hidden folders of HOME."""
    (tmp_path / target).mkdir()
    (project / "logs").symlink_to(tmp_path / target)
    (project / "recipes/thing.toml").write_text(RECIPE.replace('account = "lab"\n', ""))
    assert run_cli(["job", "thing", "--on", "plai"]) == code
    refused = "logs: is a link that leads into a hidden folder outside of the project"
    assert (refused in capsys.readouterr().err) is (code == 2)


def test_what_a_recipe_asks_of_the_user_is_told(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The recipe may be somebody else's: it came with a copied folder."""
    (tmp_path / "keys").mkdir()
    (project / "data").mkdir()
    monkeypatch.setenv("CLOUD_KEY", "word")
    more = f'environment = ["CLOUD_KEY", "NOT_SET"]\nstage = ["data", "{tmp_path}/keys"]\n'
    (project / "recipes/thing.toml").write_text(RECIPE.replace('account = "lab"\n', "") + more)
    assert run_cli(["job", "thing", "--on", "plai"]) == 0
    told = capsys.readouterr().err
    assert "note: the recipe hands these variables of yours on to the job: CLOUD_KEY\n" in told
    assert (
        f"note: the recipe copies this to the node, from outside of the project: {tmp_path}/keys\n"
        in told
    )
