"""Real schedulers for live tests, started once and stopped at the end; a project folder with a tiny image."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.support import may_be_root, needs
from tests.tiny_image import open_folder, tiny_image

pytest.register_assert_rewrite("tests.job.situations_live")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/setup-schedulers.sh"
SITES = {
    "slurm": '[site]\nname = "slurm"\nscheduler = "slurm"\n'
    '[resources]\ngpu = "gpus"\ngpu-types = ["tesla"]\ngpus-per-node = 1\nmemory = "mem"\n',
    "gridengine": '[site]\nname = "gridengine"\nscheduler = "gridengine"\n'
    '[resources]\ngpu = "consumable"\nparallel-environment = "smp"\n',
    "pbs": '[site]\nname = "pbs"\nscheduler = "pbs"\n[fields]\npartition = "workq"\n'
    '[resources]\ngpu = "ngpus"\nmemory = "mem"\n',
}
own_network = pytest.mark.skipif(
    not may_be_root(),
    reason="only root, or a user with sudo, can give the schedulers a network of their own",
)
ON_SCHEDULERS = [
    pytest.mark.live,
    needs("apptainer", "sbatch", "qsub", "ip", "nsenter"),
    own_network,
]
"""The marks of tests with real schedulers."""
PBS = Path(os.environ.get("OPENPBS_PREFIX", "/opt/pbs"))
"""Where scripts/setup-schedulers.sh builds OpenPBS, which is in no Debian release."""


@pytest.fixture(scope="session")
def clients() -> Iterator[Path]:
    """The folder of the clients of a Slurm and a Grid Engine that run on this machine, seen by nobody else."""
    # every user's client has to reach their configuration, and pytest's own folders are closed
    yield from started(open_folder() / "schedulers", "start")


@pytest.fixture(scope="session")
def pbs_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the clients of a PBS of two nodes, where OpenPBS is installed."""
    if not (PBS / "bin/qsub").is_file():
        pytest.skip(f"not installed: OpenPBS in {PBS} (scripts/setup-schedulers.sh install SOURCE)")
    yield from started(tmp_path_factory.mktemp("pbs"), "start-pbs")


def started(folder: Path, verb: str) -> Iterator[Path]:
    """Start schedulers, and stop what was started in the end."""
    run = LocalRunner()
    # stopped with this process, too, which may be killed
    words = ("bash", str(SCRIPT), verb, str(folder), str(os.getpid()))
    done = run(Command(argv=words, timeout=120), check=False)
    try:
        assert done.code == 0, done.stderr
        yield Path(done.stdout.splitlines()[-1])
    finally:
        run(Command(argv=("bash", str(SCRIPT), "stop", str(folder)), timeout=60), check=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A folder with ``tiny.sif`` and site files, and the command line in it; ``prefix`` is before it."""

    folder: Path
    environment: dict[str, str]
    prefix: tuple[str, ...] = ()

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

    def succeed(
        self,
        *words: str,
        timeout: float = 90,
        variables: Mapping[str, str] | None = None,
        **more: str,
    ) -> Result:
        """Run envbuild in the folder; fail with all that it said where its code is not 0."""
        done = self.run(*words, timeout=timeout, variables=variables, **more)
        assert done.code == 0, done.stdout + done.stderr
        return done

    def command(self, *words: str, timeout: float = 90, **variables: str) -> Command:
        """Return the command line that runs envbuild in the folder."""
        argv = (*self.prefix, sys.executable, "-m", "envbuild", *words)
        return Command(
            argv=argv, cwd=self.folder, env={**self.environment, **variables}, timeout=timeout
        )

    def submit(self, *words: str) -> str:
        """Submit and return the id."""
        return self.succeed("submit", "./tiny.sif", *words).stdout.strip()


@pytest.fixture(params=["slurm", "gridengine", "local"])
def site(request: pytest.FixtureRequest) -> str:
    """Each kind of site that runs here."""
    name: str = request.param
    return name


@pytest.fixture
def project(clients: Path, tmp_path: Path) -> Project:
    """An empty project; its caller has variables that no job may see."""
    return make_project(tmp_path, clients)


def make_project(tmp_path: Path, clients: Path) -> Project:
    """Make a folder with an image and sites; its caller has variables that no job may see."""
    if _same_disk(tmp_path):
        os.link(tiny_image(), tmp_path / "tiny.sif")
    else:
        shutil.copy(tiny_image(), tmp_path / "tiny.sif")
    (tmp_path / "sites").mkdir()
    for name, text in SITES.items():
        (tmp_path / f"sites/{name}.toml").write_text(text)
    environment = {
        "PATH": f"{clients}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
        "USER": getpass.getuser(),
        "TOKEN_OF_CALLER": "leaked-by-environment",
        "SQUEUE_FORMAT": "%j",
        "APPTAINER_BIND": "/nowhere",
    }
    (tmp_path / "home").mkdir()
    return Project(folder=tmp_path, environment=environment)


def _same_disk(folder: Path) -> bool:
    return tiny_image().stat().st_dev == folder.stat().st_dev


Runs = Callable[..., Result]
