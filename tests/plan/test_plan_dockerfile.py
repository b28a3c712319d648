"""The Dockerfile: whole, and given back by real shells line by line."""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.base.debian.apt import debian_mirror, resolve_bootstrap
from envbuild.base.debian.bootstrap import fetch_packages, make_root
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.read import read_lock
from envbuild.net.index import index_url
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.plan.model import Definition
from envbuild.plan.root import root_stage
from envbuild.plan.shell import offline_program
from envbuild.progress import Silent
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from envbuild.store.layout import Store
from tests.hostile.test_debian_scripts import harmful_package
from tests.hosts import RECIPE as SMALL_RECIPE
from tests.hosts import ROOT_ONLY, Bench, Lack
from tests.project import Project, shared_store
from tests.support import Golden, context_for, needs
from tests.tiny_image import open_folder

SMALL = Definition(
    comment=("app: an example", "%post is a comment here"),
    header=(("Bootstrap", "docker"), ("From", "lab/app@sha256:" + "1" * 64)),
    post=("set -eu", "cat >/x <<'END'", "it's $HOME \\", "# no comment", "END", 'echo "done"'),
    environment=(("LC_ALL", "C.UTF-8"), ("ODD", 'a "b" $c \\d')),
    labels=(("envbuild.recipe", "app"),),
    runscript=('if [ "$#" -gt 0 ]; then', '    exec "$@"', "fi", "exec python"),
)


def test_the_whole_text(golden: Golden) -> None:
    golden("plan/small.Dockerfile", render_dockerfile(SMALL, files="files"))


def test_a_bootstrap_starts_from_its_tar() -> None:
    text = render_dockerfile(
        replace(SMALL, header=(("Bootstrap", "scratch"),)), root="app.root.tar", files="files"
    )
    assert "FROM scratch\nADD app.root.tar /\n" in text
    assert "type=secret" not in text


def test_a_bootstrap_without_a_tar_makes_its_root_in_a_stage(
    golden: Golden,
) -> None:
    told = replace(SMALL, header=(("Bootstrap", "scratch"),), setup=("set -eu", "mkdir /target"))
    golden("plan/staged.Dockerfile", render_dockerfile(told))


def script_of(text: str) -> str:
    """The script that a shell gets from a Dockerfile's only RUN, as /bin/sh -c hands it on."""
    run = re.search(
        r"^RUN --mount=type=secret,id=network --mount=type=secret,id=certificates mkdir -p /.envbuild && (printf .*(?:\\\n    .*)*) \\\n    >/.envbuild/script && /bin/sh",
        text,
        re.MULTILINE,
    )
    assert run is not None
    command = run[1]
    return LocalRunner()(Command(argv=("/bin/sh", "-c", command))).stdout


def test_a_shell_gets_the_lines_as_they_were() -> None:
    assert script_of(render_dockerfile(SMALL)) == "\n".join(SMALL.post) + "\n"


LINES = st.lists(st.text("ab'\"\\$#`%!{} \té", max_size=8), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(LINES)
def test_any_lines_come_back(lines: list[str]) -> None:
    text = render_dockerfile(replace(SMALL, post=tuple(lines)))
    assert script_of(text) == "".join(f"{line}\n" for line in lines)
    # no line of it may look like a comment, which the engine would take away
    assert not any(line.lstrip().startswith("#") for line in text.split("RUN ", 1)[1].splitlines())


@pytest.mark.parametrize("kind", ["localimage", "oci", "oci-archive", "oras"])
def test_a_base_that_no_engine_knows_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"a Dockerfile cannot start from {kind}: x"):
        render_dockerfile(replace(SMALL, header=(("Bootstrap", kind), ("From", "x"))))


def test_what_a_dockerfile_cannot_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="has a line break"):
        render_dockerfile(replace(SMALL, environment=(("A", "b\nc"),)))
    with pytest.raises(UsageError, match="a Dockerfile carries 120000"):
        render_dockerfile(replace(SMALL, post=("x" * 130_000,)))
    with pytest.raises(UsageError, match="cannot be in a Dockerfile"):
        render_dockerfile(replace(SMALL, header=(("Bootstrap", "docker"), ("From", "x\nRUN y"))))


def test_debians_scripts_have_no_network_where_the_root_is_made() -> None:
    """Where no network of its own can be had, the program filters system calls, or ends."""
    lock = read_lock(Path(__file__).parents[2] / "lockfiles/torch-mnist.lock")
    lines = root_stage(lock.base_packages, (), 0)
    program = lines.index("cat >/offline.py <<'PYTHON'")
    start = lines.index("    offline='python3 -s -B /offline.py'")
    assert lines[program + 1 :][:2] == offline_program()[:2]
    assert program < start
    assert lines[start + 1].startswith("    $offline mmdebstrap ")


RECIPE = SMALL_RECIPE.replace("[check]", '[system]\npackages = ["hello-traditional"]\n\n[check]')


@pytest.mark.live
@needs("dockerd", "apt-get")
@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a Docker engine")
def test_an_engine_builds_what_export_writes_of_a_bootstrap(engine: str, tmp_path: Path) -> None:
    """No file beside the Dockerfile; how this machine reaches its mirror and index is told by secrets."""
    project = Project(tmp_path / "project")
    project.write("recipes/small.toml", RECIPE)
    for verb in (("lock",), ("export", "--format", "dockerfile", "-o", "context/Dockerfile")):
        project.succeed(*verb)
    user, runner = load_settings(project.env, tmp_path), LocalRunner()
    lines = [
        f"DEBIAN_MIRROR={debian_mirror(context_for(user, runner))}",
        f"PIP_INDEX_URL={index_url(context_for(user, runner))}",
    ]
    network = project.write("network", "".join(f"{line}\n" for line in lines))
    certificates = user.certificates or Path("/etc/ssl/certs/ca-certificates.crt")
    lock = read_lock(project.folder / "lockfiles/small.lock")

    def docker(*arguments: str) -> str:
        env = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "DOCKER_HOST": engine,
            "DOCKER_BUILDKIT": "1",
            "HOME": str(tmp_path),
        }
        return runner(
            Command(argv=("docker", *arguments), env=env, cwd=project.folder, timeout=580)
        ).stdout

    # the builder: this machine reaches no registry with an image of Debian
    docker("import", str(Store(project.store).base(lock.base.digest)), "debian:bookworm")
    secrets = (
        "--secret",
        f"id=network,src={network}",
        "--secret",
        f"id=certificates,src={certificates}",
    )
    docker("build", "--quiet", "--network", "host", *secrets, "--tag", "small", "context")
    ask = "import six; print(six.__version__)"
    run = ("run", "--rm", "--network", "none", "small")
    assert docker(*run, "python", "-c", ask) == "1.16.0\n"
    assert docker(*run, "hello").startswith("Hello, world!")
    assert docker(*run) == "the default command\n"
    installed = docker(*run, "dpkg-query", "-W", "-f", "${Package} ${Version}\n").splitlines()
    assert sorted(installed) == sorted(f"{p.name} {p.version}" for p in lock.debian)
    assert (
        docker(
            *run, "sh", "-c", "ls -Ad /.envbuild* /mnt/debian/* /run/secrets/* 2>/dev/null || true"
        )
        == ""
    )
    assert lines[1].partition("=")[2] not in docker("history", "--no-trunc", "small")


BUILDER = """\
set -eu
export XDG_RUNTIME_DIR=$TMPDIR/run
mkdir -p "$XDG_RUNTIME_DIR"
buildah() { command buildah --storage-driver vfs --root "$HOME/images" --runroot "$TMPDIR/run/images" "$@"; }
# the builder: this machine reaches no registry with an image of Debian
builder=$(buildah from scratch)
buildah add --quiet "$builder" root.tar / >"$TMPDIR/log"
buildah commit --quiet "$builder" localhost/debian:bookworm >"$TMPDIR/log"
buildah bud --isolation chroot --build-arg BUILDER=localhost/debian:bookworm \
    --secret id=network,src=network --secret id=certificates,src=certificates.crt \
    ${STAGE:+--target "$STAGE"} --tag small --file Dockerfile . >"$TMPDIR/log" 2>&1 ||
    { tail -n 20 "$TMPDIR/log"; exit 1; }
small=$(buildah from small)
for command; do buildah run --isolation chroot "$small" -- sh -c "$command"; done
# what is there belongs to ids that only this user's namespace has
buildah unshare rm -rf "$HOME/images" "$TMPDIR/run"
"""


def build_rootless(
    dockerfile: str, root: Path, mirror: str, *commands: str, stage: str = ""
) -> str:
    """Build a stage of a Dockerfile as an ordinary user without an engine.

    Return what commands in it say.

    ``root`` is the tar of Debian that the builder is made of.
    """
    user, runner = load_settings(dict(os.environ), Path.cwd()), LocalRunner()
    folder = open_folder() / "host"
    try:
        bench = Bench(folder, ())
        bench.write("Dockerfile", dockerfile)
        index = index_url(context_for(user, runner))
        bench.write("network", f"DEBIAN_MIRROR={mirror}\nPIP_INDEX_URL={index}\n")
        certificates = user.certificates or "/etc/ssl/certs/ca-certificates.crt"
        given = {"root.tar": root, "certificates.crt": certificates}
        for name, source in given.items():
            shutil.copy(source, bench.folder / name)
            (bench.folder / name).chmod(0o644)
        words = ("bash", "-c", BUILDER, "bash", *commands)
        made = bench.start(Lack(), *words, STAGE=stage, timeout=1800)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert made.code == 0, made.stdout + made.stderr
    return made.stdout


def mirror_here() -> str:
    return debian_mirror(context_for(load_settings(dict(os.environ), Path.cwd()), LocalRunner()))


@pytest.mark.live
@pytest.mark.slow
@needs("buildah", "newuidmap", "apt-get")
@ROOT_ONLY
def test_an_ordinary_user_builds_it_without_an_engine(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.write("recipes/small.toml", RECIPE)
    for verb in (("lock",), ("export", "--format", "dockerfile", "-o", "Dockerfile")):
        project.succeed(*verb)
    root = Store(project.store).base(read_lock(project.folder / "lockfiles/small.lock").base.digest)
    text = (project.folder / "Dockerfile").read_text()
    ask = "python3 -c 'import six; print(six.__version__)'"
    told = build_rootless(text, root, mirror_here(), ask, "hello")
    assert told == "1.16.0\nHello, world!\n"


@contextmanager
def mirror_with(path: str, package: bytes, behind: str) -> Iterator[str]:
    """Serve one package more than a mirror has; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == f"/{path}" else 302)
            if self.path == f"/{path}":
                self.send_header("Content-Length", str(len(package)))
                self.end_headers()
                self.wfile.write(package)
            else:
                self.send_header("Location", behind + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


ASK_SERVER = """\
#!/usr/bin/python3
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError:
    told = "cut off"
else:
    told = "reached it"
open("/usr/share/harm", "w").write(told)
"""


@pytest.mark.live
@pytest.mark.slow
@needs("buildah", "newuidmap", "apt-get", "mmdebstrap", "dpkg-deb")
@ROOT_ONLY
def test_a_debian_script_reaches_no_network_in_the_stage_of_the_root(
    user_settings: Settings, tmp_path: Path
) -> None:
    settings = replace(user_settings, stores_below=(shared_store(),))
    store = Store(settings.store, below=settings.stores_below)
    context = Context(settings=settings, runner=LocalRunner(), store=store, report=Silent())
    base = resolve_bootstrap("bookworm", context)
    fetch_packages(base, context)
    root = make_root(base, context)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        script = ASK_SERVER.format(port=listening.getsockname()[1])
        harm = harmful_package(tmp_path, script, store)
        setup = root_stage((*base.packages, harm), (), 0)
        staged = replace(SMALL, header=(("Bootstrap", "scratch"),), setup=setup)
        with mirror_with(harm.path, store.artifact(harm.sha256).read_bytes(), mirror_here()) as url:
            told = build_rootless(
                render_dockerfile(staged),
                root,
                url,
                "cat /target/usr/share/harm",
                stage="root",
            )
    assert told == "cut off"
