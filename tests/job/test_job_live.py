"""Real jobs: submitted, waited for, failed, cancelled, chained, run in arrays, and stopped at their time limit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from envbuild.run import LocalRunner
from tests.job.conftest import ON_SCHEDULERS, Project
from tests.project import SMALL, shared_store
from tests.support import wait_until

pytestmark = ON_SCHEDULERS
SECRET = 'it\'s $HOME "quoted", with commas'


def receipts(project: Project) -> list[dict[str, object]]:
    return [
        json.loads(path.read_text())
        for path in sorted((project.folder / ".envbuild/jobs").glob("*.receipt*.json"))
    ]


def gpu(site: str) -> tuple[str, ...]:
    return () if site == "local" else ("--gpus", "1")


def test_a_job_runs_in_the_image_and_its_code_comes_back(project: Project, site: str) -> None:
    text = 'echo "token=$TOKEN caller=${TOKEN_OF_CALLER:-none} home=$HOME image=$FROM_IMAGE"; touch made; ls /tmp; exit 7'
    result = project.run(
        "submit",
        "./tiny.sif",
        "--on",
        site,
        *gpu(site),
        "--env",
        f"TOKEN={SECRET}",
        "--wait",
        "--",
        "sh",
        "-c",
        text,
    )
    assert result.code == 7, result.stderr
    assert f"token={SECRET} caller=none home=/tmp image=yes" in result.stdout.splitlines()
    assert result.stdout.index("envbuild: image tiny.sif sha256:") < result.stdout.index("token=")
    assert (project.folder / "made").exists()
    [receipt] = receipts(project)
    assert (receipt["code"], receipt["site"], receipt["signal"]) == (7, site, "")
    assert not list(Path("/tmp").glob("envbuild-job.*/made"))
    for path in (project.folder / ".envbuild").rglob("*"):
        if path.is_file() and SECRET.replace("'", "'\"'\"'") in path.read_text():
            assert path.suffix == ".env"
            assert path.stat().st_mode & 0o777 == 0o600
    assert "leaked-by-environment" not in result.stdout


def test_a_running_job_is_cancelled(project: Project, site: str) -> None:
    job = project.submit("--on", site, *gpu(site), "--", "sh", "-c", "echo started; sleep 60")
    wait_for(project, job, "started")
    assert "running" in project.run("status", job).stdout
    assert project.run("cancel", job).code == 0
    wait_until(lambda: "running" not in project.run("status", job).stdout, "the job has ended")
    row = json.loads(project.run("status", job, "--json").stdout)[0]
    assert row["state"] in ("failed", "ended"), row


def wait_for(project: Project, job: str, text: str) -> None:
    wait_until(lambda: text in project.run("logs", job).stdout, f"{text!r} is in the log")


@pytest.mark.parametrize("site", ["slurm", "gridengine"])
def test_a_link_that_stands_in_the_place_of_a_log_once_its_job_starts(
    project: Project, site: str
) -> None:
    """Schedulers number jobs in order, and open the log when a job starts."""
    folder = project.folder
    (folder / "victim").write_text("mine\n")
    waits = "until [ -e go ]; do sleep 0.1; done"
    first = project.submit("--on", site, "--", "sh", "-c", waits)
    second = project.submit("--on", site, "--after", first, "--", "sh", "-c", "echo code")
    (folder / f"logs/tiny-{second}.log").symlink_to("../victim")
    (folder / "go").touch()
    wait_for(project, second, "envbuild: ended with code 0")
    assert (folder / "victim").read_text() == "mine\n"
    said = project.run("logs", second).stdout
    assert "in the place of this log was a link" in said
    assert "\ncode\n" in said


@pytest.mark.parametrize("site", ["local"])
def test_a_job_is_stopped_at_its_time_limit(project: Project, site: str) -> None:
    result = project.run(
        "submit", "./tiny.sif", "--on", site, "--walltime", "3s", "--wait", "--", "sleep", "50"
    )
    assert result.code not in (0, 7), result.stderr


def test_a_check_on_a_node_brings_its_verdict_back_after_a_lost_connection(
    project: Project, tmp_path: Path
) -> None:
    """The tiny image has no Python, so it fails; what matters is that the node said so, and that it is asked once."""
    check = project.command(
        "check", "./tiny.sif", "--on", "slurm", ENVBUILD_STORE=str(tmp_path / "store")
    )
    lost = subprocess.Popen(
        check.argv, cwd=check.cwd, env=dict(check.env or {}), stderr=subprocess.PIPE, text=True
    )
    assert lost.stderr is not None
    told = next(line for line in lost.stderr if line.startswith("submitted job"))
    lost.kill()
    lost.communicate()
    again = LocalRunner()(check, check=False)
    assert again.code == 1
    assert f"{told.split()[1]} {told.split()[2]} checks this image already" in again.stderr
    assert "tiny.sif: failed (0 passed, 1 failed" in again.stdout
    assert list((tmp_path / "store").rglob("verdicts/*/*.json"))
    assert len(list((project.folder / ".envbuild/jobs").glob("check-*.sh"))) == 1
    assert len(list((project.folder / ".envbuild/jobs").glob("*.seen"))) == 1


def test_an_image_is_built_by_a_job_whose_node_has_no_network(project: Project) -> None:
    """Lock and downloads are made here, the image there: the nodes of these schedulers see nothing but each other."""
    recipe = SMALL.replace('script = "check.py"\n', "")
    (project.folder / "recipes").mkdir()
    (project.folder / "recipes/small.toml").write_text(recipe)
    site = project.folder / "sites/slurm.toml"
    site.write_text(
        site.read_text()
        + '[build]\nnetwork = "login"\ncpus = 2\nmemory = "2GiB"\nwalltime = "20m"\n'
    )
    # where the index is, and whose certificates are believed, is in the machine's settings
    machine = {
        key: text
        for key, text in os.environ.items()
        if key not in project.environment and key[:4] != "XDG_"
    }
    store = {"ENVBUILD_STORE": str(shared_store()), "HOME": os.environ["HOME"]}
    project.succeed("make", "small", "--on", "slurm", timeout=300, variables={**machine, **store})
    assert (project.folder / "small.sif").is_file()
    assert (project.folder / "lockfiles/small.lock").is_file()
    code = "import six, docopt; print(six.__version__)"
    run = project.succeed("submit", "small", "--on", "slurm", "--wait", "--", "python", "-c", code)
    assert "1.16.0" in run.stdout.splitlines()
