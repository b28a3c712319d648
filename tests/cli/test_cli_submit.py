"""``envbuild submit`` from the command line, with clients that are small scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli import run_cli
from tests.cli.test_cli_job import project

__all__ = ["project"]


def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


AMANE = ["submit", "thing", "--on", "plai", "--gpus", "1"]


@pytest.fixture
def no_account(project: Path) -> Path:
    """The project, its recipe without an account."""
    recipe = project / "recipes/thing.toml"
    recipe.write_text(recipe.read_text().replace('account = "lab"\n', ""))
    return project


def test_submit_prints_the_id_and_how_to_go_on(
    no_account: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "echo 77")
    assert run_cli([*AMANE, "--env", "KEY=secret value"]) == 0
    told = capsys.readouterr()
    assert told.out == "77\n"
    assert told.err.endswith("submitted job 77 to plai: envbuild logs 77 -f, envbuild cancel 77\n")
    [secret] = (no_account / ".envbuild/jobs").glob("*.env")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (
        secret.read_text()
        == "export APPTAINERENV_KEY='secret value' SINGULARITYENV_KEY='secret value'\n"
    )
    [script] = (no_account / ".envbuild/jobs").glob("*.sh")
    assert "secret" not in script.read_text().replace("secrets", "")


@pytest.mark.usefixtures("no_account")
def test_a_dry_run_submits_nothing(
    no_account: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "touch submitted")
    assert run_cli([*AMANE, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith(
        "# sbatch --parsable SCRIPT\n#!/bin/bash\n#SBATCH --job-name=thing\n"
    )
    assert not (no_account / ".envbuild").exists()


@pytest.mark.usefixtures("no_account")
def test_envbuilds_own_failure_while_waiting_is_not_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "echo 'sbatch: error: no' >&2; exit 1")
    assert run_cli([*AMANE, "--wait"]) == 125
    assert run_cli(AMANE) == 7
    assert run_cli([*AMANE, "--", "x", "--wait"]) == 7
    assert "the job was refused; sbatch said (exit code 1):" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wait", "--interactive"], "--wait and --interactive cannot be used together"),
        (
            ["--interactive", "--array", "1-2"],
            "an interactive job is one job that starts when you wait for it",
        ),
        (["--env", "NOT_SET_HERE"], "NOT_SET_HERE: --env names a variable that is not set here"),
        (["--env-file", "nosuch"], "nosuch: cannot be read"),
        (["--each", "nosuch.csv"], "nosuch.csv: cannot be read as CSV"),
        (["--output", "x-{id}-{task}"], "output: {task} is for arrays"),
        (["--memory", "16"], "--memory: '16' is not an amount of memory"),
        (["--nodes", "0"], "0 is not in the range x>=1"),
        (["--bind", "nosuch"], "nosuch: the file or folder to bind does not exist"),
    ],
)
@pytest.mark.usefixtures("no_account")
def test_bad_flags(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    client(tmp_path, monkeypatch, "sbatch", "echo never >&2; exit 1")
    assert run_cli([*AMANE, *arguments]) == (125 if "--wait" in arguments else 2)
    err = capsys.readouterr().err
    assert message in err
    assert "never" not in err


@pytest.mark.usefixtures("no_account")
def test_interactive_hands_the_terminal_to_the_client(
    no_account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr("envbuild.cli.submit.hand_over", lambda argv, _: seen.append(argv))
    client(tmp_path, monkeypatch, "sbatch", "echo 78")
    run_cli([*AMANE, "--interactive", "--", "python"])
    [argv] = seen
    assert argv[:2] == ("srun", "--job-name=thing")
    assert argv[-3:-1] == ("--pty", "bash")
    script = Path(argv[-1]).read_text()
    assert "command=(python)" in script
    assert "#SBATCH" not in script
    assert "trap 'stop TERM' TERM" not in script


def test_what_failed_is_submitted_again_unless_its_record_was_changed(
    no_account: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A record names what is bound and run, and comes along with a copied folder."""
    client(tmp_path, monkeypatch, "sbatch", "echo 77")
    assert run_cli([*AMANE, "--env", "KEY=secret value", "--", "./train"]) == 0
    jobs = no_account / ".envbuild/jobs"
    client(tmp_path, monkeypatch, "sbatch", "echo 78")
    client(
        tmp_path,
        monkeypatch,
        "squeue",
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    )
    capsys.readouterr()
    assert run_cli(["submit", "--again", "77", "--dry-run", "--memory", "8GiB"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --mem=8G" in script
    assert "command=(./train)" in script
    record = jobs / "plai-77.json"
    record.write_text(record.read_text().replace("./train", "./steal"))
    assert run_cli(["submit", "--again", "77"]) == 6
    assert "is not one that was written from here" in capsys.readouterr().err
    assert not (jobs / "plai-78.json").exists()
    assert run_cli(["submit", "thing", "--again", "77"]) == 2
    assert "--again runs the same job" in capsys.readouterr().err
