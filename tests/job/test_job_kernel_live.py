"""A kernel whose process is a job: a real Jupyter client computes, interrupts and ends it through the job's streams."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.job.conftest import ON_SCHEDULERS, Project
from tests.support import PATIENCE, needs, wait_until
from tests.wrap.jupyter_image import put_jupyter_image
from tests.wrap.test_wrap_kernel import run_cell

pytestmark = [
    *ON_SCHEDULERS,
    pytest.mark.filterwarnings("default"),  # jupyter_client leaves sockets to the collector
    needs("mmdebstrap"),
]
QUEUES = {"slurm": ("squeue", "-h"), "gridengine": ("qstat",)}


def start_kernel(project: Project, name: str) -> tuple[Any, Any]:
    """Start a kernel as Jupyter does, and return its manager and client."""
    from jupyter_client.manager import start_new_kernel

    env = {**project.environment, "SLURM_JOB_ID": "1", "TOKEN": "hush"}
    manager, client = start_new_kernel(
        startup_timeout=120, kernel_name=name, env=env, cwd=str(project.folder)
    )
    return manager, client


def jupyter_folder(made: Result) -> str:
    """Return Jupyter's data folder, in which a kernel was put."""
    return str(Path(json.loads(made.stdout)["folder"]).parents[1])


def is_idle(project: Project, site: str) -> bool:
    """Tell whether the scheduler has no job any more."""
    command = Command(argv=QUEUES[site], env=project.environment, timeout=20)
    return not LocalRunner()(command).stdout.strip()


def wait_until_idle(project: Project, site: str) -> None:
    wait_until(lambda: is_idle(project, site), "no job is there any more")


@pytest.mark.parametrize("site", ["slurm", "gridengine"])
def test_a_kernel_on_a_node_computes_and_ends_with_its_job(
    project: Project, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_jupyter_image(project.folder)
    wait_until_idle(project, site)
    made = project.succeed(
        "kernel", "nb", "--on", site, "--cpus", "1", "--walltime", "10m", "--json"
    )
    monkeypatch.setenv("JUPYTER_DATA_DIR", jupyter_folder(made))
    manager, client = start_kernel(project, f"envbuild-nb-on-{site}")
    try:
        code = "import os, six; print(six.__version__, os.uname().nodename, os.getcwd())"
        version, node, folder = run_cell(client, code).split()
        assert (version, folder) == ("1.16.0", str(project.folder))
        assert site != "slurm" or node in ("node1", "node2")
        assert run_cell(client, "print(os.environ.get('TOKEN'))") == "None\n"
        # more than a pipe holds, and bytes that a terminal would change
        large = run_cell(client, "print('\\r\\x00\\xff' * 300000)")
        assert large == "\r\x00\xff" * 300000 + "\n"
        sleeping = client.execute("import time; time.sleep(600)")
        time.sleep(1)
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=PATIENCE)
        while reply["parent_header"]["msg_id"] != sleeping:
            reply = client.get_shell_msg(timeout=PATIENCE)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert run_cell(client, "print(six.__name__)") == "six\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)  # SIGKILL: nobody can say goodbye
    wait_until_idle(project, site)


def test_a_kernel_that_ends_by_itself_ends_its_job(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_jupyter_image(project.folder)
    made = project.succeed("kernel", "nb", "--on", "slurm", "--json")
    monkeypatch.setenv("JUPYTER_DATA_DIR", jupyter_folder(made))
    manager, client = start_kernel(project, "envbuild-nb-on-slurm")
    try:
        assert run_cell(client, "print(6 * 7)") == "42\n"
        client.shutdown()
        wait_until(lambda: not manager.is_alive(), "the kernel has ended")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    wait_until_idle(project, "slurm")


def test_pbs_and_this_machine_are_refused(project: Project) -> None:
    put_jupyter_image(project.folder)
    here = project.run("kernel", "nb", "--on", "local")
    assert (here.code, "is where Jupyter runs" in here.stderr) == (2, True), here.stderr
    pbs = project.run("kernel", "nb", "--on", "pbs")
    assert (pbs.code, "envbuild notebook --on SITE" in pbs.stderr) == (2, True), pbs.stderr
    lone = project.run("kernel", "nb", "--gpus", "1")
    assert (lone.code, "need --on SITE" in lone.stderr) == (2, True), lone.stderr
    assert not (project.folder / "home/.local/share/jupyter/kernels").exists()
