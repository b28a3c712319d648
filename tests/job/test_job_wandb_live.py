"""Agents of a sweep of Weights & Biases: the real agent in real jobs, and a server for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.job.conftest import ON_SCHEDULERS, Project
from tests.job.tunnel import enter_words
from tests.project import shared_store

pytestmark = ON_SCHEDULERS
WANDB = "wandb==0.31.0"
KEY = "0a1b" * 10
SERVER = Path(__file__).with_name("wandb_server.py")
TRAIN = 'import sys; open("ran", "a").write(f"{sys.argv[1:]}\\n")\n'


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of wandb and what it requires, kept beside the tests' store."""
    folder = shared_store() / WANDB.replace("==", "-")
    if not (folder / "done").is_file():
        words = ("-q", "install", "--upgrade", "--target", str(folder), WANDB)
        argv = (sys.executable, "-m", "pip", *words)
        done = LocalRunner()(Command(argv=argv, timeout=600), check=False)
        if done.code:
            pytest.skip(f"{WANDB} cannot be had: {done.last_lines(1)}")
        (folder / "done").touch()
    return folder


@pytest.fixture
def server(clients: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of the server in the network of the nodes, and what it was asked."""
    requests = tmp_path / "requests"
    words = (*enter_words(clients), sys.executable, str(SERVER), KEY, str(requests))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield f"http://127.0.0.1:{running.stdout.readline().strip()}", requests
        running.terminate()


def test_every_task_is_an_agent_that_takes_one_run(
    project: Project, packages: Path, server: tuple[str, Path]
) -> None:
    address, requests = server
    (project.folder / "train.py").write_text(TRAIN)
    binds = [f"--bind={path}:{path}:ro" for path in ("/usr", str(packages))]
    passed = ("--env", "WANDB_API_KEY", "--env", f"WANDB_BASE_URL={address}")
    words = ("submit", "./tiny.sif", "--on", "slurm", *binds, *passed, "--array", "1-2", "--wait")
    python = f"PYTHONPATH={packages} exec {Path(sys.executable).resolve()}"
    agent = f"{python} -m wandb agent --count 1 lab/project/abc123"
    done = project.succeed(*words, "--", "sh", "-c", agent, timeout=300, WANDB_API_KEY=KEY)
    assert KEY not in done.stdout + done.stderr
    ran = (project.folder / "ran").read_text().splitlines()
    assert sorted(ran) == ["['--lr=0.1']", "['--lr=0.2']"]
    asked = [json.loads(line) for line in requests.read_text().splitlines()]
    graphql = [request for request in asked if request["query"]]
    assert sum("createAgent" in request["query"] for request in graphql) == 2
    assert all(request["known"] for request in graphql), "the key reached the agent"
