"""A recipe that means harm, made for real in every mode: its source package, its lines of shell and its check.

What each mode promises is the table of docs/security.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from envbuild.run import Command, LocalRunner, Result
from envbuild.store.layout import Store
from tests.hosts import ROOT_ONLY, UID, Bench, Lack
from tests.project import Project
from tests.support import needs
from tests.tiny_image import open_folder

pytestmark = [pytest.mark.live, needs("apptainer", "mmdebstrap", "fuse-overlayfs", "git")]
SECRET = "a-word-that-nobody-may-see"

RECIPE = """\
[recipe]
name = "harm"
[base]
bootstrap = "debian:bookworm"
[python]
dependencies = ["."]
[system]
post = [
  "for f in order.json layer.tar capture.py in; do ln -sfn {victim} /mnt/$f 2>/dev/null || true; done",
  "mkdir -p /opt/seen; cat /proc/net/dev >/opt/seen/net; cat /proc/self/uid_map >/opt/seen/ids",
  "cat /proc/[0-9]*/environ >/opt/seen/environment 2>/dev/null || true",
  "ls -d {victim} /proc/[0-9]*/root{victim} >/opt/seen/home 2>/dev/null || true",
  "mount -o remount,rw,bind /mnt/in 2>/dev/null || mount -o remount,rw,bind /mnt 2>/dev/null || true; for f in $(find /mnt -type f); do echo harm >$f; done || true",
  "cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern 2>/dev/null && touch /opt/seen/owned || true",
]
[check]
imports = ["harm"]
script = "check.py"
"""
CHECK = """\
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError:
    print("reached nothing")
else:
    raise SystemExit("reached the network")
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "harm"
version = "1.0"
"""
BACKEND = """\
import json, os, socket, zipfile


MODULE = '''
import os, socket

if "READING" not in os.environ:
    try:
        socket.create_connection(("127.0.0.1", {port}), 5)
    except OSError:
        pass
    else:
        raise SystemExit("the import proof reached the network")
'''


def tried(action):
    try:
        return action() or True
    except OSError as error:
        return type(error).__name__


def build_wheel(out, settings=None, metadata=None):
    victim = {victim!r}
    seen = {{
        "given": tried(lambda: open("/mnt/in/build.json", "a").close()),
        "tools": tried(lambda: os.symlink(victim, "/mnt/tools/lib/link")),
        "home": os.path.exists(victim) or os.path.exists("/proc/1/root" + victim),
        "secret": {secret!r} in repr(dict(os.environ)),
        "network": tried(lambda: socket.create_connection(("127.0.0.1", {port}), 5)),
    }}
    for name in ("order.json", "build.json", "archives", "wheel"):
        tried(lambda: os.symlink(victim, "/mnt/" + name))
    os.mkfifo(out + "/fifo")
    os.symlink(victim, out + "/link")
    with zipfile.ZipFile(out + "/harm-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("harm.py", MODULE + "seen = " + repr(seen))
        for name, text in {metadata!r}.items():
            wheel.writestr("harm-1.0.dist-info/" + name, text)
    return "harm-1.0-py3-none-any.whl"
"""

METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: harm\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "harm.py,,\nharm-1.0.dist-info/METADATA,,\nharm-1.0.dist-info/WHEEL,,\nharm-1.0.dist-info/RECORD,,\n",
}

ENGINE = [needs("dockerd"), ROOT_ONLY]


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of this machine that somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Account:
    """Who makes the recipe: whoever runs the tests, or an ordinary user that root makes for it."""

    def __init__(self, user: Project | Bench) -> None:
        self._user = user
        self.folder, self.home, self.write = user.folder, user.home, user.write
        self.is_root = os.getuid() == 0 and isinstance(user, Project)
        self.store = user.store if isinstance(user, Project) else user.home / "store"
        self.env: dict[str, str] = {"MY_SECRET": SECRET}

    def run(self, *arguments: str) -> Result:
        if isinstance(self._user, Project):
            return self._user.run(*arguments, timeout=600, **self.env)
        return self._user.run(Lack(), *arguments, timeout=600, **self.env)

    def succeed(self, *arguments: str) -> Result:
        done = self.run(*arguments)
        assert done.code == 0, done.stdout + done.stderr
        return done


@pytest.fixture(params=["this user", pytest.param("an ordinary user", marks=ROOT_ONLY)])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    """Where the recipe is made: as whoever runs the tests, and where that is root as somebody else, too."""
    if request.param == "this user":
        yield Account(Project(tmp_path / "p"))
        return
    folder = open_folder() / tmp_path.name
    yield Account(Bench(folder))
    shutil.rmtree(folder)


def write_harm(account: Account, port: int) -> Path:
    """Write the recipe and its project into an account; return a file there that nothing may change."""
    victim = account.home / "victim.toml"
    victim.write_text("mine")
    victim.chmod(0o600)
    words = {
        "victim": str(victim),
        "home": str(account.home),
        "secret": SECRET,
        "port": port,
        "metadata": METADATA,
    }
    account.write("recipes/harm.toml", RECIPE.format(**words))
    account.write("recipes/check.py", CHECK.format(**words))
    account.write("pyproject.toml", PROJECT)
    account.write(".gitignore", "home/\n*.sif\n*.sandbox\n")
    account.write("backend.py", BACKEND.format(**words))
    LocalRunner()(Command(argv=("git", "init", "-q", str(account.folder))))
    if os.getuid() == 0 and not account.is_root:
        own = ("chown", "-R", str(UID), str(account.folder), str(account.home))
        LocalRunner()(Command(argv=own))
    return victim


READ = (
    "import os; os.environ['READING'] = 'yes';"
    "import harm, json, pathlib;"
    "seen = {p.name: p.read_text(errors='replace') for p in pathlib.Path('/opt/seen').iterdir()};"
    "print(json.dumps([harm.seen, seen]))"
)


@pytest.mark.parametrize(
    "mode", ["flat", "layered", "fakeroot", "sandbox", pytest.param("docker", marks=ENGINE)]
)
def test_a_harmful_recipe_reaches_nothing(
    mode: str, account: Account, listening: int, request: pytest.FixtureRequest
) -> None:
    if mode == "docker":
        if not account.is_root:
            pytest.skip("the engine is root's")
        # Debian's own docker builds without plugins
        account.env |= {
            "DOCKER_HOST": request.getfixturevalue("engine"),
            "PATH": f"/usr/bin:{os.environ['PATH']}",
        }
    victim = write_harm(account, listening)
    account.succeed("lock", "harm")
    name = "harm.sandbox" if mode == "sandbox" else "harm.sif"
    account.succeed("make", "harm", "--mode", mode, "-o", name)
    ran = account.succeed("exec", f"./{name}", "--", "python3", "-c", READ)
    built, post = json.loads(ran.stdout)

    # what no mode may let happen
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("mine", 0o600)
    lock = read_lock(account.folder / "lockfiles/harm.lock")
    for sha256 in [*(p.sha256 for p in lock.debian), *(p.sha256 for p in lock.python)]:
        kept = Store(account.store).artifact(sha256)
        if kept.exists():  # else it is in a store below
            assert hashlib.sha256(kept.read_bytes()).hexdigest() == sha256
    assert not list((account.store / "v1/tmp").glob("*harm*"))

    assert built["secret"] is False
    assert SECRET not in post["environment"]
    assert all(isinstance(built[place], str) for place in ("given", "tools", "network"))
    assert [line.split(":")[0].strip() for line in post["net"].splitlines()[2:]] == ["lo"]

    # here a build has the rights of whoever starts it, which is why others' recipes are refused
    if mode == "sandbox":
        return
    assert (built["home"], post["home"]) == (False, "")
    assert "owned" not in post
    if account.is_root and mode != "docker":
        assert post["ids"].split()[1] != "0"


def test_from_somebody_else_it_is_refused_where_it_would_have_these_rights(
    account: Account, listening: int
) -> None:
    victim = write_harm(account, listening)
    assert account.run("lock", "harm").code == 0
    account.succeed("bundle", "harm", "--no-tool")
    made = account.run("make", "--from-bundle", "harm.bundle.tar", "--mode", "sandbox")
    assert made.code == 7, made.stderr
    why = "would run with root's own rights" if account.is_root else "could reach your home folder"
    assert f"what it brings from a bundle {why}" in made.stderr
    assert not [*account.folder.glob("*.sandbox"), *account.folder.glob("*.sif")]
    assert victim.read_text() == "mine"


LINKING = """\
import os


def build_wheel(out, settings=None, metadata=None):
    os.symlink({private!r}, out + "/harm-1.0-py3-none-any.whl")
    return "harm-1.0-py3-none-any.whl"
"""


MODES = ("flat", "layered", "fakeroot", "sandbox")


@pytest.mark.parametrize("mode", MODES)
def test_a_source_package_whose_wheel_is_a_link(
    mode: str, account: Account, listening: int
) -> None:
    """Else a file of the user's would be in the image, and in the store as what the lock names."""
    write_harm(account, listening)
    private = account.home / "private"
    with zipfile.ZipFile(private, "w") as wheel:
        wheel.writestr("harm.py", f"seen = {SECRET!r}")
        for name, text in METADATA.items():
            wheel.writestr(f"harm-1.0.dist-info/{name}", text)
    account.write("backend.py", LINKING.format(private=str(private)))
    account.succeed("lock", "harm")
    made = account.run("make", "harm", "--mode", mode, "-o", "harm.image")
    # in the other modes uv builds it in the container, where the link leads nowhere
    assembled = mode in {"flat", "layered"}
    told = "what the build left cannot be opened" if assembled else "the build of harm failed"
    assert (made.code, told in made.stderr) == (6 if assembled else 7, True), made.stderr
    assert not (account.folder / "harm.image").exists()
    assert not [path for path in (account.store / "v1/built").glob("*") if path.is_symlink()]
