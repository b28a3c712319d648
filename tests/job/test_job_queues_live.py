"""Real queues that are closed or too short, and nodes that are lost while a job runs on them."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, PBS, SCRIPT, make_project
from tests.job.situations_live.place import NOTHING, Place
from tests.support import AS_ROOT, wait_until

pytestmark = ON_SCHEDULERS
PBS_QUEUE = ("qmgr", "-c")
SHORT = {
    "slurm": (
        ("scontrol", "update", "partition=gpu", "maxtime=1"),
        ("scontrol", "update", "partition=gpu", "maxtime=infinite"),
    ),
    "gridengine": (
        ("qconf", "-mattr", "queue", "h_rt", "0:1:0", "all.q"),
        ("qconf", "-mattr", "queue", "h_rt", "INFINITY", "all.q"),
    ),
    "pbs": (
        (*PBS_QUEUE, "set queue workq resources_max.walltime = 00:01:00"),
        (*PBS_QUEUE, "unset queue workq resources_max.walltime"),
    ),
}
"""How the longest time of the queue becomes a minute, and how it was before."""
CLOSED = {
    "slurm": (
        ("scontrol", "update", "partition=gpu", "state=inactive"),
        ("scontrol", "update", "partition=gpu", "state=up"),
    ),
    "pbs": (
        (*PBS_QUEUE, "set queue workq enabled = false"),
        (*PBS_QUEUE, "set queue workq enabled = true"),
    ),
}
"""How a queue takes no more jobs."""
AWAY = {
    "slurm": (
        ("scontrol", "update", "nodename=node1,node2", "state=drain", "reason=test"),
        ("scontrol", "update", "nodename=node1,node2", "state=resume"),
    ),
    "gridengine": (("qmod", "-d", "all.q"), ("qmod", "-e", "all.q")),
    "pbs": (("pbsnodes", "-o", "pbs1", "pbs2"), ("pbsnodes", "-r", "pbs1", "pbs2")),
}
"""How all nodes take no new jobs for a while."""


@pytest.fixture(params=["slurm", "gridengine", "pbs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    clients = request.getfixturevalue("pbs_clients" if request.param == "pbs" else "clients")
    return Place(scheduler=request.param, project=make_project(tmp_path, clients))


@contextlib.contextmanager
def changed(
    place: Place, commands: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
) -> Iterator[None]:
    """Change the scheduler for all, and change it back."""
    there, back = commands[place.scheduler]
    place.client(*there)
    try:
        yield
    finally:
        place.client(*back)


LONG = ("--walltime", "2h")


def test_a_queue_that_is_too_short_is_told_at_once(place: Place) -> None:
    with changed(place, SHORT):
        result = place.wait(*LONG, *NOTHING, code=None)
        # Slurm tells either reason, whichever of its threads looks at the job first
        told = place.pick(
            slurm="job 1 will never start: .* than the partition gives",
            gridengine="no queue can ever run this job",
            pbs="the job asks for more than its queue or the server gives",
        )
        plain = re.sub(r"job \d+", "job 1", result.stderr)
        assert len(list(re.finditer(told, plain))) == 1, result.stderr
        assert result.code in (7, 125)
        for job in re.findall(r"envbuild cancel (\d+)", result.stderr):
            place.run("cancel", job)
    place.wait(*LONG, *NOTHING)


def test_a_closed_queue_is_told(place: Place) -> None:
    if place.scheduler not in CLOSED:
        pytest.skip("a disabled queue of Grid Engine takes jobs, and lets them wait")
    with changed(place, CLOSED):
        told = place.refused(*NOTHING, code=7)
        assert (
            place.pick(
                slurm="Required partition not available",
                pbs="Queue is not enabled",
                gridengine=None,
            )
            in told
        )
    place.wait(*NOTHING)


def test_a_job_waits_for_nodes_that_are_away(place: Place) -> None:
    with changed(place, AWAY):
        job = place.submit("--", "sh", "-c", "exit 6")
        place.wait_for_state(job, "queued", "(?i)nodes|queues")
    if place.scheduler == "pbs":
        # a node that comes back starts no cycle of the scheduler, which has ten minutes for one
        place.client(*PBS_QUEUE, "set server scheduling = true")
    assert place.run("logs", job, "-f").code == 6


DAEMONS = {"slurm": "slurmd", "gridengine": "sge_execd", "pbs": "pbs_mom"}
"""What a node runs for its scheduler."""


def run_as_root(*argv: str) -> str:
    done = LocalRunner()(Command(argv=(*AS_ROOT, *argv), timeout=60), check=False)
    return done.stdout


SERVERS = (
    *("slurmctld", "slurmscriptd", "munged", "sge_qmaster"),
    *("pbs_server.bin", "pbs_sched", "pbs_comm", "pbs_ds_monitor", "postgres"),
)
"""What goes on when nodes crash; a slurmctld without its slurmscriptd never ends when it is told to."""


def kill_processes(place: Place, folder: Path, dies: Callable[[str], bool]) -> None:
    """Kill processes of all nodes, by their names: those in the tests' own networks, found by their numbers."""
    space = f"envbuild-{hashlib.md5(str(folder).encode(), usedforsecurity=False).hexdigest()[:8]}"
    spaces = (f"{space}-1", f"{space}-2") if place.scheduler == "pbs" else (space,)
    for one in spaces:
        for process in run_as_root("ip", "netns", "pids", one).split():
            name = run_as_root("cat", f"/proc/{process}/comm").strip()
            if dies(name):
                run_as_root("kill", "-KILL", process)
            if name == DAEMONS[place.scheduler]:
                wait_until_gone(Path(f"/proc/{process}"))


def wait_until_gone(process: Path) -> None:
    wait_until(lambda: not process.exists(), "the daemon has ended")


def start_daemons(place: Place, folder: Path, *options: str) -> None:
    if place.scheduler != "pbs":
        line = ("bash", str(SCRIPT), "start", str(folder))
        LocalRunner()(Command(argv=line, timeout=90))
        return
    for node in ("pbs1", "pbs2"):
        number = (folder / f"pbs/{node}.pid").read_text().strip()
        enter = ("nsenter", "-t", number, "-n", "-u", "-m", "--", "env", "-i")
        mom = str(PBS / "sbin/pbs_mom")
        run_as_root(*enter, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", mom, *options)


@pytest.fixture
def folder(place: Place, request: pytest.FixtureRequest) -> Path:
    """The folder that the schedulers were started with."""
    clients = request.getfixturevalue("pbs_clients" if place.scheduler == "pbs" else "clients")
    found: Path = clients.parents[1 if place.scheduler == "pbs" else 0]
    return found


def test_a_nodes_daemon_is_killed_while_a_job_runs(place: Place, folder: Path) -> None:
    """The job goes on, and its receipt tells how it ended, whatever the scheduler knows."""
    job = place.submit("--", "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.2; done; exit 6")
    place.wait_for("up")
    kill_processes(place, folder, lambda name: name == DAEMONS[place.scheduler])
    try:
        (place.folder / "go").touch()
        followed = place.run("logs", job, "-f")
        assert followed.code == 6, followed.stdout + followed.stderr
    finally:
        # jobs that run go on (pbs_mom(8B), -p)
        start_daemons(place, folder, "-p")
    place.wait("--", "sh", "-c", "exit 5", code=5)


def test_a_node_crashes(place: Place, folder: Path) -> None:
    """Slurm and PBS run the job again; Grid Engine does not, and nobody takes it for one that runs or succeeded."""
    job = place.submit("--", "sh", "-c", "if [ -e ran ]; then exit 6; fi; touch ran; sleep 100")
    place.wait_for("ran")
    # a sleep ends by itself, and one of them keeps PBS's node
    kill_processes(place, folder, lambda name: name not in (*SERVERS, "sleep"))
    if place.scheduler == "slurm":
        # what slurmctld does by itself after five minutes (slurm.conf(5), SlurmdTimeout)
        node = place.client("squeue", "-h", "-j", job, "-o", "%N").strip()
        place.client("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        start_daemons(place, folder)
        place.client("scontrol", "update", f"nodename={node}", "state=resume")
        place.start_at_once(job)
    else:
        start_daemons(place, folder)
    followed = place.run("logs", job, "-f")
    if place.scheduler == "gridengine":
        assert followed.code == 7, followed.stdout + followed.stderr
        assert "ended without a receipt" in followed.stderr
    else:
        assert followed.code == 6, followed.stdout + followed.stderr
    place.wait("--", "sh", "-c", "exit 5", code=5)
