"""Bases without a Python, or with one on no PATH, for real: made, checked, verified, used."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from tests.base.ociimages import image_of, programs, python_tar, write_layout
from tests.build.test_build_conda_link import MODULE, OLD
from tests.check import fatbin
from tests.check.elf import shared_object
from tests.conda.archives import Archive
from tests.conda.channels import Served, index, serve
from tests.conda.linked import conda_tar
from tests.conda.real_python import MINOR, has_real_python, real_python
from tests.project import Project
from tests.support import needs

pytestmark = [
    pytest.mark.live,
    needs("apptainer"),
    pytest.mark.skipif(not has_real_python(), reason="this machine's Python is not Debian's"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the image is of this machine"),
]
HELD = Archive(name="held", files={"share/held": b"of the base\n"})
TOOL = Archive(
    name="tool",
    files={
        "bin/tool": b"#!/bin/sh\necho the tool, and $(cat ${0%/*}/../share/held)\n",
        "bin/.tool-post-link.sh": b'echo "after linking into $PREFIX" >"$PREFIX/share/post"\n',
        "etc/conda/activate.d/tool.sh": b'export TOOL_HOME="$CONDA_PREFIX/share"\n',
    },
    programs=("bin/tool",),
    depends=("held",),
)
WORK = replace(
    MODULE,
    files={"site-packages/module/__init__.py": b"import sys\ndef main(): print(sys.prefix)\n"},
    text=(),
    programs=(),
    entry_points=("module = module:main",),
    depends=("python",),
)
R_BASE = Archive(
    name="r-base",
    version="4.4.1",
    files={
        "bin/Rscript": b'#!/bin/sh\n. "' + OLD + b'/lib/R/etc/ldpaths"\n'
        b'for one in "$R_HOME"/library/*; do echo "${one##*/} $(cat "$one/DESCRIPTION")"; done\n',
        "lib/R/etc/ldpaths": b'R_HOME="' + OLD + b'/lib/R"\n',
        "lib/R/library/base/DESCRIPTION": b"4.4.1\n",
        "etc/conda/activate.d/activate-r-base.sh": b'export R_LIBS_SITE="$CONDA_PREFIX/lib/R"\n',
    },
    text=("bin/Rscript", "lib/R/etc/ldpaths"),
    programs=("bin/Rscript",),
)
R_TABLES = Archive(
    name="r-tables",
    version="1.16",
    subdir="noarch",
    noarch="generic",
    build="r44_0",
    files={"lib/R/library/tables/DESCRIPTION": b"1.16\n", "share/licenses/r": b"GPL\n"},
    depends=("r-base >=4.4,<4.5.0a0",),
)
R_GENOMES = Archive(
    name="bioconductor-genomes",
    version="2.0",
    subdir="noarch",
    noarch="generic",
    files={
        "bin/.bioconductor-genomes-post-link.sh": b'echo 2.0 >"$PREFIX/lib/R/library/genomes/DESCRIPTION"\n',
        "lib/R/library/genomes/R/genomes": b"fetched when it is linked\n",
    },
    depends=("r-tables",),
)
R_RECIPE = """\
[conda]
channels = ["lab"]
dependencies = ["r-tables", "bioconductor-genomes"]
"""


def kernels(build: str, *code: int, number: int = 0, depends: tuple[str, ...] = ()) -> Archive:
    """Return an extension that was compiled for these cards, or for none."""
    data = shared_object(["libc.so.6"], soname="libkernels.so")
    if code:
        data = fatbin.library([fatbin.region([("sass", capability) for capability in code])])
    index = {"build_number": number}
    archive = Archive(
        name="kernels", build=build, files={"lib/libkernels.so": data}, depends=depends
    )
    told = json.dumps({**archive.index(), **index}).encode()
    return replace(archive, info={"info/index.json": told})


KERNELS = (
    kernels("cpu_0"),
    kernels("cuda12_sm70_1", 70, number=1, depends=("__cuda >=12", "__cuda_arch >=7.0")),
    kernels("cuda12_sm90_2", 80, 90, number=2, depends=("__cuda >=12", "__cuda_arch >=8.0")),
)
RECIPE = """\
[recipe]
name = "bare"
[base]
image = "oci:base"
"""
CONDA = '[conda]\nchannels = ["lab"]\ndependencies = [{}]\n'
PYTHON = '[python]\ndependencies = ["six==1.16.0"]\n[check]\nimports = ["six"]\n'


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("channel")
    for archive in (real_python(), WORK, TOOL, HELD, R_BASE, R_TABLES, R_GENOMES, *KERNELS):
        archive.write(folder / "lab" / archive.subdir)
    index(folder / "lab")
    with serve(folder) as served:
        yield served


def project_on(folder: Path, url: str, recipe: str, *layers: bytes) -> Project:
    """Return a project whose base has this machine's programs and these layers; locked and made."""
    project = Project(folder / "p", folder / "store")
    # the libraries that this machine's Python loads are those of one that was moved
    libraries = python_tar(Path(f"/usr/bin/python{MINOR}"), "/srv/unused")
    write_layout(image_of(programs(), libraries, *layers), project.folder / "base")
    config = f'[channels]\nlab = "{url}/lab"\n'
    project.write("home/.config/envbuild/config.toml", config)
    project.write("recipes/bare.toml", RECIPE + recipe)
    for verb in ("lock", "make", "verify", "check"):
        project.succeed(verb, "bare")
    return project


def run(project: Project, *words: str) -> str:
    done = project.succeed("exec", "bare", "--", *words)
    return done.stdout


def test_a_tool_is_added_where_no_python_is(channel: Served, tmp_path: Path) -> None:
    """As images of bioconda's tools are: conda's prefix is /usr/local."""
    base = conda_tar(tmp_path, "/usr/local", HELD)
    project = project_on(tmp_path, channel.url, CONDA.format('"tool"'), base)
    lock = read_lock(project.folder / "lockfiles/bare.lock")
    assert ([p.name for p in lock.conda], lock.python_version) == (["tool"], "")
    assert lock.conda_prefix == "/usr/local"
    assert run(project, "tool") == "the tool, and of the base\n"
    assert run(project, "cat", "/usr/local/share/post") == "after linking into /usr/local\n"
    assert run(project, "sh", "-c", "echo $TOOL_HOME") == "/usr/local/share\n"
    checked = project.run("check", "bare").stdout
    assert "no Python in it; looked at with this machine's" in checked
    assert "2 packages, all files there" in checked
    project.write("recipes/bare.toml", RECIPE + CONDA.format('"tool"') + "[python]\n")
    done = project.run("make", "bare", "--mode", "fakeroot", "--no-check")
    assert (done.code, "the base has no Python to start py-rattler" in done.stderr) == (7, True)


def test_a_file_lost_is_found_without_a_python(channel: Served, tmp_path: Path) -> None:
    base = conda_tar(tmp_path, "/usr/local", HELD)
    recipe = CONDA.format('"tool"') + '[system]\npost = ["rm /usr/local/bin/tool"]\n'
    with pytest.raises(AssertionError, match="files of conda packages are gone: bin/tool of tool"):
        project_on(tmp_path, channel.url, recipe, base)


def test_python_is_put_into_such_an_environment(channel: Served, tmp_path: Path) -> None:
    base = conda_tar(tmp_path, "/opt/conda", HELD)
    recipe = CONDA.format(f'"tool", "module", "python {MINOR}.*"') + PYTHON
    project = project_on(tmp_path, channel.url, recipe, base)
    assert run(project, "module") == "/opt/conda\n"
    site = f"/opt/conda/lib/python{MINOR}/site-packages"
    code = "import six, module; print(six.__file__, module.__file__)"
    assert run(project, "python", "-c", code) == f"{site}/six.py {site}/module/__init__.py\n"


def test_a_base_with_neither_takes_an_environment(channel: Served, tmp_path: Path) -> None:
    project = project_on(tmp_path, channel.url, CONDA.format('"tool"'))
    assert run(project, "tool") == "the tool, and of the base\n"
    assert run(project, "sh", "-c", "command -v tool").startswith("/opt/env/bin/tool")


def test_condas_python_on_no_path_is_used(channel: Served, tmp_path: Path) -> None:
    base = conda_tar(tmp_path, "/opt/conda", real_python(), HELD)
    project = project_on(tmp_path, channel.url, PYTHON, base)
    lock = read_lock(project.folder / "lockfiles/bare.lock")
    assert (lock.base.python_path, lock.base.off_path) == ("/opt/conda/bin/python", True)
    # Debian's Python, which plays conda's, has folders of its own below the prefix
    assert run(project, "python", "-c", "import six; print(six.__file__)").startswith("/opt/conda/")


def test_an_environment_of_r_alone(channel: Served, tmp_path: Path) -> None:
    project = project_on(tmp_path, channel.url, R_RECIPE)
    told = "base 4.4.1\ngenomes 2.0\ntables 1.16\n"
    assert run(project, "Rscript") == told
    assert run(project, "sh", "-c", 'echo "$R_LIBS_SITE"') == "/opt/env/lib/R\n"
    assert run(project, "sh", "-c", "command -v python3 || echo none") == "none\n"
    names = [package.name for package in read_lock(project.folder / "lockfiles/bare.lock").conda]
    assert names == ["bioconductor-genomes", "r-base", "r-tables"]


@pytest.mark.parametrize(("gpu", "build"), [("H100", "cuda12_sm90_2"), ("V100", "cuda12_sm70_1")])
def test_an_extension_is_that_of_the_card(
    gpu: str, build: str, channel: Served, tmp_path: Path
) -> None:
    target = f'[target]\ngpu = ["{gpu}"]\ndriver = "550.54.14"\n'
    project = project_on(tmp_path, channel.url, CONDA.format('"kernels"') + target)
    (locked,) = read_lock(project.folder / "lockfiles/bare.lock").conda
    assert locked.build == build
    record = f"/opt/env/conda-meta/kernels-1.0-{build}.json"
    assert run(project, "ls", record) == f"{record}\n"
