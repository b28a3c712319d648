"""A base that is conda itself, for real: linked by py-rattler, extended, its programs and modules used."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from tests.base.ociimages import image_of, programs, python_tar, write_layout
from tests.build.test_build_conda_link import MODULE, OLD, TOOL
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
PREFIX = "/opt/conda"
OLDER = Archive(name="tool", version="0.9", files={"bin/tool": b"", "share/tool/only": b""})
WORK = replace(
    MODULE,
    files={"site-packages/module/__init__.py": b"import sys\ndef main(): print(sys.prefix)\n"},
    text=(),
    programs=(),
    entry_points=("module = module:main",),
    depends=("python", "tool >=1"),
)
NEWER = replace(
    TOOL,
    files={**TOOL.files, "bin/tool": b"#!" + OLD + b"/bin/python -s\nprint(__file__)\n"},
    depends=("python",),
)
RECIPE = """\
[recipe]
name = "over"
[base]
image = "oci:base"
[conda]
channels = ["lab"]
dependencies = ["module"]
[python]
dependencies = ["six==1.16.0"]
[check]
imports = ["six", "module"]
"""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("channel")
    for archive in (real_python(), WORK, NEWER):
        archive.write(folder / "lab" / archive.subdir)
    index(folder / "lab")
    with serve(folder) as served:
        yield served


@pytest.fixture(scope="module")
def made(channel: Served, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("over")
    project = Project(folder / "p", folder / "store")
    # the libraries that this machine's Python loads are those of one that was moved
    libraries = python_tar(Path(f"/usr/bin/python{MINOR}"), "/srv/unused")
    environment = (f"PATH={PREFIX}/bin:/usr/bin:/bin",)
    image = image_of(
        programs(), libraries, conda_tar(folder, PREFIX, real_python(), OLDER), env=environment
    )
    write_layout(image, project.folder / "base")
    config = f'[channels]\nlab = "{channel.url}/lab"\n'
    project.write("home/.config/envbuild/config.toml", config)
    project.write("recipes/over.toml", RECIPE)
    for verb in ("lock", "make"):
        project.succeed(verb, "over")
    return project


def run(project: Project, *words: str) -> str:
    done = project.succeed("exec", "over", "--", *words)
    return done.stdout


def test_only_the_difference_is_locked(made: Project) -> None:
    lock = read_lock(made.folder / "lockfiles/over.lock")
    assert [(p.name, p.version) for p in lock.conda] == [("module", "1.0"), ("tool", "1.0")]
    assert lock.base.conda_prefix == PREFIX
    assert any("tool 0.9 h1_0 of the base makes room for 1.0" in note for note in lock.notes)


def test_the_environment_of_the_base_goes_on(made: Project) -> None:
    assert run(made, "module") == f"{PREFIX}\n"
    assert run(made, "tool") == f"{PREFIX}/bin/tool\n"
    site = f"{PREFIX}/lib/python{MINOR}/site-packages"
    code = "import six, module; print(module.__file__)"
    assert run(made, "python", "-c", code) == f"{site}/module/__init__.py\n"
    listed = run(made, "ls", f"{PREFIX}/conda-meta", f"{PREFIX}/share").split()
    assert {"module-1.0-py_0.json", "tool-1.0-h1_0.json", "history"} <= set(listed)
    assert "tool-0.9-h1_0.json" not in listed
    assert "tool" not in listed


def test_verify_and_check_hold(made: Project) -> None:
    for verb in ("verify", "check"):
        made.succeed(verb, "over")


def test_the_definition_extends_it_too(made: Project, tmp_path: Path) -> None:
    """py-rattler installs into the base's prefix, which Apptainer has unpacked."""
    other = Project(tmp_path / "other", made.store)
    for name in ("recipes/over.toml", "lockfiles/over.lock", "home/.config/envbuild/config.toml"):
        other.write(name, (made.folder / name).read_text())
    (other.folder / "base").symlink_to(made.folder / "base")
    other.succeed("make", "over", "--mode", "fakeroot", "--no-check")
    assert run(other, "module") == f"{PREFIX}\n"
    find = f"cd {PREFIX} && find . -not -type d -not -name '*.pyc' -not -path '*conda-meta*' -not -path '*six*'"
    listing = f"{find} | LC_ALL=C sort | xargs sha256sum"
    assert run(other, "sh", "-c", listing) == run(made, "sh", "-c", listing)
    told = f"ls {PREFIX}/conda-meta; cat {PREFIX}/conda-meta/history"
    assert run(other, "sh", "-c", told) == run(made, "sh", "-c", told)
