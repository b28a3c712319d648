"""The variables that an image sets count inside of it, whatever programs of the host would do by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.run import LocalRunner
from envbuild.runtime import BuildOptions
from tests.project import Project
from tests.support import needs
from tests.tiny_image import definition, open_folder, runtime

pytestmark = [pytest.mark.live, needs("apptainer")]
SHOWN = 'echo "sees $BASH_ENV $PYTHONPATH"; ls /mnt'
LINES = """
%environment
    export BASH_ENV={folder}/harm.sh ENV={folder}/harm.sh PROMPT_COMMAND='touch {hit}'
    export PYTHONPATH={folder} PYTHONSTARTUP={folder}/sitecustomize.py PYTHONHOME={folder}
    export APPTAINER_BIND={secret}:/mnt SINGULARITY_BIND={secret}:/mnt APPTAINER_BINDPATH={secret}:/mnt
    export APPTAINERENV_LEAK=yes SINGULARITYENV_LEAK=yes
    export LD_LIBRARY_PATH={folder} LD_PRELOAD={folder}/none.so
    touch {hit}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose image names files of it, which act where they are read outside of the image."""
    project = Project(tmp_path / "project", store=tmp_path / "store")
    secret, hit = tmp_path / "secret", tmp_path / "hit"
    secret.mkdir()
    (secret / "key").touch()
    project.write("harm.sh", f"touch {hit}\n")
    project.write("sitecustomize.py", f"from pathlib import Path\nPath({str(hit)!r}).touch()\n")
    lines = LINES.format(folder=project.folder, hit=hit, secret=secret)
    options = BuildOptions(packer_arguments="-comp zstd -Xcompression-level 3", timeout=120)
    target = project.folder / "tiny.sif"
    LocalRunner()(
        runtime().build_command(target, definition(lines, "harm.def"), open_folder(), options)
    )
    return project


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "./tiny.sif", "--"),
        ("run", "./tiny.sif", "--"),
        ("shell", "./tiny.sif"),
        ("submit", "./tiny.sif", "--on", "local", "--wait", "--notify", "true", "--"),
        ("check", "./tiny.sif"),
    ],
    ids=lambda words: words[0],
)
def test_they_count_inside_alone(words: tuple[str, ...], project: Project, tmp_path: Path) -> None:
    command = ("sh", "-c", SHOWN) if words[-1] == "--" else ()
    ran = project.run(*words, *command)
    assert not (tmp_path / "hit").exists()
    assert "key" not in ran.stdout.split()
    if command:
        assert f"sees {project.folder}/harm.sh {project.folder}" in ran.stdout
