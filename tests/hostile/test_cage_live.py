"""A recipe that means harm, made for real: its source package, its lines of shell and its check reach nothing."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from envbuild.run import Command, LocalRunner
from envbuild.store.layout import Store
from tests.project import Project
from tests.support import needs

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
  "ls -d /proc/[0-9]*/root{home} >/opt/seen/home 2>/dev/null || true",
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
        "home": os.path.exists({home!r}) or os.path.exists("/proc/1/root" + {home!r}),
        "secret": {secret!r} in repr(dict(os.environ)),
        "network": tried(lambda: socket.create_connection(("127.0.0.1", {port}), 5)),
    }}
    for name in ("order.json", "build.json", "archives", "wheel"):
        tried(lambda: os.symlink(victim, "/mnt/" + name))
    os.mkfifo(out + "/fifo")
    os.symlink(victim, out + "/link")
    with zipfile.ZipFile(out + "/harm-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("harm.py", "seen = " + repr(seen))
        wheel.writestr("harm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: harm\\nVersion: 1.0\\n")
        wheel.writestr(
            "harm-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        )
        wheel.writestr("harm-1.0.dist-info/RECORD", "harm.py,,\\nharm-1.0.dist-info/METADATA,,\\n"
                       "harm-1.0.dist-info/WHEEL,,\\nharm-1.0.dist-info/RECORD,,\\n")
    return "harm-1.0-py3-none-any.whl"
"""


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of this machine that somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("mode", ["flat", "layered", "fakeroot"])
def test_a_recipe_that_means_harm_reaches_nothing(
    mode: str, tmp_path: Path, listening: int
) -> None:
    project = Project(tmp_path / "p")
    victim = project.home / "victim.toml"
    victim.write_text("mine")
    victim.chmod(0o600)
    told = {"victim": str(victim), "home": str(project.home), "secret": SECRET, "port": listening}
    project.write("recipes/harm.toml", RECIPE.format(**told))
    project.write("recipes/check.py", CHECK.format(**told))
    project.write("pyproject.toml", PROJECT)
    project.write(".gitignore", "home/\n*.sif\n")
    LocalRunner()(Command(argv=("git", "init", "-q", str(project.folder))))
    project.write("backend.py", BACKEND.format(**told))
    locked = project.run("lock", "harm", MY_SECRET=SECRET)
    assert locked.code == 0, locked.stderr
    made = project.run("make", "harm", "--mode", mode, MY_SECRET=SECRET)
    assert made.code == 0, made.stderr
    program = (
        "import harm, json, pathlib;"
        "print(json.dumps([harm.seen, {p.name: p.read_text(errors='replace') for p in pathlib.Path('/opt/seen').iterdir()}]))"
    )
    ran = project.run("exec", "harm", "--", "python3", "-c", program)
    built, post = json.loads(ran.stdout)
    # each is the name of an error, else True
    assert all(isinstance(built[place], str) for place in ("given", "tools", "network"))
    assert (built["home"], built["secret"]) == (False, False)
    assert [line.split(":")[0].strip() for line in post["net"].splitlines()[2:]] == ["lo"]
    assert SECRET not in post["environment"]
    assert post["home"] == ""
    assert "owned" not in post
    if os.getuid() == 0:
        assert post["ids"].split()[1] != "0"
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("mine", 0o600)
    lock = read_lock(project.folder / "lockfiles/harm.lock")
    for sha256 in [*(p.sha256 for p in lock.debian), *(p.sha256 for p in lock.python)]:
        assert (
            hashlib.sha256(Store(project.store).artifact(sha256).read_bytes()).hexdigest() == sha256
        )
    assert not list((project.store / "v1/tmp").glob("*harm*"))
