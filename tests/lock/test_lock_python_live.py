"""[python] version, for real: an image of another Python than this one's, from an image base and from a Debian release."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from tests.base.interpreters import interpreter
from tests.base.ociimages import image_of, programs, python_tar, write_layout
from tests.project import Project, shared_store
from tests.support import needs

pytestmark = [
    pytest.mark.live,
    needs("apptainer"),
    pytest.mark.skipif(
        platform.machine() != "x86_64",
        reason="the image is made of this machine's programs, for amd64",
    ),
]
RECIPE = """\
[recipe]
name = "other"
[base]
{base}
[python]
version = "{version}"
dependencies = ["iniconfig==2.0.0", "msgspec"]  # msgspec is compiled for each Python
as-of = "none"
[check]
imports = ["iniconfig", "msgspec"]
"""
ASKED = "import msgspec, sys; print(*sys.version_info[:2]); print(msgspec._core.__file__)"


def project_on(base: str, version: str, folder: Path, store: Path) -> Project:
    project = Project(folder / "p", store)
    project.write("recipes/other.toml", RECIPE.format(base=base, version=version))
    return project


def prove(project: Project, version: str) -> None:
    """Lock, make, check and start the image: its Python is that one, and so is the compiled code."""
    for verb in (("lock",), ("make",), ("check",), ("verify", "other")):
        project.succeed(*verb)
    told = project.succeed("exec", "other", "--", "python", "-c", ASKED)
    assert told.stdout.split()[:2] == version.split(".")
    assert f"cpython-{version.replace('.', '')}" in told.stdout


@pytest.mark.parametrize(
    "version",
    [
        one
        for one in ("3.10", "3.12", "3.13", "3.14")
        if one != f"{sys.version_info[0]}.{sys.version_info[1]}"
    ],
)
def test_an_image_base_with_another_python(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    tmp_path.chmod(0o755)
    project = project_on('image = "oci:base"', version, tmp_path, tmp_path / "store")
    image = image_of(
        programs(),
        python_tar(python.resolve(), "/usr/local"),
        env=("PATH=/usr/local/bin:/usr/bin:/bin",),
    )
    write_layout(image, project.folder / "base")
    prove(project, version)
    wrong = "3.9"
    recipe = project.folder / "recipes/other.toml"
    recipe.write_text(recipe.read_text().replace(f'version = "{version}"', f'version = "{wrong}"'))
    refused = project.run("lock")
    assert refused.code == 3
    assert f'[python] version is "{wrong}", and the base oci:base has Python {version}.' in (
        refused.stderr
    )


@needs("mmdebstrap", "apt-get")
def test_the_debian_release_that_the_message_names_has_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    project = project_on('bootstrap = "debian:bookworm"', "3.13", tmp_path, shared_store())
    refused = project.run("lock")
    assert refused.code == 3
    named = 'bootstrap = "debian:trixie"'
    assert f"take {named}" in refused.stderr
    recipe = project.folder / "recipes/other.toml"
    recipe.write_text(recipe.read_text().replace('bootstrap = "debian:bookworm"', named))
    prove(project, "3.13")
