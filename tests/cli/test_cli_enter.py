"""``exec``, ``shell``, ``run``: what is bound, what is handed on, what comes back."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.run import Command, LocalRunner, Result
from tests.support import SIF, needs
from tests.tiny_image import tiny_image

RECIPE = """\
[recipe]
name = "tiny"
summary = "a tiny one"
[base]
bootstrap = "debian:bookworm"
framework = "tensorflow"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with a recipe, the image's place, and a runtime that notes how it was called."""
    folder = tmp_path / "project"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/tiny.toml").write_text(RECIPE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    program = tmp_path / "bin/apptainer"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo apptainer version 1.4.5; exit; fi\n'
        'for word; do printf "<%s>\\n" "$word"; done\nenv | grep APPTAINER\nexit 7\n'
    )
    program.chmod(0o755)
    return folder


def envbuild(folder: Path, *arguments: str, **variables: str) -> Result:
    env = {
        "PATH": f"{folder.parent / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder.parent),
        "ENVBUILD_STORE": str(folder.parent / "store"),
        "TMPDIR": str(folder.parent / "tmp"),
        **variables,
    }
    command = Command(
        argv=(sys.executable, "-m", "envbuild", *arguments), cwd=folder, env=env, timeout=60
    )
    return LocalRunner()(command, check=False)


def words(result: Result) -> list[str]:
    return re.findall(r"^<(.*)>$", result.stdout, re.MULTILINE)


def test_exec_binds_the_project_and_returns_the_commands_code(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    result = envbuild(project, "exec", "tiny", "--", "python", "train.py", "--epochs", "3")
    assert result.code == 7, result.stderr
    line = words(result)
    assert line[-5:] == [f"{project}/tiny.sif", "python", "train.py", "--epochs", "3"]
    assert line[:2] == ["--quiet", "exec"]
    assert {"--cleanenv", "--containall", "--no-home"} < set(line)
    binds = [line[place + 1] for place, word in enumerate(line) if word == "--bind"]
    assert re.fullmatch(rf"{project.parent}/tmp/envbuild-run-\d+-\S+/\d+:/tmp:rw", binds[0])
    assert binds[1] == f"{project}:{project}:rw"
    assert line[line.index("--pwd") + 1] == str(project)


def test_exec_takes_the_path_of_an_image(project: Path) -> None:
    (project / "other.sif").write_bytes(SIF)
    assert f"{project}/other.sif" in words(envbuild(project, "exec", "other.sif", "--", "id"))


def test_more_binds(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    (project / "data").mkdir()
    line = words(
        envbuild(project, "exec", "--bind", "data:/mnt:ro", "-B", "/usr", "tiny", "--", "id")
    )
    given = [line[place + 1] for place, word in enumerate(line) if word == "--bind"]
    assert given[-2:] == [f"{project}/data:/mnt:ro", "/usr:/usr:rw"]


def test_variables_are_handed_on_by_name_or_given(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    arguments = ("exec", "--env", "MINE", "--env", "B=1,2", "tiny", "--", "id")
    result = envbuild(
        project,
        *arguments,
        MINE="x y",
        CUDA_VISIBLE_DEVICES="2,3",
        OTHER="z",
        ENVBUILD_CACHES="none",
    )
    passed = sorted(line for line in result.stdout.splitlines() if line.startswith("APPTAINERENV_"))
    assert passed == [
        "APPTAINERENV_B=1,2",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES=2,3",
        "APPTAINERENV_MINE=x y",
    ]


def test_shell_opens_the_only_recipes_image(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    line = words(envbuild(project, "shell"))
    assert line[1] == "shell"
    assert line[-1] == f"{project}/tiny.sif"


def test_run_uses_the_recipes_command(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    with (project / "recipes/tiny.toml").open("a") as file:
        file.write('[run]\ncommand = ["python", "serve.py", "a b"]\n')
    assert words(envbuild(project, "run", "tiny"))[-3:] == ["python", "serve.py", "a b"]
    assert words(envbuild(project, "run", "tiny", "--", "id", "-u"))[-2:] == ["id", "-u"]
    assert words(envbuild(project, "run", "./tiny.sif"))[-1] == "/.singularity.d/runscript"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("apt-get install -y libgl1", "to try a package:  envbuild make tiny --mode sandbox"),
        ("/usr/bin/apt update", "add it to [system] packages, then: envbuild lock tiny"),
        ("pip install six", "to try a package:  envbuild add --dev tiny PKG"),
        ("python3 -m pip install six", "to keep it:        envbuild add tiny PKG"),
        ("uv pip install six", "to keep it:        envbuild add tiny PKG"),
        ("/opt/conda/bin/conda install -y samtools", "envbuild add --conda tiny PKG"),
        ("micromamba update", "to try a package:  envbuild add --dev tiny PKG"),
        ("apt-get --version", None),
        ("apt list", None),
        ("pip list", None),
        ("python install", None),
        ("python -m", None),
        ("python -m my.pip install", None),
    ],
)
def test_a_package_manager_in_a_sealed_image_says_how_to_try_and_how_to_keep(
    typed: str, told: str | None, project: Path
) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    result = envbuild(project, "exec", "tiny", "--", *typed.split())
    if told is None:
        assert "to try a package" not in result.stderr
    else:
        assert told in result.stderr


def test_dry_run_prints_a_line_that_a_shell_takes(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    result = envbuild(
        project, "exec", "--dry-run", "--env", "A=b 'c'", "tiny", "--", "echo", "$HOME x"
    )
    assert result.code == 0
    again = LocalRunner()(Command(argv=("sh", "-c", result.stdout), cwd=project), check=False)
    assert words(again)[-2:] == ["echo", "$HOME x"]
    assert "APPTAINERENV_A=b 'c'" in again.stdout


def test_a_folder_of_the_image_is_not_bound_over_it(project: Path) -> None:
    image = project / "tiny.sif"
    image.write_bytes(SIF)
    env = {
        "PATH": f"{project.parent / 'bin'}:/usr/bin:/bin",
        "HOME": str(project),
        "ENVBUILD_CACHES": "none",
        "TMPDIR": "/nowhere",
    }
    argv = (sys.executable, "-m", "envbuild", "exec", str(image), "--", "id")
    result = LocalRunner()(Command(argv=argv, cwd=Path("/usr"), env=env), check=False)
    assert "/usr is a folder of the image too, so it is not bound\n" in result.stderr
    assert "--bind" not in words(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("exec", "tiny", "--", "id"),
            "the image of tiny is not built yet\n  what to do: envbuild make tiny",
        ),
        (
            ("exec", "tiyn", "--", "id"),
            'there is no recipe called "tiyn"\n  what to do: did you mean tiny?',
        ),
        (("exec", "./gone.sif", "--", "id"), "./gone.sif: there is no such image"),
        (("exec", "recipes/tiny.toml", "--", "id"), "this is not an image, or it is damaged"),
        (
            ("exec", "--bind", "gone:/x", "./", "--", "id"),
            "gone: the file or folder to bind does not exist",
        ),
        (
            ("exec", "--bind", "recipes:x", "./", "--", "id"),
            "recipes:x: the path in the container must be absolute",
        ),
        (
            ("exec", "--bind", "a:/b:rx:y", "./", "--", "id"),
            "a:/b:rx:y: --bind takes SRC[:DEST][:ro]",
        ),
        (("exec", "--env", "1A=x", "./", "--", "id"), "1A=x: --env takes KEY or KEY=VALUE"),
        (
            ("exec", "--env", "UNSET", "./", "--", "id"),
            "UNSET: --env names a variable that is not set here",
        ),
        (
            ("run", "tiny"),
            "the recipe has no [run] command\n  what to do: add one, or name it here: -- CMD …",
        ),
        (
            ("exec", "tiny", "ls", "-l"),
            "if it belongs to your command, put -- before that: envbuild exec tiny -- CMD …",
        ),
        (("exec", "tiny"), "missing argument '-- CMD…'"),
    ],
)
def test_own_failures_have_their_own_code(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project.parent))
    assert run_cli(arguments) == 125
    assert message in capsys.readouterr().err


def test_no_runtime_is_an_own_failure(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    result = envbuild(project, "exec", "tiny", "--", "id", PATH="/nowhere")
    assert "neither apptainer nor singularity was found on PATH" in result.stderr
    assert result.code == 125


@pytest.mark.live
@needs("apptainer", "ldd", "mksquashfs")
def test_the_project_is_the_users_own_inside_a_real_image(project: Path) -> None:
    shutil.copy(tiny_image(), project / "tiny.sif")
    (project / "code.sh").write_text(
        'echo "$FROM_IMAGE $MINE $SECRET"; pwd; echo made >made; exit 3\n'
    )
    path = os.environ["PATH"]
    result = envbuild(
        project,
        "exec",
        "--env",
        "MINE",
        "tiny",
        "--",
        "sh",
        "code.sh",
        PATH=path,
        MINE="m",
        SECRET="s",
    )
    assert result.code == 3, result.stderr
    assert result.stdout == f"yes m \n{project}\n"
    assert (project / "made").read_text() == "made\n"


@pytest.mark.live
@needs("apptainer", "ldd", "mksquashfs")
def test_what_is_downloaded_is_there_in_the_next_run_and_has_room(project: Path) -> None:
    shutil.copy(tiny_image(), project / "tiny.sif")
    path = os.environ["PATH"]
    (project / "fetch.sh").write_text(
        "mkdir -p $HF_HOME $TRITON_CACHE_DIR && echo model >$HF_HOME/model && echo gone >$HOME/gone\n"
    )
    assert envbuild(project, "exec", "tiny", "--", "sh", "fetch.sh", PATH=path).code == 0
    script = "cat $HF_HOME/model && ls $HOME && df -P $HF_HOME $TRITON_CACHE_DIR $HOME"
    result = envbuild(project, "run", "tiny", "--", "sh", "-c", script, PATH=path)
    assert result.code == 0, result.stderr
    model, *listed = result.stdout.splitlines()
    assert model == "model"
    assert "gone" not in listed
    room = [int(line.split()[3]) for line in listed if " /tmp" in line]
    assert len(room) == 3
    assert (
        min(room) * 1024 > 0.5 * shutil.disk_usage(project).free
    )  # and not the few megabytes of the container
    job = envbuild(
        project,
        "submit",
        "tiny",
        "--on",
        "local",
        "--wait",
        "--",
        "sh",
        "-c",
        "cat $HF_HOME/model",
        PATH=path,
    )
    assert "\nmodel\n" in job.stdout, job.stderr


def test_a_folder_that_cannot_be_written_costs_a_line(project: Path) -> None:
    (project / "tiny.sif").write_bytes(SIF)
    (project / "file").write_text("")
    result = envbuild(project, "exec", "tiny", "--", "id", ENVBUILD_CACHES="file/caches")
    assert result.code == 7
    assert "note: downloads are not kept: " in result.stderr
    assert "HF_HOME" not in result.stdout


@pytest.mark.live
@needs("apptainer", "ldd", "mksquashfs")
def test_pip_in_a_sealed_image_says_how_to_try_and_how_to_keep(project: Path) -> None:
    """The shipped recipe torch-mnist is on Debian 12, whose pip reads this file (PEP 668)."""
    shutil.copy(tiny_image(), project / "torch-mnist.sif")
    place = "/usr/lib/python3.11/EXTERNALLY-MANAGED"
    result = envbuild(project, "exec", "torch-mnist", "--", "cat", place, PATH=os.environ["PATH"])
    assert result.code == 0, result.stderr
    parser = configparser.ConfigParser(interpolation=None)  # as pip reads it
    parser.read_string(result.stdout)
    told = parser["externally-managed"]["Error"]
    assert "To try a package:   envbuild add --dev NAME PKG" in told
    assert "To keep a package:  envbuild add NAME PKG" in told
