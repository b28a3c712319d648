"""A program of the image may write into the project, and changes nothing that its job's script runs or writes by name."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.project import Project
from tests.support import needs
from tests.tiny_image import tiny_image

pytestmark = [pytest.mark.live, needs("apptainer")]
ATTACK = """\
for file in .envbuild/jobs/*.env .envbuild/jobs/*.sh; do echo "touch '$1'" >>"$file"; done
for file in .envbuild/jobs/*.part; do echo >"$file"; done
for file in logs/*.part logs/*.use* logs/*.json; do [ ! -e "$file" ] || { echo >"$file" && echo written; }; done
touch .envbuild/jobs/new .envbuild/new
ls .envbuild/new .envbuild/jobs/new && echo written
[ -z "${ENVBUILD_RESULT:-}" ] || echo '{"loss": 1}' >"$ENVBUILD_RESULT"
echo tried >own
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", store=tmp_path / "store")
    shutil.copy(tiny_image(), project.folder / "tiny.sif")
    project.write("attack.sh", ATTACK)
    return project


def test_a_job(project: Project, tmp_path: Path) -> None:
    """The variables of --env are sourced again by what runs --notify."""
    given = ("--on", "local", "--wait", "--env", "KEY=x", "--notify", "true")
    ran = project.succeed(
        *("submit", "./tiny.sif", *given, "--", "sh", "attack.sh", str(tmp_path / "hit"))
    )
    assert (project.folder / "own").read_text() == "tried\n"
    assert "Read-only file system" in ran.stdout
    assert "written" not in ran.stdout
    assert not (tmp_path / "hit").exists()
    (number,) = [path.stem for path in (project.folder / ".envbuild/jobs").glob("local-*.json")]
    table = project.run("status", "--table", number.removeprefix("local-"), "--json")
    assert '"loss": 1' in table.stdout, table.stdout + table.stderr


def test_a_script_that_was_printed(project: Project, tmp_path: Path) -> None:
    """What the node writes by name while the program runs lies where the program cannot write."""
    printed = project.succeed(
        "job", "./tiny.sif", "--on", "local", "--", "sh", "attack.sh", str(tmp_path / "hit")
    )
    project.write("job.sh", printed.stdout)
    LocalRunner()(Command(argv=("bash", "job.sh"), cwd=project.folder, env=project.env))
    [log] = (project.folder / "logs").iterdir()
    assert "Read-only file system" in log.read_text()
    assert "written" not in log.read_text()
    [receipt] = (project.folder / ".envbuild/jobs").iterdir()
    assert '"code":0' in receipt.read_text()
    [result] = (project.folder / ".envbuild/results").iterdir()
    assert result.read_text() == '{"loss": 1}\n'


def test_a_module_of_the_project_beside_a_job(project: Project, tmp_path: Path) -> None:
    """What samples a job's use runs on the node, outside of the image, and in the project's folder."""
    for name in ("ctypes", "json", "signal", "struct"):
        project.write(f"{name}.py", f"open({str(tmp_path / 'hit')!r}, 'w')")
    # "python -m envbuild" would import them itself
    program = str(Path(sys.executable).with_name("envbuild"))
    line = (program, "submit", "./tiny.sif", "--on", "local", "--wait", "--", "sleep", "1")
    LocalRunner()(Command(argv=line, cwd=project.folder, env=project.env))
    assert not (tmp_path / "hit").exists()


def test_a_command_beside_a_job(project: Project, tmp_path: Path) -> None:
    project.run("submit", "./tiny.sif", "--on", "local", "--wait", "--", "sh", "-c", "true")
    ran = project.succeed("exec", "./tiny.sif", "--", "sh", "attack.sh", str(tmp_path / "hit"))
    assert (project.folder / "own").read_text() == "tried\n"
    assert "Read-only file system" in ran.stderr
    assert "written" not in ran.stdout


def test_a_command_that_began_before_the_first_job(project: Project) -> None:
    """A notebook runs for hours, and meanwhile the folder gets its first job."""
    ran = project.succeed(
        *(
            "exec",
            "./tiny.sif",
            "--",
            "sh",
            "-c",
            "mkdir .envbuild/jobs/x; touch .envbuild/x; ls .envbuild",
        )
    )
    assert ran.stdout == "jobs\nresults\n"
    assert ran.stderr.count("Read-only file system") == 2


@pytest.mark.parametrize("link", [".envbuild", ".envbuild/results"])
def test_a_link_that_came_with_the_folder_is_not_bound(
    link: str, project: Project, tmp_path: Path
) -> None:
    (tmp_path / "hidden/results").mkdir(parents=True)
    (project.folder / link).parent.mkdir(exist_ok=True)
    (project.folder / link).symlink_to(tmp_path / "hidden")
    ran = project.succeed("exec", "./tiny.sif", "--dry-run", "--", "true")
    assert str(project.folder) in ran.stdout
    assert str(project.folder / link) not in ran.stdout
