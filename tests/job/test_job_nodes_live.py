"""Real jobs on two nodes of Slurm, data on their disks, a shell beside a job, and jobs that are ended from outside."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, PBS, Project, make_project
from tests.job.mpi_image import TORCHRUN, mpi_image
from tests.support import needs, wait_until

pytestmark = ON_SCHEDULERS
has_mpi = pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/mpi4py").is_dir(),
    reason="not installed: python3-mpi4py",
)
HELLO = (
    "import os; from mpi4py import MPI; w = MPI.COMM_WORLD; "
    "print('rank', w.rank, 'of', w.size, 'sum', w.allreduce(w.rank), 'on', os.uname().nodename)"
)
MPI_SITE = """
[mpi]
start = "mpirun"
environment = { OMPI_ALLOW_RUN_AS_ROOT = "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = "1", OMPI_MCA_oob_tcp_if_include = "lo", \
OMPI_MCA_btl_tcp_if_include = "lo" }
inside = { OMPI_MCA_btl_vader_single_copy_mechanism = "none" }
"""


def wait_for(project: Project, job: str, text: str) -> None:
    wait_until(lambda: text in project.run("logs", job).stdout, f"{text!r} is in the log")


PBS_SITE = """
[mpi]
start = "mpirun"
environment = {{ OMPI_ALLOW_RUN_AS_ROOT = "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = "1", OMPI_MCA_plm_rsh_agent = "{agent}", \
OMPI_MCA_oob_tcp_if_include = "10.96.0.0/24", OMPI_MCA_btl_tcp_if_include = "10.96.0.0/24" }}
inside = {{ OMPI_MCA_btl_vader_single_copy_mechanism = "none" }}
"""
AGENT = """#!/bin/sh
# an Open MPI without PBS's library starts its daemons so; pbs_tmrsh runs no shell by itself
host=$1; shift
exec {prefix}/bin/pbs_tmrsh "$host" /bin/sh -c "$*"
"""


def mpi_project(kind: str, request: pytest.FixtureRequest, folder: Path) -> Project:
    """Make a project with the image of mpi4py, at a site whose launcher is the host's mpirun."""
    clients = request.getfixturevalue("pbs_clients" if kind == "pbs" else "clients")
    project = make_project(folder, clients)
    shutil.copy(mpi_image(), project.folder / "mpi.sif")
    site = project.folder / f"sites/{kind}.toml"
    agent = project.folder / "agent"
    agent.write_text(AGENT.format(prefix=PBS))
    agent.chmod(0o755)
    more = PBS_SITE.format(agent=agent) if kind == "pbs" else MPI_SITE
    site.write_text(site.read_text() + more)
    # naming it by its path says that it is meant
    project.run("job", "./mpi.sif", "--on", f"sites/{site.name}", "--", "true")
    return project


@needs("mpirun")
@has_mpi
@pytest.mark.parametrize("kind", ["slurm", "gridengine", "pbs"])
def test_ranks_of_mpi_find_each_other_in_the_image(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The launcher is the host's; the two ranks are on two nodes, but on one of Grid Engine."""
    project = mpi_project(kind, request, tmp_path)
    nodes = () if kind == "gridengine" else ("--nodes", "2")
    words = ("--on", kind, "--launcher", "mpi", "--tasks", "2", "--cpus", "1", *nodes, "--wait")
    result = project.succeed("submit", "./mpi.sif", *words, "--", "python3", "-c", HELLO)
    lines = result.stdout.splitlines()
    assert "envbuild: 2 ranks found each other" in lines
    found = re.findall(r"^rank (\d) of 2 sum 1 on (\S+)$", result.stdout, flags=re.MULTILINE)
    assert {rank for rank, _ in found} == {"0", "1"}
    # Slurm's two nodes are this machine, and ranks of mpirun see its own name
    assert kind != "pbs" or {node for _, node in found} == {"pbs1", "pbs2"}


@needs("mpirun")
@has_mpi
@pytest.mark.parametrize(("kind", "node"), [("slurm", "node"), ("pbs", "pbs")])
def test_torchrun_gets_ranks_hosts_and_port_from_the_allocation(
    kind: str, node: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Slurm's srun starts one torchrun on each node; on PBS mpirun does."""
    project = mpi_project(kind, request, tmp_path)
    package = project.folder / "torch/distributed"
    package.mkdir(parents=True)
    (package / "run.py").write_text(TORCHRUN)
    code = (
        "from os import environ as e, uname; "
        "print('rank', e['RANK'], 'of', e['WORLD_SIZE'], 'on', uname().nodename, 'threads', e['OMP_NUM_THREADS'])"
    )
    words = ("--launcher", "torchrun", "--nodes", "2", "--tasks", "4", "--cpus", "1", "--wait")
    line = ("submit", "./mpi.sif", "--on", kind, *words, "--", "python3", "-c", code)
    result = project.succeed(*line)
    form = rf"^rank (\d) of 4 on ({node}\d) threads 1$"
    found = set(re.findall(form, result.stdout, flags=re.MULTILINE))
    assert {rank for rank, _ in found} == {"0", "1", "2", "3"}
    assert {name for _, name in found} == {f"{node}1", f"{node}2"}


def test_one_task_per_gpu_knows_its_rank(project: Project) -> None:
    """Lightning reads SLURM_PROCID; two GPUs are on two nodes here."""
    text = 'echo "rank=$SLURM_PROCID of $SLURM_NTASKS at $MASTER_ADDR:$MASTER_PORT gpu=$CUDA_VISIBLE_DEVICES"'
    words = (
        "--on",
        "slurm",
        "--launcher",
        "lightning",
        "--gpus",
        "tesla:2",
        "--wait",
        "--",
        "sh",
        "-c",
        text,
    )
    result = project.succeed("submit", "./tiny.sif", *words)
    found = re.findall(r"^rank=(\d) of 2 at node1:(\d+) gpu=0$", result.stdout, flags=re.MULTILINE)
    assert {rank for rank, _ in found} == {"0", "1"}
    assert len({port for _, port in found}) == 1
    assert 10000 <= int(found[0][1]) < 30000


def data(project: Project) -> Path:
    """A folder with a link that leads out of it, an archive, and a folder for node-local data."""
    (project.folder / "data/images").mkdir(parents=True)
    (project.folder / "data/images/one").write_text("image\n")
    (project.folder.parent / "elsewhere").write_text("linked\n")
    (project.folder / "data/images/two").symlink_to(project.folder.parent / "elsewhere")
    (project.folder / "word").write_text("text\n")
    with tarfile.open(project.folder / "data/texts.tar.gz", "w:gz") as archive:
        archive.add(project.folder / "word", "in/word")
    local = project.folder / "local"
    local.mkdir()
    return local


@pytest.mark.parametrize("site", ["slurm", "gridengine", "local"])
def test_data_is_on_the_nodes_disk_at_its_own_path_and_gone_after(
    project: Project, site: str
) -> None:
    local = data(project)
    text = "cat data/images/one data/images/two data/texts/in/word; touch data/images/new || echo read-only"
    words = (
        "--stage",
        "data/images",
        "--stage",
        "data/texts.tar.gz",
        "--wait",
        "--",
        "sh",
        "-c",
        text,
    )
    two = ("--launcher", "lightning", "--gpus", "2") if site == "slurm" else ()
    result = project.succeed("submit", "./tiny.sif", "--on", site, *two, *words, TMPDIR=str(local))
    lines = result.stdout.splitlines()
    for line in ("image", "linked", "text", "read-only"):
        assert lines.count(line) == (2 if two else 1), result.stdout
    assert [line for line in lines if line.startswith("envbuild: data is on ")]
    assert not list(local.iterdir())


def test_a_cancelled_job_leaves_no_data_behind(project: Project) -> None:
    local = data(project)
    words = (
        "submit",
        "./tiny.sif",
        "--on",
        "slurm",
        "--stage",
        "data/images",
        "--",
        "sh",
        "-c",
        "echo up; sleep 60",
    )
    job = project.run(*words, TMPDIR=str(local)).stdout.strip()
    wait_for(project, job, "up\n")
    assert [path for path in local.iterdir() if path.name.startswith("envbuild-stage-")]
    assert project.run("cancel", job).code == 0
    assert project.run("logs", job, "-f").code == 143
    assert not list(local.iterdir())


MODULES_3 = """\
export LOADEDMODULES=${LOADEDMODULES-}
module() {
  case $2 in
  there) LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}there/1.0 ;;
  *) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
  esac
}
"""
"""As 3.2.13 does: it answers 0 to all, and adds what it has loaded to a list."""


def test_a_module_that_is_missing_is_told_where_module_load_ends_with_0(project: Project) -> None:
    init = project.folder / "modules.sh"
    init.write_text(MODULES_3)
    site = project.folder / "sites/mine.toml"
    text = f'[site]\nname = "mine"\nscheduler = "local"\n[modules]\ninit = "source {init}"\n'
    words = ("submit", "./tiny.sif", "--on", "sites/mine.toml", "--wait", "--", "touch", "ran")
    site.write_text(f'{text}load = ["there", "there", "there/1.0"]\n')
    result = project.run(*words)
    assert result.code == 0, result.stdout
    (project.folder / "ran").unlink()
    site.write_text(f'{text}load = ["there", "gone/2"]\n')
    result = project.run(*words)
    assert result.code == 125
    error = "envbuild: error: module load gone/2 failed; loaded are: there/1.0"
    assert error in result.stdout.splitlines()
    assert not (project.folder / "ran").exists()


def test_an_image_that_is_not_on_the_node(project: Project) -> None:
    script = project.run("job", "./tiny.sif", "--on", "local", "--", "touch", "ran").stdout
    (project.folder / "job.sh").write_text(script)
    (project.folder / "tiny.sif").unlink()
    command = Command(
        argv=("bash", "job.sh"), cwd=project.folder, env=project.environment, timeout=30
    )
    result = LocalRunner()(command, check=False)
    assert result.code == 125
    [log] = (project.folder / "logs").glob("*.log")
    assert "envbuild: error: the image is not there on " in log.read_text()
    [receipt] = (project.folder / ".envbuild" / "jobs").glob("*.receipt.json")
    assert json.loads(receipt.read_text())["code"] == 125


@pytest.mark.parametrize("site", ["slurm", "local"])
def test_a_second_command_beside_a_running_job(project: Project, site: str) -> None:
    gpu = ("--gpus", "1") if site == "slurm" else ()
    words = ("--on", site, *gpu, "--env", "TOKEN=hush-hush", "--", "sh", "-c", "echo up; sleep 30")
    job = project.submit(*words)
    wait_for(project, job, "up\n")
    result = project.run(
        "attach", job, "--", "sh", "-c", 'echo "in=$SLURM_JOB_ID:$TOKEN:$FROM_IMAGE"; exit 4'
    )
    assert result.code == 4, result.stderr
    assert f"in={job if gpu else ''}:hush-hush:yes" in result.stdout.splitlines()
    assert project.run("cancel", job).code == 0


@pytest.mark.parametrize("site", ["slurm", "gridengine"])
def test_an_interactive_job_runs_a_command_on_a_node(project: Project, site: str) -> None:
    words = ("--gpus", "1", "--cpus", "2", "--walltime", "5m", "--interactive", "--", "sh", "-c")
    result = project.run(
        "submit", "./tiny.sif", "--on", site, *words, 'echo "from=$FROM_IMAGE"; exit 5'
    )
    assert result.code == 5, result.stderr
    assert "from=yes" in result.stdout


HOG = "a=aaaaaaaa; i=0; while [ $i -lt 25 ]; do a=$a$a; i=$((i+1)); done; sleep 20; echo survived"
"""A string of 256 MB."""


def test_grid_engines_limit_of_memory_ends_the_command(project: Project) -> None:
    site = project.folder / "sites/gridengine.toml"
    site.write_text(site.read_text() + 'memory = "h_vmem"\n')
    words = (
        "submit",
        "./tiny.sif",
        "--on",
        "gridengine",
        "--memory",
        "100MiB",
        "--wait",
        "--",
        "sh",
        "-c",
        HOG,
    )
    result = project.run(*words)
    # the limit is one of addresses, of which the container runtime alone needs more
    assert result.code == 125, result.stdout + result.stderr
    assert "the container did not start" in result.stdout
    assert "survived" not in result.stdout
