"""Agents of a sweep, and jobs that give way to others, on Slurm; a job that goes on, on this machine."""

from __future__ import annotations

import json

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, Project
from tests.job.situations_live.place import Place
from tests.job.situations_live.runs import (
    a_job_goes_on_after_its_time_limit,
    read_note,
    receipt_paths,
    wait_for,
)

pytestmark = ON_SCHEDULERS


def test_a_job_goes_on_after_its_time_limit_here(project: Project) -> None:
    a_job_goes_on_after_its_time_limit(Place(scheduler="local", project=project))


AGENT = """#!/bin/sh
[ "$1 $2 $3 $4" = "agent --count 1 lab/project/abc123" ] || exit 9
[ "$WANDB_API_KEY" = "{key}" ] || exit 8
echo "agent for $ENVBUILD_RESULT" >>agents
"""


def test_agents_of_a_sweep_get_the_key_and_nobody_else_does(project: Project) -> None:
    """A stand-in for wandb, whose server is not here: its line, and the way of the key."""
    key = "0a1b" * 10
    (project.folder / "wandb").write_text(AGENT.format(key=key))
    (project.folder / "wandb").chmod(0o755)
    words = ("submit", "./tiny.sif", "--on", "slurm", "--array", "1-3%2", "--env", "WANDB_API_KEY")
    agent = ("--wait", "--", "./wandb", "agent", "--count", "1", "lab/project/abc123")
    done = project.succeed(*words, *agent, WANDB_API_KEY=key)
    assert len((project.folder / "agents").read_text().splitlines()) == 3
    assert key not in done.stdout + done.stderr
    holders = [
        path
        for path in (project.folder / ".envbuild").rglob("*")
        if path.is_file() and key in path.read_text()
    ]
    assert {(path.suffix, path.stat().st_mode & 0o777) for path in holders} == {(".env", 0o600)}


SPARED = (
    'n=$(cat "$ENVBUILD_CHECKPOINT/step" 2>/dev/null || echo 0); '
    'trap "echo saved; exit 0" TERM; echo "begins at $n"; '
    '[ "$n" = 0 ] || exit 0; echo 7 >"$ENVBUILD_CHECKPOINT/step"; '
    "while :; do sleep 1; done"
)
"""Works until it is told to end; the second run finds what the first one saved."""


def test_a_preempted_job_is_told_at_once_and_goes_on(project: Project) -> None:
    """Slurm gives it thirty seconds and tells its steps alone; the script has one that listens."""
    words = ("--partition", "spare", "--gpus", "2", "--nodes", "2", "--walltime", "10m")
    told = project.succeed(
        *("submit", "./tiny.sif", "--on", "slurm", *words, "--requeue", "2", "--notify"),
        *('echo "told $ENVBUILD_CODE" >>told', "--", "sh", "-c", SPARED),
    )
    job = told.stdout.strip()
    wait_for(project, job, "begins at 0\n")
    project.succeed(
        "submit", "./tiny.sif", "--on", "slurm", "--gpus", "1", "--wait", "--", "sh", "-c", ":"
    )
    wait_for(project, job, "back into the queue")
    Place(scheduler="slurm", project=project).start_at_once(job)
    done = project.succeed("logs", job, "-f", timeout=120)
    assert "saved\n" in done.stdout
    assert "envbuild: ended with code 143: another job takes its place" in done.stdout
    assert "envbuild: back into the queue, for run 2 of 3" in done.stdout
    assert "begins at 7\n" in done.stdout
    # before the time was over that Slurm gives
    assert "DUE TO PREEMPTION" not in done.stdout
    assert read_note(project) == "told 0\n"
    receipts = [json.loads(path.read_text()) for path in receipt_paths(project)]
    assert {receipt["runs"] for receipt in receipts} == {1, 2}


def test_a_preempted_job_that_is_not_told_goes_on(project: Project) -> None:
    """As on clusters that give no time: the job is ended, and Slurm itself puts it back."""
    set_grace(project, 0)
    try:
        words = ("--partition", "spare", "--gpus", "2", "--nodes", "2", "--walltime", "10m")
        command = ("--requeue", "2", "--", "sh", "-c", SPARED)
        job = project.submit("--on", "slurm", *words, *command)
        wait_for(project, job, "begins at 0\n")
        urgent = (
            "submit",
            "./tiny.sif",
            "--on",
            "slurm",
            "--gpus",
            "1",
            "--wait",
            "--",
            "sh",
            "-c",
            ":",
        )
        assert project.run(*urgent).code == 0
        Place(scheduler="slurm", project=project).start_at_once(job)
        done = project.succeed("logs", job, "-f", timeout=120)
        assert "begins at 7\n" in done.stdout
    finally:
        set_grace(project, 30)


def set_grace(project: Project, seconds: int) -> None:
    """Set the seconds that jobs of the partition get before another one takes their place."""
    line = ("scontrol", "update", "PartitionName=spare", f"GraceTime={seconds}")
    LocalRunner()(Command(argv=line, env=project.environment, timeout=20))
