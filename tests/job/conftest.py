"""Real schedulers for live tests, started once and stopped at the end; a project folder with a tiny image."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.tiny_image import tiny_image

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/setup-schedulers.sh"
SITES = {
    "slurm": '[site]\nname = "slurm"\nscheduler = "slurm"\n'
    '[resources]\ngpu = "gpus"\ngpu-types = ["tesla"]\ngpus-per-node = 1\nmemory = "mem"\n',
    "gridengine": '[site]\nname = "gridengine"\nscheduler = "gridengine"\n'
    '[resources]\ngpu = "consumable"\nparallel-environment = "smp"\n',
}


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the clients of a Slurm and a Grid Engine that run on this machine, seen by nobody else."""
    folder = tmp_path_factory.mktemp("schedulers")
    run = LocalRunner()
    started = run(
        Command(argv=("bash", str(SCRIPT), "start", str(folder)), timeout=120), check=False
    )
    try:
        assert started.code == 0, started.stderr
        yield Path(started.stdout.splitlines()[-1])
    finally:
        run(Command(argv=("bash", str(SCRIPT), "stop", str(folder)), timeout=60), check=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A folder with ``tiny.sif`` and site files, and the command line in it."""

    folder: Path
    environment: dict[str, str]

    def run(
        self,
        *words: str,
        timeout: float = 90,
        variables: Mapping[str, str] | None = None,
        **more: str,
    ) -> Result:
        """Run envbuild in the folder."""
        return LocalRunner()(
            self.command(*words, timeout=timeout, **{**(variables or {}), **more}), check=False
        )

    def command(self, *words: str, timeout: float = 90, **variables: str) -> Command:
        """Return the command line that runs envbuild in the folder."""
        argv = (sys.executable, "-m", "envbuild", *words)
        return Command(
            argv=argv, cwd=self.folder, env={**self.environment, **variables}, timeout=timeout
        )

    def submit(self, *words: str) -> str:
        """Submit and return the id."""
        result = self.run("submit", "./tiny.sif", *words)
        assert result.code == 0, result.stderr
        return result.stdout.strip()


@pytest.fixture(params=["slurm", "gridengine", "local"])
def site(request: pytest.FixtureRequest) -> str:
    """Each kind of site that runs here."""
    name: str = request.param
    return name


@pytest.fixture
def project(clients: Path, tmp_path: Path) -> Project:
    """An empty project; its caller has variables that no job may see."""
    os.link(tiny_image(), tmp_path / "tiny.sif") if _same_disk(tmp_path) else shutil.copy(
        tiny_image(), tmp_path / "tiny.sif"
    )
    (tmp_path / "sites").mkdir()
    for name, text in SITES.items():
        (tmp_path / f"sites/{name}.toml").write_text(text)
    environment = {
        "PATH": f"{clients}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
        "USER": "root",
        "TOKEN_OF_CALLER": "leaked-by-environment",
        "SQUEUE_FORMAT": "%j",
        "APPTAINER_BIND": "/nowhere",
    }
    (tmp_path / "home").mkdir()
    return Project(folder=tmp_path, environment=environment)


def _same_disk(folder: Path) -> bool:
    return tiny_image().stat().st_dev == folder.stat().st_dev


Runs = Callable[..., Result]
