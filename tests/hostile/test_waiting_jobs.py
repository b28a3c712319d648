"""What a program of an image, or another user of the node, prepares for a job that still waits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.job.schedulers.protocol import script_text
from envbuild.run import Command, LocalRunner
from envbuild.script_files import read_script
from tests.cli.test_cli_job import project

__all__ = ["project"]
TSUBAME = ("--on", "tsubame4", "--account", "lab", "--", "./train")
LOG = "logs/thing-7.log"


@pytest.fixture
def script(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a job that has the number 7."""
    assert run_cli(["job", "thing", *TSUBAME]) == 0
    path = project / "job.sh"
    path.write_text(capsys.readouterr().out)
    return path


def start(script: Path) -> int:
    """Run it as Grid Engine and Slurm do, which open the log by its name; return its code."""
    env = {"PATH": os.environ["PATH"], "JOB_ID": "7", "BASH_FUNC_module%%": "() { :; }"}
    with (script.parent / LOG).open("ab") as log:
        ran = subprocess.run(
            ["bash", str(script)], cwd=script.parent, env=env, stdout=log, stderr=log, check=False
        )
    return ran.returncode


@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_a_log_that_became_a_link_while_its_job_waited(
    kind: str, script: Path, tmp_path: Path
) -> None:
    """A program of the image, which may write into the project, guesses the number of the next job."""
    victim, log = tmp_path / ".bashrc", script.parent / LOG
    victim.write_text("mine\n")
    log.parent.mkdir()
    if kind == "link":
        log.symlink_to(victim)
    else:
        log.hardlink_to(victim)
    assert start(script) == 125  # there is no image
    assert victim.read_text() == "mine\n"
    assert not log.is_symlink()
    first, *_, last = log.read_text().splitlines()
    assert first.startswith("envbuild: in the place of this log was a link")
    assert last == "envbuild: ended with code 125"


def test_a_folder_of_logs_that_became_a_link(script: Path, tmp_path: Path) -> None:
    """Shells run each file of such a folder at login."""
    hidden = tmp_path / ".bashrc.d"
    hidden.mkdir()
    (script.parent / "logs").symlink_to(hidden)
    assert start(script) == 125
    assert [path.read_text() for path in hidden.iterdir()] == [""]


def test_a_log_in_its_place_stays(script: Path) -> None:
    log = script.parent / LOG
    log.parent.mkdir()
    log.write_text("of the run before\n")
    assert start(script) == 125
    first, second, *_ = log.read_text().splitlines()
    assert first == "of the run before"
    assert "link" not in second


@pytest.mark.parametrize("depth", ["x", "x/mine"])
def test_no_folder_of_a_node_that_any_user_may_exchange(depth: str, tmp_path: Path) -> None:
    """Without the sticky bit, whoever may write to a folder may put his own in the place of a job's."""
    folder = tmp_path / "x/mine"
    folder.mkdir(parents=True)
    (tmp_path / depth).chmod(0o777)
    text = read_script("envbuild.job", "scripts/node_local.sh", folders=str(folder))
    command = Command(argv=("bash", "-c", f"set -u\n{text}\nnode_local"))
    assert LocalRunner()(command).stdout == "/tmp\n"
    (tmp_path / depth).chmod(0o1777)
    assert LocalRunner()(command).stdout == f"{folder}\n"


def test_nor_data_for_a_job_where_no_folder_can_be_used(tmp_path: Path) -> None:
    functions = "".join(script_text(name) for name in ("scratch.sh", "staging.sh"))
    for call in ("make_scratch", "stage"):
        script = f"set -u\ntoken=x\nfail() {{ exit 125; }}\nnode_local() {{ fail; }}\n{functions}{call}\ntouch '{tmp_path}/hit'"
        ran = LocalRunner()(Command(argv=("bash", "-c", script)), check=False)
        assert ran.code == 125
    assert not (tmp_path / "hit").exists()
