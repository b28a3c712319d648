"""The Dockerfile: whole, and given back by real shells line by line."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.base.debian.apt import debian_mirror
from envbuild.errors import UsageError
from envbuild.lock.read import read_lock
from envbuild.net.index import index_url
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.plan.model import Definition
from envbuild.plan.root import root_stage
from envbuild.plan.shell import offline_program
from envbuild.run import Command, LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from tests.hosts import RECIPE as SMALL_RECIPE
from tests.project import Project
from tests.support import Golden, context_for, needs

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
