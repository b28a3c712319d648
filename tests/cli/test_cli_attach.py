"""``envbuild attach``: who is let in, and what is said to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli import run_cli
from tests.cli.test_cli_job import project, submitted
from tests.cli.test_cli_submit import client, no_account

__all__ = ["no_account", "project"]

SLURM = ["submit", "thing", "--on", "neuron:gpu1", "--env", "KEY=hush", "--gpus", "1"]


@pytest.mark.usefixtures("no_account")
def test_a_running_job_gets_a_second_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "echo 80")
    client(tmp_path, monkeypatch, "squeue", "echo '80|RUNNING|None|n3'")
    assert run_cli(SLURM) == 0
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr("envbuild.cli.attach.hand_over", lambda argv, _: seen.append(argv))
    run_cli(["attach", "80", "--", "nvidia-smi"])
    [argv] = seen
    assert argv[:-1] == ("srun", "--jobid=80", "--overlap", "--nodes=1", "--ntasks=1", "bash"), (
        "no terminal here"
    )
    script = Path(argv[-1]).read_text()
    assert "command=(nvidia-smi)" in script
    assert "--nv --cleanenv" in script
    assert ".env\n" in script, "it gets the variables of the job"
    assert "hush" not in script + capsys.readouterr().err


@pytest.mark.parametrize(
    ("site", "answer", "message"),
    [
        (
            "neuron:gpu1",
            "echo '80|PENDING|Priority|'",
            "job 80: it waits, so there is nothing to attach to",
        ),
        (
            "neuron:gpu1",
            "exit 1",
            "job 80: it is not known to the scheduler, so there is nothing to attach to",
        ),
        ("openpbs-compose", "exit 1", "attach: PBS lets nobody into a job that runs"),
    ],
)
@pytest.mark.usefixtures("no_account")
def test_who_is_not_let_in(
    *,
    site: str,
    answer: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("sbatch", "qsub"):
        client(tmp_path, monkeypatch, name, "echo 80")
    for name in ("squeue", "sacct", "scontrol", "qstat"):
        client(tmp_path, monkeypatch, name, answer)
    assert run_cli(["submit", "thing", "--on", site, "--gpus", "0"]) == 0
    assert run_cli(["attach", "80"]) == 2
    assert message in capsys.readouterr().err


def test_a_job_of_an_older_envbuild(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(project, "4000009")
    assert run_cli(["attach", "4000009"]) == 2
    assert "it runs in no image, or an older envbuild submitted it" in capsys.readouterr().err


@pytest.mark.usefixtures("no_account")
def test_an_array_has_many_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "echo 80")
    assert run_cli([*SLURM, "--array", "1-2"]) == 0
    assert run_cli(["attach", "80"]) == 2
    assert "it is an array, which has many nodes" in capsys.readouterr().err
