"""What changes while a job waits or runs: files, names, limits, and what the caller's shell says."""

from __future__ import annotations

import json
import shutil
import time

from tests.job.conftest import Project
from tests.job.situations_live.place import NotHereError, Place, situation
from tests.support import wait_until


def submit_held(place: Place, *words: str) -> str:
    return place.submit(f"--option={hold_option(place)}", *words)


def hold_option(place: Place) -> str:
    return place.pick(slurm="--hold", gridengine="-h", pbs="-h")


def release(place: Place, job: str) -> None:
    line = place.pick(slurm=f"scontrol release {job}", gridengine=f"qrls {job}", pbs=f"qrls {job}")
    place.client(*line.split())


@situation
def the_script_in_the_middle_of_a_chain_is_edited(place: Place) -> None:
    """Schedulers copy a script: what was submitted runs."""
    first = submit_held(place, "--", "sh", "-c", "echo 1 >>order")
    second = place.submit("--after", first, "--", "sh", "-c", "echo 2 >>order")
    third = place.submit("--after", second, "--", "sh", "-c", "echo 3 >>order; exit 4")
    record = place.folder / f".envbuild/jobs/{place.scheduler}-{second}.json"
    script = place.folder / json.loads(record.read_text())["script"]
    script.write_text("#!/bin/bash\nexit 66\n")
    release(place, first)
    followed = place.run("logs", third, "-f")
    assert followed.code == 4, followed.stdout + followed.stderr
    assert (place.folder / "order").read_text().split() == ["1", "2", "3"]


@situation
def the_project_moves_and_leaves_a_link(place: Place) -> None:
    inner, moved = place.folder / "inner", place.folder / "moved"
    inner.mkdir()
    (inner / "sites").symlink_to(place.folder / "sites")
    environment = place.project.environment
    words = ("submit", str(place.folder / "tiny.sif"), "--on", place.scheduler)
    command = (f"--option={hold_option(place)}", "--", "sh", "-c", "exit 5")
    submitted = Project(folder=inner, environment=environment).run(*words, *command)
    assert submitted.code == 0, submitted.stderr
    inner.rename(moved)
    inner.symlink_to(moved)
    job = submitted.stdout.strip()
    release(place, job)
    followed = Project(folder=moved, environment=environment).run("logs", job, "-f", timeout=200)
    assert followed.code == 5, followed.stdout + followed.stderr


SHELL = {
    "SHELLOPTS": "braceexpand:errexit:noclobber:nounset",
    "BASHOPTS": "failglob:nullglob",
    "POSIXLY_CORRECT": "1",
    "CDPATH": "/tmp",
    "LC_ALL": "C",
}


@situation
def what_the_shell_of_the_caller_says_changes_nothing(place: Place) -> None:
    home = place.folder / "home"
    for name in (".bashrc", ".profile", ".bash_profile", "noise"):
        (home / name).write_text("echo noise; echo more >&2\n")
    variables = {**SHELL, "BASH_ENV": str(home / "noise")}
    words = ("submit", "./tiny.sif", "--on", place.scheduler, "--walltime", "10m", "--requeue", "1")
    command = ("--wait", "--", "sh", "-c", 'echo "[$1]"; exit 5', "sh", "日本語 ü")
    done = place.run(*words, *command, variables=variables)
    assert done.code == 5, done.stdout + done.stderr
    assert "[日本語 ü]" in done.stdout


@situation
def the_folder_of_logs_has_become_a_file(place: Place) -> None:
    """Each scheduler tells it in its own way; nobody waits for such a job without end."""
    job = submit_held(place, "--", "sh", "-c", "exit 5")
    shutil.rmtree(place.folder / "logs", ignore_errors=True)
    (place.folder / "logs").write_text("")
    release(place, job)
    followed = place.run("logs", job, "-f")
    assert followed.code == 7, followed.stdout + followed.stderr
    told = place.pick(slurm="is there a log folder", gridengine="will never start", pbs="125")
    assert told in followed.stderr
    place.run("cancel", job)


@situation
def a_task_that_was_put_back_is_cancelled(place: Place) -> None:
    variable = place.pick(slurm="SLURM_ARRAY_TASK_ID", gridengine=None, pbs="PBS_ARRAY_INDEX")
    text = f"touch up-${variable}; while [ ! -e go ]; do sleep 0.2; done"
    job = place.submit("--array", "1-2", "--", "sh", "-c", text)
    place.wait_for("up-1")
    place.wait_for("up-2")
    if place.scheduler == "slurm":
        place.client("scontrol", "requeue", f"{job}_1")
        asked = ("squeue", "-h", "-r", "-j", f"{job}_1", "-o", "%T")
        wait_until(lambda: "PENDING" in place.client(*asked), "the task was put back")
    else:
        time.sleep(1)
        place.client("qrerun", f"{job}[1]")
    assert place.run("cancel", f"{job}[1]").code == 0
    (place.folder / "go").touch()
    followed = place.run("logs", job, "-f")
    assert followed.code == 143, followed.stdout + followed.stderr
    codes = {receipt["task"]: receipt["code"] for receipt in place.receipts()}
    assert codes == {"1": 143, "2": 0}


@situation
def a_job_is_put_back_and_held(place: Place) -> None:
    if place.scheduler != "slurm":
        raise NotHereError("not a matter of other schedulers")
    job = place.submit("--", "sh", "-c", "if [ -e ran ]; then exit 6; fi; touch ran; sleep 100")
    place.wait_for("ran")
    place.client("scontrol", "requeuehold", job)
    place.wait_for_state(job, "queued", "held")
    time.sleep(4)  # slurmd clears the first run away
    place.client("scontrol", "release", job)
    place.start_at_once(job)
    assert place.run("logs", job, "-f").code == 6


@situation
def a_job_is_renamed_in_the_queue(place: Place) -> None:
    job = submit_held(place, "--", "sh", "-c", "echo hello; exit 5")
    line = place.pick(
        slurm=f"scontrol update jobid={job} jobname=other",
        gridengine=f"qalter -N other {job}",
        pbs=f"qalter -N other {job}",
    )
    place.client(*line.split())
    release(place, job)
    followed = place.run("logs", job, "-f")
    assert followed.code == 5, followed.stdout + followed.stderr
    assert "hello" in followed.stdout
