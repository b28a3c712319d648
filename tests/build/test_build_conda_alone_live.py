"""What is written for others to build, with conda packages: by a real engine; and in layers.

Both give the files that flat gives. The engine is told addresses alone, and uses nothing of the store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.base.debian.apt import debian_mirror
from envbuild.lock.read import read_lock
from envbuild.net.index import index_url
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from tests.build.test_build_conda_live import channel, made, pytestmark, run
from tests.conda.channels import Served
from tests.hosts import ROOT_ONLY
from tests.project import Project
from tests.support import context_for, needs

__all__ = ["channel", "made", "pytestmark"]
# Debian's Python, which plays conda's, lets uv put six into another folder
FIND = (
    "cd /opt/env && find . -not -type d -not -name '*.pyc' -not -path '*conda-meta*' "
    "-not -path '*six*'"
)
LISTING = f"{FIND} | LC_ALL=C sort | xargs sha256sum; ls conda-meta; cat conda-meta/history"
ACTIVATED = "cat /.singularity.d/env/91-conda.sh"


def network(project: Project, served: Served) -> dict[str, str]:
    """Return the variables that tell a build without envbuild where everything is."""
    user, runner = load_settings(project.env, project.folder), LocalRunner()
    return {
        "DEBIAN_MIRROR": debian_mirror(context_for(user, runner)),
        "PIP_INDEX_URL": index_url(context_for(user, runner)),
        "ENVBUILD_CHANNEL_LAB": f"{served.url}/lab",
    }


def certificates(project: Project) -> Path:
    user = load_settings(project.env, project.folder)
    return user.certificates or Path("/etc/ssl/certs/ca-certificates.crt")


def inside(image: str, folder: Path) -> str:
    """Return what is in an image, as Apptainer itself shows it."""
    start = ("apptainer", "--quiet", "exec", "--userns", "--containall", image, "sh", "-c")
    argv = (*start, f"{LISTING}; {ACTIVATED}")
    return LocalRunner()(Command(argv=argv, cwd=folder, timeout=600)).stdout


def test_layers_hold_the_same_files(made: Project) -> None:
    made.succeed("make", "env", "--mode", "layered", "-o", "layers.sif", "--no-check")
    found = inside("layers.sif", made.folder)
    assert found == run(made, "sh", "-c", f"{LISTING}; {ACTIVATED}")


ENGINE = [
    needs("dockerd"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts a Docker engine"),
]


@pytest.fixture
def docker(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    engine = str(request.getfixturevalue("engine"))

    def call(*arguments: str) -> str:
        env = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "DOCKER_HOST": engine,
            "DOCKER_BUILDKIT": "1",
            "HOME": str(tmp_path),
        }
        command = Command(argv=("docker", *arguments), env=env, cwd=tmp_path, timeout=900)
        return LocalRunner()(command).stdout

    return call


@pytest.mark.slow
@pytest.mark.usefixtures("made")
class TestEngine:
    pytestmark = ENGINE

    def test_the_dockerfile_gives_the_same_environment(
        self, made: Project, channel: Served, docker: Callable[..., str], tmp_path: Path
    ) -> None:
        """No file beside the Dockerfile; how this machine reaches what it needs is told by secrets."""
        made.succeed("export", "env", "--format", "dockerfile", "-o", "context/Dockerfile")
        told = network(made, channel)
        (tmp_path / "network").write_text("".join(f"{k}={v}\n" for k, v in told.items()))
        base = read_lock(made.folder / "lockfiles/env.lock").base.digest
        # the builder: this machine reaches no registry with an image of Debian
        docker("import", str(Store(made.store).base(base)), "debian:bookworm")
        secrets = (
            *("--secret", "id=network,src=network"),
            *("--secret", f"id=certificates,src={certificates(made)}"),
        )
        context = str(made.folder / "context")
        docker("build", "--quiet", "--network", "host", *secrets, "--tag", "env", context)
        inside = ("run", "--rm", "--network", "none", "env", "sh", "-c")
        assert docker(*inside, LISTING) == run(made, "sh", "-c", LISTING)


BUILDAH = """\
set -eu
export XDG_RUNTIME_DIR=$PWD/run
mkdir -p "$XDG_RUNTIME_DIR"
buildah() { command buildah --storage-driver vfs --root "$PWD/images" --runroot "$PWD/run/images" "$@"; }
trap 'buildah rm --all >log; buildah rmi --all --force >log; rm -rf "$PWD/images" "$PWD/run"' EXIT
builder=$(buildah from scratch)
buildah add --quiet "$builder" "$BASE" / >log
buildah commit --quiet "$builder" localhost/debian:bookworm >log
buildah bud --isolation chroot --build-arg BUILDER=localhost/debian:bookworm \
    --secret id=network,src=network --secret id=certificates,src="$CERTIFICATES" \
    --tag env --file context/Dockerfile context >log 2>&1 || { tail -n 20 log; exit 1; }
env=$(buildah from env)
buildah run --isolation chroot "$env" -- sh -c "$LISTING"
"""


@pytest.mark.slow
@needs("buildah")
@ROOT_ONLY
def test_scripts_reach_no_network_of_an_engine_that_shares_it(
    made: Project, channel: Served, tmp_path: Path
) -> None:
    """Isolation chroot of buildah is in the machine's own network, whatever it is asked for."""
    made.succeed("export", "env", "--format", "dockerfile", "-o", "context/Dockerfile")
    shutil.copytree(made.folder / "context", tmp_path / "context")
    told = network(made, channel)
    (tmp_path / "network").write_text("".join(f"{k}={v}\n" for k, v in told.items()))
    base = read_lock(made.folder / "lockfiles/env.lock").base.digest
    env = {
        **os.environ,
        "BASE": str(Store(made.store).base(base)),
        "CERTIFICATES": str(certificates(made)),
        "LISTING": LISTING,
    }
    command = Command(argv=("bash", "-c", BUILDAH), env=env, cwd=tmp_path, timeout=900)
    assert LocalRunner()(command).stdout == run(made, "sh", "-c", LISTING)
