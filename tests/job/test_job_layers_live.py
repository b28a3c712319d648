"""Development layers in jobs of several ranks, in a folder that each node mounts for itself as it would mount NFS.

The folder is mounted over sftp by FUSE, as a kernel without NFS can do no better: it has no extended attributes and no
locks that another node sees, and each node remembers attributes for some seconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import Project
from tests.job.test_job_nodes_live import mpi_project
from tests.support import needs

SERVER = Path("/usr/lib/openssh/sftp-server")
CACHED_SECONDS = 5
"""How long a node may go on seeing a file of the shared folder as it was (`dcache_timeout` of sshfs(1))."""
pytestmark = [
    pytest.mark.live,
    needs("apptainer", "sbatch", "qsub", "ip", "nsenter", "sshfs", "fusermount3", "mpirun"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a folder for each node"),
    pytest.mark.skipif(not SERVER.exists(), reason="not installed: openssh-sftp-server"),
    pytest.mark.skipif(
        not Path("/usr/lib/python3/dist-packages/mpi4py").is_dir(), reason="not installed: mpi4py"
    ),
]


def node_processes(kind: str, request: pytest.FixtureRequest) -> list[int]:
    """Return a process of each node, which has mounts of its own."""
    if kind == "pbs":
        folder = request.getfixturevalue("pbs_clients").parent
        return [int((folder / f"pbs{n}.pid").read_text()) for n in (1, 2)]
    folder = request.getfixturevalue("clients").parent
    if kind == "gridengine":
        return [int(path.read_text()) for path in folder.glob("grid/spool/execd/*/execd.pid")]
    return [int((folder / f"slurm/node{n}.pid").read_text()) for n in (1, 2)]


def run_in(process: int | None, *words: str) -> None:
    """Run a command among the mounts of a process; None: of this one."""
    enter = () if process is None else ("nsenter", "-t", str(process), "-m", "--")
    LocalRunner()(Command(argv=(*enter, *words), timeout=30))


@pytest.fixture(params=["slurm", "gridengine", "pbs"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def shared(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that this machine and each node have mounted over sftp, each for itself."""
    (tmp_path / "server").mkdir()
    folder = tmp_path / "shared"
    folder.mkdir()
    connect = tmp_path / "connect"
    connect.write_text(f"#!/bin/sh\nexec {SERVER}\n")
    connect.chmod(0o755)
    options = f"ssh_command={connect},allow_other,dcache_timeout={CACHED_SECONDS}"
    mount = ("sshfs", "-o", options, f"server:{tmp_path}/server", str(folder))
    places = [None, *node_processes(kind, request)]
    done: list[int | None] = []
    try:
        for process in places:
            run_in(process, *mount)
            done.append(process)
        yield folder
    finally:
        for process in done:
            run_in(process, "fusermount3", "-u", "-z", str(folder))


CODE = """
import os, humanize, my_lib
from mpi4py import MPI
world = MPI.COMM_WORLD
where = world.gather((os.uname().nodename, humanize.__version__, my_lib.WORD, humanize.__file__))
if world.rank == 0:
    print("ranks", world.size, "saw", sorted({row[1:3] for row in where}))
    print("from", sorted({row[3] for row in where}))
"""
PROJECT = '[project]\nname = "my-lib"\nversion = "0.1"\n'


def test_ranks_on_two_nodes_see_a_layer_on_a_shared_disk(
    kind: str, request: pytest.FixtureRequest, shared: Path
) -> None:
    project: Project = mpi_project(kind, request, shared)
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(project.folder / "mpi.sif", "user.x", b"1")
    library = project.folder / "lib/my_lib"
    library.mkdir(parents=True)
    (library.parent / "pyproject.toml").write_text(PROJECT)
    (library / "__init__.py").write_text("WORD = 'first'\n")
    words = ("add", "--dev", "--over", "mpi.sif", "ranks", "humanize==4.9.0", "-e", "lib")
    project.succeed(*words, timeout=300)
    (project.folder / "hello.py").write_text(CODE)
    nodes = () if kind == "gridengine" else ("--nodes", "2")
    job = ("submit", "ranks", "--on", kind, "--launcher", "mpi", "--tasks", "4", "--cpus", "1")
    for word in ("first", "second"):
        (library / "__init__.py").write_text(f"WORD = {word!r}\n")
        # a node that read the file for the job before may see the old one until then, as on a real network disk
        time.sleep(CACHED_SECONDS + 1)
        done = project.succeed(*job, *nodes, "--wait", "--", "python3", "hello.py", timeout=200)
        assert f"ranks 4 saw [('4.9.0', '{word}')]" in done.stdout
        [place] = re.findall(r"^from \['(\S+)'\]$", done.stdout, re.MULTILINE)
        assert str(project.folder) not in place, "it is in the layer, not in a folder"
    assert not list(project.folder.glob("*.sqfs.*")), "nothing half-written is left"
