"""What an ordinary user does on schedulers that root has set up: jobs that are told to end, grids, a notebook."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, Project, make_project
from tests.job.situations_live import SITUATIONS
from tests.job.situations_live.place import Place
from tests.job.tunnel import tunnel
from tests.support import needs, wait_until
from tests.tiny_image import AS_READER, open_folder
from tests.wrap.jupyter_image import put_jupyter_image

pytestmark = [
    *ON_SCHEDULERS,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    needs("setpriv", "setcap"),
]
NOBODY = 65534
RIGHTS = "cap_sys_admin,cap_sys_chroot,cap_sys_ptrace+ep"


def clients_of_nobody(clients: Path) -> Path:
    """Make the clients for another user: those of root enter the nodes' network for root alone."""
    root = clients.parents[1] if clients.parent.name == "pbs" else clients.parent
    own = open_folder() / f"clients-{clients.parent.name}"
    own.mkdir()
    shutil.copy(root / "enter", own / "enter")
    os.chown(own / "enter", NOBODY, NOBODY)
    (own / "enter").chmod(0o500)
    LocalRunner()(Command(argv=("setcap", RIGHTS, str(own / "enter"))))
    for client in clients.iterdir():
        text = client.read_text().replace(f"{root / 'enter'} ", f"{own / 'enter'} ")
        (own / client.name).write_text(text)
        (own / client.name).chmod(0o755)
    return own


@pytest.fixture(scope="module")
def own_clients(clients: Path) -> Path:
    """The clients of Slurm and Grid Engine for another user."""
    return clients_of_nobody(clients)


@pytest.fixture(scope="module")
def own_pbs_clients(pbs_clients: Path) -> Path:
    """The clients of PBS for another user."""
    return clients_of_nobody(pbs_clients)


@pytest.fixture
def project(own_clients: Path) -> Iterator[Project]:
    """A project of an ordinary user, who runs envbuild in it."""
    yield from project_of_nobody(own_clients)


@pytest.fixture
def pbs_project(own_pbs_clients: Path) -> Iterator[Project]:
    """The same at PBS."""
    yield from project_of_nobody(own_pbs_clients)


def project_of_nobody(clients: Path) -> Iterator[Project]:
    folder = Path(tempfile.mkdtemp(dir=open_folder()))
    project = make_project(folder, clients)
    project.environment["USER"] = "nobody"
    hand_over(folder)
    yield dataclasses.replace(project, prefix=AS_READER)
    # a cancelled job writes its receipt until it is gone
    wait_until(lambda: _is_removed(folder), "the project's folder is removed")


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def hand_over(folder: Path) -> None:
    """Give a folder to the ordinary user; images are linked, and stay root's."""
    for path in (folder, *folder.rglob("*")):
        if path.suffix != ".sif":
            os.chown(path, NOBODY, NOBODY)


def test_what_failed_of_a_grid_runs_again(project: Project) -> None:
    SITUATIONS["what_failed_of_a_grid_runs_again"](Place(scheduler="slurm", project=project))
    owners = {path.stat().st_uid for path in (project.folder / "logs").iterdir()}
    assert owners == {NOBODY}


SIGNALLED = (
    "a_handler_of_term_has_its_time_when_a_job_is_cancelled",
    "a_job_is_told_to_end_while_its_container_starts",
    "usr1_arrives_as_usr1",
    "too_much_memory_is_named",
)
"""What PBS does to an ordinary user's job: it signals the programs that serve the image's files, too."""


@pytest.mark.parametrize("name", SIGNALLED)
def test_pbs_signals_all_processes_of_a_job(pbs_project: Project, name: str) -> None:
    SITUATIONS[name](Place(scheduler="pbs", project=pbs_project))


@needs("mmdebstrap")
def test_the_page_of_a_notebook_comes_through_the_tunnel(
    project: Project, own_clients: Path, clients: Path
) -> None:
    put_jupyter_image(project.folder)
    hand_over(project.folder)
    result = project.succeed("notebook", "nb", "--on", "slurm", "--json")
    told = json.loads(result.stdout)
    try:
        address, _, port = told["tunnel"].split()[3].partition(":")[2].partition(":")
        addresses = {"node1": "10.98.0.1", "node2": "10.98.0.2"}
        with tunnel(clients, (addresses[address], int(port))) as near:
            url = urlsplit(told["url"])._replace(netloc=f"127.0.0.1:{near}")
            with urllib.request.urlopen(url.geturl(), timeout=60) as page:
                assert "<title>JupyterLab</title>" in page.read().decode()
    finally:
        project.run("cancel", told["job"])
