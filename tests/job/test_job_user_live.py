"""What an ordinary user does on a Slurm that root has set up: a grid, a run that goes on, a notebook."""

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
from tests.job.test_job_runs_live import goes_on, run_a_grid
from tests.job.tunnel import tunnel
from tests.support import needs
from tests.tiny_image import AS_READER, open_folder
from tests.wrap.jupyter_image import put_jupyter_image

pytestmark = [
    *ON_SCHEDULERS,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    needs("setpriv", "setcap"),
]
NOBODY = 65534
RIGHTS = "cap_sys_admin,cap_sys_chroot,cap_sys_ptrace+ep"


@pytest.fixture(scope="module")
def own_clients(clients: Path) -> Path:
    """The clients for another user: those of root enter the nodes' network for root alone."""
    enter = clients.with_name("enter-nobody")
    shutil.copy(clients.with_name("enter"), enter)
    os.chown(enter, NOBODY, NOBODY)
    enter.chmod(0o500)
    LocalRunner()(Command(argv=("setcap", RIGHTS, str(enter))))
    folder = clients.with_name("bin-nobody")
    folder.mkdir()
    for client in clients.iterdir():
        text = client.read_text().replace(f"{clients.with_name('enter')} ", f"{enter} ")
        (folder / client.name).write_text(text)
        (folder / client.name).chmod(0o755)
    return folder


@pytest.fixture
def project(own_clients: Path) -> Iterator[Project]:
    """A project of an ordinary user, who runs envbuild in it."""
    folder = Path(tempfile.mkdtemp(dir=open_folder()))
    project = make_project(folder, own_clients)
    project.environment["USER"] = "nobody"
    hand_over(folder)
    yield dataclasses.replace(project, prefix=AS_READER)
    shutil.rmtree(folder)


def hand_over(folder: Path) -> None:
    """Give a folder to the ordinary user; images are linked, and stay root's."""
    for path in (folder, *folder.rglob("*")):
        if path.suffix != ".sif":
            os.chown(path, NOBODY, NOBODY)


def test_what_failed_of_a_grid_runs_again(project: Project) -> None:
    run_a_grid(project, "slurm")
    owners = {path.stat().st_uid for path in (project.folder / "logs").iterdir()}
    assert owners == {NOBODY}


def test_a_job_goes_on_after_its_time_limit(project: Project) -> None:
    goes_on(project, "slurm")


@needs("mmdebstrap")
def test_the_page_of_a_notebook_comes_through_the_tunnel(
    project: Project, own_clients: Path, clients: Path
) -> None:
    put_jupyter_image(project.folder)
    hand_over(project.folder)
    result = project.run("notebook", "nb", "--on", "slurm", "--json")
    assert result.code == 0, result.stderr
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
