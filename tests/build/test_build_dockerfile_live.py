"""An exported Dockerfile is built by an ordinary user without an engine: with buildah, in a chroot."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envbuild.base.debian.apt import debian_mirror, resolve_bootstrap
from envbuild.base.debian.bootstrap import fetch_packages, make_root
from envbuild.context import Context
from envbuild.lock.read import read_lock
from envbuild.net.index import index_url
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.plan.root import root_stage
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import Settings, load_settings
from envbuild.store.layout import Store
from tests.hostile.test_debian_scripts import harmful_package
from tests.hosts import ROOT_ONLY, Bench, Lack
from tests.plan.test_plan_dockerfile import RECIPE, SMALL
from tests.project import Project, shared_store
from tests.support import context_for, needs
from tests.tiny_image import open_folder

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
