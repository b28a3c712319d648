"""One table of situations, the same for every scheduler that is installed: what users do, and what clusters do to jobs.

Jobs mostly wait, so all situations of a scheduler run side by side, each in a folder of its own; the tests look at
what became of them.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, PBS, SCRIPT, make_project
from tests.job.situations_live import SITUATIONS
from tests.job.situations_live.place import NOTHING, NotHereError, Place
from tests.support import AS_ROOT, wait_until
from tests.tiny_image import tiny_image

pytestmark = ON_SCHEDULERS
AT_ONCE = 6
PBS_PATH = f"{PBS}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HAS_PBS = (PBS / "bin/qsub").is_file()


Outcomes = dict[str, "concurrent.futures.Future[None]"]
KINDS = ("slurm", "gridengine", "pbs")
FIRST = (
    "several_nodes_are_several",
    "ranks_of_srun_are_told_before_they_are_ended",
    "a_handler_of_term_has_its_time_at_the_limit",
    "the_time_limit_is_named",
    "a_command_that_will_not_end_is_ended_by_the_scheduler",
    "the_project_is_removed_while_the_job_waits",
)
"""Two nodes are hard to get while others run; the rest take longest."""


def attempt(scheduler: str, name: str, clients: Path, parent: Path) -> None:
    folder = parent / f"{scheduler}-{name}"
    folder.mkdir()
    project = make_project(folder, clients)
    project.environment["SMALL"] = str(clients.parents[1 if scheduler == "pbs" else 0] / "small")
    SITUATIONS[name](Place(scheduler=scheduler, project=project))


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Outcomes]]:
    """Run the situations that are asked for at all schedulers at the same time, a few of each."""
    tiny_image()  # made once, before many want it at the same time
    names: dict[str, list[str]] = {}
    folders: dict[str, Path] = {}
    for scheduler in KINDS:
        mine = f"test_a_situation[{scheduler}-"
        own = [item.name for item in request.session.items if item.name.startswith(mine)]
        if not own or (scheduler == "pbs" and not HAS_PBS):
            continue
        asked = [name[len(mine) : -1] for name in own]
        names[scheduler] = sorted(asked, key=lambda name: name not in FIRST)
        fixture = "pbs_clients" if scheduler == "pbs" else "clients"
        folders[scheduler] = request.getfixturevalue(fixture)
    pools = {scheduler: concurrent.futures.ThreadPoolExecutor(AT_ONCE) for scheduler in names}
    parent = tmp_path_factory.getbasetemp()
    found: dict[str, Outcomes] = {}
    try:
        for scheduler, pool in pools.items():
            found[scheduler] = {
                name: pool.submit(attempt, scheduler, name, folders[scheduler], parent)
                for name in names[scheduler]
            }
        yield found
    finally:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        end_children()


def end_children() -> None:
    """End what this process still runs: where the tests are interrupted, nobody waits for it."""
    started: list[str] = []
    for children in Path("/proc/self/task").glob("*/children"):
        # a thread may end before its list is read
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            started += children.read_text().split()
    for child in started:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(child), signal.SIGTERM)


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("scheduler", KINDS)
def test_a_situation(scheduler: str, name: str, outcomes: dict[str, Outcomes]) -> None:
    if scheduler not in outcomes:
        pytest.skip(f"not installed: OpenPBS in {PBS} (scripts/setup-schedulers.sh install SOURCE)")
    try:
        outcomes[scheduler][name].result()
    except NotHereError as error:
        pytest.skip(str(error))


def test_pbs_without_job_history(pbs_clients: Path, tmp_path: Path) -> None:
    """It is the default of a fresh server: -x shows nothing then, and a job that has ended is unknown at once."""
    place = Place(scheduler="pbs", project=make_project(tmp_path, pbs_clients))
    place.client("qmgr", "-c", "set server job_history_enable = false")
    try:
        job = place.submit("--", "sh", "-c", "touch up; sleep 65; exit 3")
        place.wait_for("up")
        [row] = json.loads(place.run("status", job, "--json").stdout)
        assert row["state"] == "running", row
        good = place.submit(*NOTHING)
        assert place.run("logs", good, "-f").code == 0
        place.shell("exit 5", "--after", good, code=5)
        assert place.run("logs", job, "-f").code == 3
        killed = place.submit("--option=-h", *NOTHING)
        place.client("qdel", killed)
        followed = place.run("logs", killed, "-f")
        assert followed.code == 7
        assert "PBS keeps no history" in followed.stderr
    finally:
        place.client("qmgr", "-c", "set server job_history_enable = true")


def stop_server(scheduler: str, folder: Path, place: Place) -> None:
    if scheduler == "slurm":
        os.kill(int((folder / "slurm/slurmctld.pid").read_text()), signal.SIGTERM)
    else:
        place.client(*{"gridengine": ("qconf", "-km"), "pbs": ("qterm", "-t", "quick")}[scheduler])


ASK = {"slurm": ("squeue",), "gridengine": ("qstat",), "pbs": ("qstat", "-B")}


def wait_until_down(place: Place) -> None:
    failed, asked = re.compile("(?i)error|cannot|refused"), ASK[place.scheduler]
    wait_until(lambda: failed.search(place.client(*asked)), "the server has stopped")


def start_server(scheduler: str, folder: Path) -> None:
    argv = ["bash", str(SCRIPT), "start", str(folder)]
    if scheduler == "pbs":
        node = (folder / "pbs/pbs1.pid").read_text().strip()
        argv = [
            *AS_ROOT,
            "nsenter",
            "-t",
            node,
            "-n",
            "-u",
            "-m",
            "--",
            "env",
            "-i",
            f"PATH={PBS_PATH}",
        ]
        argv += ["LANG=C.UTF-8", str(PBS / "libexec/pbs_init.d"), "start"]
    LocalRunner()(Command(argv=tuple(argv), timeout=90))


def wait_for_pbs_nodes(place: Place) -> None:
    """Wait until both nodes are back: that starts no cycle of PBS's scheduler, which has ten minutes for one."""
    asked = ("pbsnodes", "-a")
    wait_until(lambda: place.client(*asked).count("state = free") == 2, "both nodes are back")
    place.client("qmgr", "-c", "set server scheduling = true")


def wait_through_a_stop(scheduler: str, clients: Path, parent: Path) -> None:
    """Stop the server while a job runs and is waited for, longer than an unknown job has; then go on."""
    place = Place(scheduler=scheduler, project=make_project(parent, clients))
    folder = clients.parents[1 if scheduler == "pbs" else 0]
    job = place.submit("--", "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.2; done; exit 3")
    place.wait_for("up")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waited = pool.submit(place.run, "logs", job, "-f")
        time.sleep(1)
        stop_server(scheduler, folder, place)
        try:
            wait_until_down(place)
            refused = place.run("submit", "./tiny.sif", "--on", scheduler, *NOTHING)
            time.sleep(65)
        finally:
            start_server(scheduler, folder)
        (place.folder / "go").touch()
        followed = waited.result()
    assert followed.code == 3, followed.stdout + followed.stderr
    assert "the scheduler does not answer" in followed.stderr, followed.stderr
    assert "waiting goes on" in followed.stderr
    assert refused.code == 7, refused.stderr
    assert "the scheduler does not answer" in refused.stderr, refused.stderr
    if scheduler == "pbs":
        wait_for_pbs_nodes(place)
    place.shell("exit 5", code=5)


def test_servers_that_stop_while_a_job_is_waited_for(
    clients: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The real ones: slurmctld, sge_qmaster and, where it is installed, PBS's server."""
    tiny_image()
    folders = {"slurm": clients, "gridengine": clients}
    if HAS_PBS:
        folders["pbs"] = request.getfixturevalue("pbs_clients")
    with concurrent.futures.ThreadPoolExecutor(len(folders)) as pool:
        tasks = []
        for scheduler, found in folders.items():
            folder = tmp_path / scheduler
            folder.mkdir()
            tasks.append(pool.submit(wait_through_a_stop, scheduler, found, folder))
        for task in tasks:
            task.result()
