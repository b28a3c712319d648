"""Jobs that give way to others, on PBS and Grid Engine: told, suspended, and started again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.job.conftest import ON_SCHEDULERS, Project, make_project
from tests.job.situations_live.runs import read_note, receipt_paths, wait_for
from tests.job.test_job_runs_live import SPARED
from tests.support import wait_until

pytestmark = ON_SCHEDULERS
CHECKPOINTS = """\
ckpt_name again
interface USERDEFINED
ckpt_command NONE
migr_command NONE
restart_command NONE
clean_command NONE
ckpt_dir /tmp
signal NONE
when xs
"""
"""A job of this environment that is suspended starts again (checkpoint(5))."""
NOTE = ("--notify", 'echo "told $ENVBUILD_CODE" >>told')
WORKS_ON = "echo 'begins at 0'; for n in 1 2 3 4 5 6 7 8 9; do sleep 1; done; echo finished"
"""Ends some seconds after it goes on: Apptainer may tell SIGCONT (146) for a command that ends at that moment."""
GOES_ON = ("--walltime", "10m", "--requeue", "2", *NOTE, "--", "sh", "-c", SPARED)


def client(project: Project, *words: str) -> Result:
    return LocalRunner()(Command(argv=words, env=project.environment, timeout=20))


def take_away(project: Project, *words: str) -> None:
    """Remove what the scheduler refuses to remove as long as it knows a job of it, also one just ended."""
    command = Command(argv=words, env=project.environment, timeout=20)
    wait_until(lambda: LocalRunner()(command, check=False).code == 0, " ".join(words))


@pytest.fixture
def pbs(tmp_path: Path, pbs_clients: Path) -> Iterator[Project]:
    """A PBS whose queue "express" takes the place of jobs of the usual one."""
    project = make_project(tmp_path, pbs_clients)
    words = "queue_type = execution, enabled = true, started = true, priority = 200"
    client(project, "qmgr", "-c", f"create queue express {words}")
    yield project
    take_away(project, "qmgr", "-c", "delete queue express")


@pytest.fixture
def grid(project: Project) -> Iterator[Project]:
    """A Grid Engine whose queue "urgent.q" suspends the jobs of the usual one."""
    usual = client(project, "qconf", "-sq", "all.q").stdout.splitlines()
    changed = {"qname": "qname urgent.q", "subordinate_list": "subordinate_list all.q=1"}
    text = "".join(f"{changed.get(line.split()[0], line)}\n" for line in usual if line.strip())
    (project.folder / "urgent").write_text(text)
    (project.folder / "again").write_text(CHECKPOINTS)
    client(project, "qconf", "-Aq", str(project.folder / "urgent"))
    client(project, "qconf", "-Ackpt", str(project.folder / "again"))
    client(project, "qconf", "-aattr", "queue", "ckpt_list", "again", "all.q")
    yield project
    take_away(project, "qconf", "-dq", "urgent.q")
    take_away(project, "qconf", "-dattr", "queue", "ckpt_list", "again", "all.q")
    take_away(project, "qconf", "-dckpt", "again")


def short_id(job: str) -> str:
    return job.partition(".")[0]


def start(project: Project, site: str, *words: str) -> str:
    job = short_id(project.submit("--on", site, *words))
    wait_for(project, job, "begins at 0\n")
    return job


def run_urgent(project: Project, site: str, queue: str) -> None:
    words = ("--partition", queue, "--walltime", "5m", "--wait", "--", "sh", "-c", "sleep 3")
    gpu = ("--gpus", "1") if site == "pbs" else ()
    project.succeed("submit", "./tiny.sif", "--on", site, *gpu, *words)


def check_second_run(project: Project, job: str) -> str:
    """Follow a job that goes on, and return its log."""
    done = project.succeed("logs", job, "-f", timeout=150)
    assert "begins at 7\n" in done.stdout
    [receipt] = [
        json.loads(path.read_text())
        for path in receipt_paths(project)
        if f'"{job}"' in path.read_text()
    ]
    assert (receipt["code"], receipt["runs"]) == (0, 2)
    assert read_note(project) == "told 0\n"
    return done.stdout


def test_pbs_tells_a_job_that_it_starts_again(pbs: Project) -> None:
    client(pbs, "qmgr", "-c", "set sched default preempt_order = R")
    job = start(pbs, "pbs", "--gpus", "2", "--nodes", "2", *GOES_ON)
    run_urgent(pbs, "pbs", "express")
    log = check_second_run(pbs, job)
    assert "saved\n" in log
    assert "envbuild: ended with code 143: PBS stops it and starts it again" in log
    assert "envbuild: back into the queue, for run 2 of 3" in log


def test_pbs_suspends_a_job_and_lets_it_go_on(pbs: Project) -> None:
    client(pbs, "qmgr", "-c", "set sched default preempt_order = S")
    words = ("sh", "-c", WORKS_ON)
    job = start(
        pbs,
        "pbs",
        "--gpus",
        "2",
        "--nodes",
        "2",
        "--requeue",
        "1",
        "--walltime",
        "10m",
        "--",
        *words,
    )
    run_urgent(pbs, "pbs", "express")
    done = pbs.succeed("logs", job, "-f")
    assert "finished\n" in done.stdout
    assert "back into the queue" not in done.stdout


COUNTS = (
    'trap "echo told after \\$n; exit 0" TERM; echo "begins at 0"; n=0; '
    'while [ "$n" -lt 60 ]; do sleep 1; n=$((n+1)); done'
)


def test_time_for_which_a_job_is_suspended_is_not_its_own(pbs: Project) -> None:
    """Else a job that has stood still would be told to end as soon as it goes on."""
    words = ("--walltime", "20s", "--warn", "4s", "--", "sh", "-c", COUNTS)
    job = start(pbs, "pbs", *words)
    client(pbs, "qsig", "-s", "suspend", job)
    time.sleep(16)
    assert "suspended" in pbs.run("status").stdout
    client(pbs, "qsig", "-s", "resume", job)
    done = pbs.run("logs", job, "-f")
    assert done.code == 143, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("told after")]
    assert int(line.split()[-1]) >= 7, done.stdout
    assert "ended with code 143: it reached its time limit of 20 s" in done.stdout


def test_pbs_leaves_no_command_that_hears_no_signal(pbs: Project) -> None:
    """For PBS itself the job has ended with the shell above its script."""
    text = "trap '' TERM; echo 'begins at 0'; while :; do sleep 1; done"
    job = start(pbs, "pbs", "--walltime", "10m", "--", "sh", "-c", text)
    assert pbs.run("cancel", job).code == 0
    wait_for(pbs, job, "envbuild: ended with code 137")
    assert receipt_paths(pbs)


def test_grid_engine_tells_a_job_that_it_starts_again(grid: Project) -> None:
    job = start(grid, "gridengine", "--partition", "all.q", *GOES_ON)
    client(grid, "qmod", "-rj", job)
    log = check_second_run(grid, job)
    assert "saved\n" in log
    assert "envbuild: ended with code 143: Grid Engine stops it and starts it again" in log


def test_grid_engine_suspends_a_job_and_lets_it_go_on(grid: Project) -> None:
    """Its notice (USR1) ends nobody."""
    words = ("sh", "-c", WORKS_ON)
    job = start(
        grid,
        "gridengine",
        "--partition",
        "all.q",
        "--walltime",
        "10m",
        "--requeue",
        "1",
        "--",
        *words,
    )
    run_urgent(grid, "gridengine", "urgent.q")
    done = grid.succeed("logs", job, "-f")
    assert "finished\n" in done.stdout
    assert "back into the queue" not in done.stdout


def test_a_job_of_a_checkpoint_environment_moves_instead(grid: Project) -> None:
    """Grid Engine ends it without a word, and starts it again."""
    words = ("--partition", "all.q", "--option=-ckpt again", *GOES_ON)
    job = start(grid, "gridengine", *words)
    run_urgent(grid, "gridengine", "urgent.q")
    check_second_run(grid, job)
