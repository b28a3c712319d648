"""Signals, limits and kills."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from tests.job.situations_live.place import NOTHING, NotHereError, Place, situation
from tests.support import wait_until


def servers_of(image: Path) -> list[str]:
    """Return the FUSE programs that have the image open; root with all capabilities needs none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # processes end while they are looked at
        with contextlib.suppress(OSError):
            if "fuse" not in (process / "comm").read_text():
                continue
            if any(file.readlink() == image for file in (process / "fd").iterdir()):
                found.append(process.name)
    return found


@situation
def a_handler_of_term_has_its_time_when_a_job_is_cancelled(place: Place) -> None:
    # what serves the image's files must live on: ls was not read before
    text = 'trap "sleep 0.7; ls / >saved; exit 9" TERM; touch up; while :; do sleep 0.2; done'
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    assert place.run("logs", job, "-f").code == 9
    assert "bin" in (place.folder / "saved").read_text().split()


@situation
def a_job_is_told_to_end_while_its_container_starts(place: Place) -> None:
    """The signal is not lost, and the code is not the runtime's own."""
    job = place.submit("--", "sleep", "90")
    log = place.folder / f"logs/tiny-{job}.log"
    wait_until(lambda: log.exists() and "envbuild: GPU" in log.read_text(), "the script has begun")
    assert place.run("cancel", job).code == 0
    assert place.run("logs", job, "-f").code == 143
    assert [receipt["code"] for receipt in place.receipts()] == [143]


@situation
def a_command_that_ends_with_0_when_it_is_stopped_has_not_succeeded(place: Place) -> None:
    job = place.submit(
        "--", "sh", "-c", 'trap "exit 0" TERM; touch up; while :; do sleep 0.2; done'
    )
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    assert place.run("logs", job, "-f").code == 143
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "failed"


@situation
def a_job_that_waits_is_cancelled(place: Place) -> None:
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", "--", "touch", "ran")
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "queued", row
    assert place.run("cancel", job).code == 0
    followed = place.run("logs", job, "-f", timeout=60)
    assert followed.code == 7, followed.stderr
    assert "cancelled" in followed.stderr, followed.stderr
    assert not (place.folder / "ran").exists()


@situation
def one_task_of_an_array_is_cancelled(place: Place) -> None:
    text = "touch up-$(cat /proc/sys/kernel/random/uuid); while [ ! -e go ]; do sleep 0.2; done"
    job = place.submit("--array", "1-2", "--", "sh", "-c", text)
    wait_until(lambda: len(list(place.folder.glob("up-*"))) == 2, "both tasks run")
    assert place.run("cancel", f"{job}[2]").code == 0
    assert place.run("cancel", f"{job}[7]").code == 2
    wait_until(lambda: len(place.receipts()) == 1, "the task has ended")
    (place.folder / "go").touch()
    assert place.run("logs", job, "-f").code == 143
    codes = {receipt["task"]: receipt["code"] for receipt in place.receipts()}
    assert codes == {"1": 0, "2": 143}


@situation
def the_time_limit_is_named(place: Place) -> None:
    limit = place.pick(slurm="1m", gridengine="5s", pbs="5s")
    result = place.shell("sleep 300", "--walltime", limit, code=None)
    # on a busy machine PBS may kill before the receipt is written, and its word counts then
    assert result.code != 0, result.stderr
    assert "it reached its time limit" in result.stdout + result.stderr, (
        result.stdout + result.stderr
    )


@situation
def too_much_memory_is_named(place: Place) -> None:
    if place.scheduler == "gridengine":
        raise NotHereError("h_vmem lets the allocation fail, and nobody is killed")
    if place.scheduler == "pbs" and place.by_root:
        raise NotHereError("this PBS measures nothing of root's jobs (resources_used.mem = 0kb)")
    hog = (
        "a=aaaaaaaa; i=0; while [ $i -lt 25 ]; do a=$a$a; i=$((i+1)); done; sleep 40; echo survived"
    )
    result = place.shell(hog, "--memory", "60MiB", code=None)
    assert result.code != 0
    assert "survived" not in result.stdout
    assert "memory" in result.stderr + result.stdout


@situation
def a_job_that_is_killed_outright(place: Place) -> None:
    """It cannot remove its folder on the node's disk; the next job does."""
    disk = place.folder / "disk"
    disk.mkdir()
    place.add_to_site(f'\n[folders]\nlocal = ["{disk}"]\n')
    text = "touch up; sleep 60"
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    # all nodes are this machine; the script is the shell that stands in the project folder
    shells = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            folder, words = (
                process.joinpath("cwd").readlink(),
                process.joinpath("cmdline").read_bytes(),
            )
        except OSError:
            continue
        if folder == place.folder and b"bash" in words.split(b"\0")[0]:
            shells.append(int(process.name))
    assert shells
    for shell in shells:
        # one of them may have been on its way to become another program
        with contextlib.suppress(ProcessLookupError):
            os.kill(shell, 9)
    followed = place.run("logs", job, "-f", timeout=120)
    assert followed.code == 7, followed.stdout + followed.stderr
    assert "ended without a receipt" in followed.stderr
    assert "used more memory" not in followed.stderr
    image = place.folder / "tiny.sif"
    wait_until(lambda: not servers_of(image), "what served the image has ended")
    assert list(disk.iterdir())

    def removed() -> bool:
        place.wait(*NOTHING)
        return not list(disk.iterdir())

    # its last processes may still be there
    wait_until(removed, "the folder is removed")


@situation
def usr1_arrives_as_usr1(place: Place) -> None:
    # it comes twice on PBS, and Apptainer tells 138 of a command that has ended when the second comes
    text = (
        "trap 'touch warned' USR1; touch up; while [ ! -e warned ]; do sleep 0.2; done; "
        "sleep 1; sleep 1; exit 3"
    )
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    number = job
    place.client(
        *place.pick(
            slurm=f"scancel --batch --signal=USR1 {number}",
            gridengine=None,
            pbs=f"qsig -s USR1 {number}",
        ).split()
    )
    followed = place.run("logs", job, "-f")
    if place.scheduler == "pbs" and not place.by_root:
        # it ends the login shell above the script, too, and PBS kills what is left of a user's job
        assert followed.code == 7, followed.stdout + followed.stderr
        assert "signal 10 ended it (exit code 138)" in followed.stderr
        return
    assert followed.code == 3


@situation
def a_job_that_runs_again(place: Place) -> None:
    text = "if [ -e ran ]; then exit 6; fi; touch ran; sleep 60"
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("ran")
    time.sleep(1)
    place.client(
        *place.pick(slurm=f"scontrol requeue {job}", gridengine=None, pbs=f"qrerun {job}").split()
    )
    if place.scheduler == "slurm":
        place.start_at_once(job)
    assert place.run("logs", job, "-f").code == 6


RANKS = """\
touch "up-$SLURM_PROCID"
trap 'touch "warned-$SLURM_PROCID"' USR1
trap 'touch "saved-$SLURM_PROCID"; exit 9' TERM
while :; do sleep 0.2; done
"""


@situation
def ranks_of_srun_are_told_before_they_are_ended(place: Place) -> None:
    """A warning to the script reaches the ranks (srun itself would kill them), and one to the ranks harms none."""
    if place.scheduler != "slurm":
        raise NotHereError("not a matter of schedulers without a starter of their own")
    (place.folder / "ranks.sh").write_text(RANKS)
    words = ("--launcher", "lightning", "--nodes", "2", "--gpus", "2", "--cpus", "1")
    job = place.submit(*words, "--", "sh", "ranks.sh")
    place.wait_for("up-0")
    place.wait_for("up-1")
    # what --signal=USR1@90 and --signal=B:TERM@60 do when the time comes
    place.client("scancel", "--signal=USR1", job)
    place.wait_for("warned-0")
    place.wait_for("warned-1")
    place.client("scancel", "--batch", "--signal=TERM", job)
    followed = place.run("logs", job, "-f")
    assert followed.code == 9, followed.stdout + followed.stderr
    assert (place.folder / "saved-0").exists()
    assert (place.folder / "saved-1").exists()


@situation
def a_handler_of_term_has_its_time_at_the_limit(place: Place) -> None:
    # a busy machine may take 10 s to start a container
    limit = place.pick(slurm="1m", gridengine="25s", pbs="25s")
    # a command that ends at once may have the code of a signal
    text = 'trap "ls / >saved; sleep 0.7; exit 9" TERM; while :; do sleep 0.2; done'
    result = place.shell(text, "--walltime", limit, code=9)
    assert "bin" in (place.folder / "saved").read_text().split()
    assert "it reached its time limit" in result.stdout + result.stderr


@situation
def a_command_that_will_not_end_is_ended_by_the_scheduler(place: Place) -> None:
    """It has no time for a receipt then, and the end is told all the same."""
    job = place.submit("--", "sh", "-c", 'trap "" TERM; touch up; while :; do sleep 1; done')
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    followed = place.run("logs", job, "-f", timeout=120)
    assert followed.code not in (0, 1), followed.stdout + followed.stderr
    assert "cancelled" in followed.stderr or "signal" in followed.stderr, followed.stderr
    image = place.folder / "tiny.sif"
    wait_until(lambda: not servers_of(image), "what served the image has ended")


@situation
def a_process_that_the_command_leaves_behind(place: Place) -> None:
    result = place.shell("(sleep 90; touch late) & echo gone; exit 3", code=3)
    assert "gone" in result.stdout


@situation
def a_suspended_job_is_no_lost_one(place: Place) -> None:
    # Apptainer tells 146 of a command that has ended when it is resumed itself
    text = "while [ ! -e go ]; do touch up; sleep 0.2; done; sleep 1; sleep 1; exit 3"
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    stop = place.pick(
        slurm=f"scontrol suspend {job}", gridengine=f"qmod -sj {job}", pbs=f"qsig -s suspend {job}"
    )
    go_on = place.pick(
        slurm=f"scontrol resume {job}", gridengine=f"qmod -usj {job}", pbs=f"qsig -s resume {job}"
    )
    place.client(*stop.split())
    place.wait_for_state(job, "running", "suspended")
    (place.folder / "up").unlink(missing_ok=True)
    place.client(*go_on.split())
    place.wait_for("up")
    time.sleep(1)
    (place.folder / "go").touch()
    assert place.run("logs", job, "-f").code == 3
