"""Schedulers that are away, what they refuse and what they say."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

from envbuild.run import Command, LocalRunner
from tests.job.situations_live.place import NOTHING, NotHereError, Place, situation
from tests.project import LISTENING
from tests.support import PATIENCE


@situation
def an_unknown_queue_is_refused(place: Place) -> None:
    result = place.run("submit", "./tiny.sif", "--on", f"{place.scheduler}:nosuch", *NOTHING)
    assert result.code == 7
    assert "no queue can ever run this job" in result.stderr


@situation
def what_can_never_run_is_told(place: Place) -> None:
    result = place.wait("--gpus", "9", *NOTHING, code=None)
    assert result.code in (7, 125), result.stderr
    assert re.search("will never start|can ever run|no node has", result.stderr), result.stderr
    if found := re.findall(r"envbuild cancel (\d+)", result.stderr):
        assert place.run("cancel", found[0]).code == 0


@situation
def options_as_they_are_and_those_that_envbuild_owns(place: Place) -> None:
    assert "quote that does not close" in place.refused("--option=--comment=it's", *NOTHING)
    owned = place.pick(
        slurm="--array=1-3 --output=x -ox -Jx",
        gridengine="-t -o -N -pe",
        pbs="-J1-3 -o -N -lselect=2",
    )
    for option in owned.split():
        told = place.refused(f"--option={option}", *NOTHING)
        assert "is an option that envbuild itself gives" in told, option
    option = place.pick(slurm="--comment='two words'", gridengine="-ac 'a=two words'", pbs="-m n")
    place.wait(f"--option={option}", *NOTHING)
    if place.scheduler == "slurm":
        job = place.submit("--option=--comment='two words'", "--option=--hold", *NOTHING)
        assert "Comment=two words" in place.client("scontrol", "show", "job", job)
        place.run("cancel", job)


@situation
def a_job_is_held_and_released(place: Place) -> None:
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", "--", "sh", "-c", "exit 8")
    place.client(
        *place.pick(
            slurm=f"scontrol release {job}", gridengine=f"qrls {job}", pbs=f"qrls {job}"
        ).split()
    )
    assert place.run("logs", job, "-f").code == 8


@situation
def a_running_job_is_shown(place: Place) -> None:
    job = place.submit(
        "--", "sh", "-c", "echo started; touch up; until [ -e go ]; do sleep 0.2; done"
    )
    place.wait_for("up")
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "running", row
    assert "started" in place.run("logs", job).stdout
    (place.folder / "go").touch()
    assert place.run("logs", job, "-f").code == 0


@situation
def a_command_on_a_node_with_this_terminal(place: Place) -> None:
    command = place.project.command(
        "submit",
        "./tiny.sif",
        "--on",
        place.scheduler,
        "--interactive",
        "--",
        "sh",
        "-c",
        "echo from=$FROM_IMAGE",
    )
    line = shlex.join(command.argv)
    # somebody sits there: qsub goes when its terminal ends
    typing = f"sleep 20 | script -qec {shlex.quote(line)} /dev/null"
    inner = Command(argv=("sh", "-c", typing), cwd=command.cwd, env=command.env, timeout=60)
    result = LocalRunner()(inner, check=False)
    assert "from=yes" in result.stdout, result.stdout + result.stderr


@situation
def a_second_command_beside_a_running_job(place: Place) -> None:
    job = place.submit("--", "sh", "-c", "touch up; sleep 60")
    place.wait_for("up")
    result = place.run("attach", job, "--", "sh", "-c", "exit 4")
    if place.scheduler == "slurm":
        assert result.code == 4, result.stderr
    else:
        assert result.code == 2
        assert "lets nobody into a job that runs" in result.stderr
    place.run("cancel", job)


@situation
def a_site_describes_itself_and_is_probed(place: Place) -> None:
    place.succeed("site", "init", "mine", "--scheduler", place.scheduler)
    text = (place.folder / "sites/mine.toml").read_text()
    assert re.search(r"^array = \d+$", text, re.MULTILINE), text
    assert "[[partition]]" in text
    place.succeed("site", "probe", "--on", "mine")
    assert re.search(
        r'^glibc = "\d\.\d+"$', (place.folder / "sites/mine.toml").read_text(), re.MULTILINE
    )
    ran = place.run(
        "submit",
        "./tiny.sif",
        "--on",
        "mine",
        "--memory",
        "2GiB",
        "--wait",
        "--",
        "sh",
        "-c",
        "exit 3",
    )
    assert ran.code == 3, ran.stdout + ran.stderr


@situation
def several_nodes_are_several(place: Place) -> None:
    if place.scheduler == "gridengine":
        raise NotHereError("a job gets one node where the site has no node types")
    result = place.run(
        "job",
        "./tiny.sif",
        "--on",
        place.scheduler,
        "--nodes",
        "2",
        "--launcher",
        "mpi",
        "--tasks",
        "2",
        *NOTHING,
    )
    lines = [
        line
        for line in result.stdout.splitlines()
        if line.startswith(("#PBS", "#SBATCH", "mapfile", '[ "${#hosts'))
    ]
    (place.folder / "logs").mkdir()
    script = place.folder / "two.sh"
    text = result.stdout.partition("program=$(")[0]
    script.write_text(text + 'printf "%s\\n" "${hosts[@]}" >hosts\nexit\n')
    assert lines
    number = place.client(
        *place.pick(slurm="sbatch --parsable two.sh", gridengine=None, pbs="qsub two.sh").split()
    )
    assert re.match(r"\d+", number), number
    place.wait_for("hosts")
    time.sleep(0.5)
    assert len(set((place.folder / "hosts").read_text().split())) == 2


@situation
def a_check_and_builds_by_jobs(place: Place) -> None:
    """The image has no Python and the recipes are broken: the nodes say so, and the command names them."""
    store = {"ENVBUILD_STORE": str(place.folder / "store")}
    words = ("check", "./tiny.sif", "--on", place.scheduler)
    checked = place.run(*words, variables=store)
    assert checked.code == 1, checked.stdout + checked.stderr
    assert "tiny.sif: failed (0 passed, 1 failed" in checked.stdout
    (place.folder / "recipes").mkdir()
    for name in ("one", "two"):
        text = f'[recipe]\nname = "{name}"\n[base]\nimage = "nosuch-{name}.sif"\n'
        (place.folder / f"recipes/{name}.toml").write_text(text)
    place.add_to_site('\n[build]\ncpus = 1\nwalltime = "5m"\n')
    made = place.run("make", "--all", "--on", place.scheduler, variables=store)
    assert made.code == 1, made.stderr
    assert "not built: one, two" in made.stderr
    assert "nosuch-one.sif" in made.stdout
    assert "nosuch-two.sif" in made.stdout


@situation
def ctrl_c_leaves_the_job_alone(place: Place) -> None:
    """The terminal sends the signal; here a timer does."""
    project, site = place.project, place.scheduler
    command = project.command(
        "submit", "./tiny.sif", "--on", site, "--wait", "--", "sh", "-c", "echo up; sleep 2; exit 6"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING, *command.argv[3:]],
        cwd=command.cwd,
        env=dict(command.env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    killer = threading.Timer(PATIENCE, process.kill)
    killer.start()
    for line in process.stdout:
        if line == "up\n":
            break
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    killer.cancel()
    assert process.returncode == 130
    assert "goes on. Follow it again: envbuild logs" in told
    [job] = [
        path.name.split("-", 1)[1].removesuffix(".json")
        for path in (project.folder / ".envbuild/jobs").glob(f"{site}-*.json")
    ]
    assert project.run("logs", job, "-f").code == 6
