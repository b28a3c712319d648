"""Inputs that are on no public index, for real: a private index, the project itself, a git server, files."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import http.server
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from envbuild.plan.shell import program_lines, requirement_lines
from envbuild.run import Command, LocalRunner
from tests.project import Project
from tests.support import http_server, needs

pytestmark = [pytest.mark.live, needs("apptainer", "mmdebstrap", "mksquashfs", "git")]
SECRET = "a-secret-word"

RECIPE = """\
[recipe]
name = "lab"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = ["labtool", "-e .", "gittool @ git+{git}@main"]
indexes = ["lab"]

[files]
"labels.txt" = "/opt/lab/labels.txt"
"data" = "/srv/data"

[check]
imports = ["labtool", "ourlab", "gittool"]
"""
PACKAGE = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "{0}"\nversion = "{1}"\n[tool.setuptools]\npy-modules = ["{0}"]\n'


class Private(http.server.SimpleHTTPRequestHandler):
    """Files below a folder; those below /simple want a password."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(f"ci:{SECRET}".encode()).decode()
        if self.path.startswith("/simple") and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="lab"')
            self.end_headers()
            return
        super().do_GET()

    def do_HEAD(self) -> None:
        self.do_GET()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a folder with a private index (simple/) and a git repository (gittool.git)."""
    folder = tmp_path_factory.mktemp("server")
    place = folder / "simple/labtool"
    place.mkdir(parents=True)
    wheel = place / "labtool-3.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {
            "labtool.py": "x = 1\n",
            "labtool-3.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: labtool\nVersion: 3.1\n",
            "labtool-3.1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "labtool-3.1.dist-info/RECORD": "labtool.py,,\nlabtool-3.1.dist-info/METADATA,,\nlabtool-3.1.dist-info/WHEEL,,\nlabtool-3.1.dist-info/RECORD,,\n",
        }.items():
            archive.writestr(name, text)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (place / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n')
    work = folder / "work"
    work.mkdir()
    (work / "pyproject.toml").write_text(PACKAGE.format("gittool", "0.9"))
    (work / "gittool.py").write_text("y = 2\n")
    run = LocalRunner()
    for line in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@lab.invalid", "commit", "-q", "-m", "x"),
        ("clone", "-q", "--bare", ".", "../gittool.git"),
        ("--git-dir", "../gittool.git", "update-server-info"),
    ):
        run(Command(argv=("git", *line), cwd=work))
    with http_server(Private, directory=str(folder)) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, server: str) -> Iterator[Project]:
    """The project, locked, with nobody seeing the password in a list of processes meanwhile."""
    made = Project(tmp_path_factory.mktemp("inputs"))
    made.write("recipes/lab.toml", RECIPE.replace("{git}", f"http://{server}/gittool.git"))
    made.write("pyproject.toml", PACKAGE.format("ourlab", "1.0"))
    made.write("ourlab.py", "z = 3\n")
    made.write(".gitignore", "home/\n*.sif\n")
    LocalRunner()(Command(argv=("git", "init", "-q", str(made.folder))))
    made.write("labels.txt", "cat\n")
    made.write("data/a.csv", "1,2\n")
    made.write(
        "home/.config/envbuild/config.toml",
        f'[indexes]\nlab = "http://ci:{SECRET}@{server}/simple"\n',
    )
    seen: list[str] = []
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(seen, ended))
    watcher.start()
    try:
        made.succeed("lock", "lab")
        yield made
    finally:
        ended.set()
        watcher.join()
    assert not seen


def _watch(seen: list[str], ended: threading.Event) -> None:
    while not ended.wait(0.1):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue  # it has ended
            if SECRET.encode() in line:
                seen.append(line.decode(errors="replace"))


ENGINE = [
    needs("dockerd"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts a Docker engine"),
]


@pytest.mark.parametrize(
    "mode", ["flat", "layered", "fakeroot", "sandbox", pytest.param("docker", marks=ENGINE)]
)
def test_everything_is_inside_and_no_secret(
    mode: str, project: Project, request: pytest.FixtureRequest
) -> None:
    name = "lab.sandbox" if mode == "sandbox" else f"{mode}.sif"
    engine = str(request.getfixturevalue("engine")) if mode == "docker" else ""
    path = f"/usr/bin:{os.environ['PATH']}"  # Debian's own docker builds without plugins
    project.succeed(
        "make", "lab", "--mode", mode, "-o", name, "--as-root", PATH=path, DOCKER_HOST=engine
    )
    program = (
        "import importlib.metadata as m;"
        "print(*(m.version(name) for name in ('labtool', 'ourlab', 'gittool')));"
        "print(open('/opt/lab/labels.txt').read(), open('/srv/data/a.csv').read(), end='')"
    )
    image = str(project.folder / name)
    run = functools.partial(LocalRunner(), check=False)
    env = {"PATH": os.environ["PATH"], "HOME": str(project.home)}
    inside = ("apptainer", "--quiet", "exec", "--userns", "--containall", image)
    told = run(Command(argv=(*inside, "python3", "-c", program), env=env, timeout=60))
    assert told.stdout == "3.1 1.0 0.9\ncat\n 1,2\n", told.stderr
    listed = run(
        Command(
            argv=(*inside, "stat", "-c", "%a %u", "/opt/lab/labels.txt", "/srv/data"),
            env=env,
            timeout=60,
        )
    )
    rights, owners = zip(*(line.split()[:2] for line in listed.stdout.splitlines()), strict=True)
    assert rights == ("644", "755")
    if not os.getuid():  # the namespace of an ordinary user shows no file of another
        assert owners == ("0", "0")
    found = run(
        Command(
            argv=(
                *inside,
                "grep",
                "-rlsaF",
                "-f",
                "-",
                "/usr/local",
                "/opt",
                "/srv",
                "/etc",
                "/.singularity.d",
            ),
            env=env,
            stdin=f"{SECRET}\n",
            timeout=600,
        )
    )
    assert found.stdout == ""
    assert mode == "sandbox" or SECRET.encode() not in Path(image).read_bytes()


def test_no_password_and_no_index_in_lock_definition_and_logs(
    project: Project, server: str
) -> None:
    lock = (project.folder / "lockfiles/lab.lock").read_text()
    assert 'index = "lab"' in lock
    assert 'source = "."' in lock
    assert f'source = "git+http://{server}/gittool.git@' in lock
    definition = project.run("def", "lab").stdout
    logs = "".join(
        path.read_text(errors="replace") for path in (project.store / "v1/logs").glob("lab-*")
    )
    for text in (lock, definition, logs):
        assert SECRET not in text
        assert "/simple" not in text.replace("simple_url", "")


def test_a_changed_file_makes_the_lock_stale(project: Project) -> None:
    for name, what in (
        ("ourlab.py", "the files of . (ourlab 1.0) were changed"),
        ("labels.txt", "labels.txt ([files]) was changed"),
    ):
        path = project.folder / name
        kept = path.read_text()
        path.write_text("changed = True\n")
        try:
            stale = project.run("make", "lab")
            assert (stale.code, what in stale.stderr) == (4, True), stale.stderr
            assert project.run("lock", "--check", "lab").code == 4
        finally:
            path.write_text(kept)
    assert project.run("lock", "--check", "lab").code == 0


def test_another_user_makes_it_from_lock_and_project_alone(
    project: Project, tmp_path: Path
) -> None:
    """The store has the public files only: trees and files are packed again, and come out the same."""
    other = Project(tmp_path / "other", tmp_path / "store")
    for name in (
        ".git",
        ".gitignore",
        "recipes",
        "lockfiles",
        "data",
        "ourlab.py",
        "pyproject.toml",
        "labels.txt",
        "home/.config",
    ):
        source, target = project.folder / name, other.folder / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (other.store / "v1").mkdir(parents=True)
    for name in ("bases", "facts"):
        (other.store / "v1" / name).symlink_to(project.store / "v1" / name)
    other.succeed("make", "lab", "--mode", "flat", "-o", "flat.sif")
    assert (other.folder / "flat.sif").read_bytes() == (project.folder / "flat.sif").read_bytes()


def test_a_written_definition_asks_the_named_index(
    project: Project, server: str, tmp_path: Path
) -> None:
    """The downloader that the definition carries, run as %post runs it."""
    package = next(
        p for p in read_lock(project.folder / "lockfiles/lab.lock").python if p.name == "labtool"
    )
    (tmp_path / "fetch_packages.py").write_text("\n".join(program_lines("fetch_packages")))
    (tmp_path / "packages.txt").write_text("\n".join(requirement_lines((package,))) + "\n")
    fetch = Command(
        argv=(
            sys.executable,
            str(tmp_path / "fetch_packages.py"),
            str(tmp_path),
            str(tmp_path / "packages.txt"),
        ),
        env={"PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    run = functools.partial(LocalRunner(), check=False)
    lacking = run(fetch)
    assert lacking.code != 0
    assert (
        "set ENVBUILD_INDEX_LAB to the address of the package index that the recipe calls lab"
        in lacking.stderr
    )
    assert run(with_index(fetch, f"http://ci:wrong@{server}/simple")).code != 0
    told = run(with_index(fetch, f"http://ci:{SECRET}@{server}/simple"))
    assert told.code == 0, told.stderr
    assert (tmp_path / package.file).stat().st_size == package.size


def with_index(command: Command, url: str) -> Command:
    return dataclasses.replace(command, env={**(command.env or {}), "ENVBUILD_INDEX_LAB": url})
