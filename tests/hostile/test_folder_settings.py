"""A stranger's folder has settings and programs for what envbuild starts there: nothing of it is taken or run."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.errors import EnvbuildError
from envbuild.job.schedulers.protocol import script_text
from envbuild.job.sites.find import load_site
from envbuild.resolve.pip.pip_tools import find_compiler
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from envbuild.tools import uv_program
from envbuild.wrap.kernel import RELAY, NodeKernel, render_forward
from tests.cli.test_cli_job import project
from tests.cli.test_cli_submit import client
from tests.resolve.conftest import base
from tests.support import quiet_context

__all__ = ["project"]
LIKE_GRID_ENGINE = '[ ! -e .sge_request ] || touch "$HIT"; echo "$PWD $*" >>"$HIT.asked"; '
TSUBAME = ("--on", "tsubame4", "--account", "lab", "--", "./train")


@pytest.fixture
def hit(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the clients of Grid Engine make where they read options in the folder, as the real ones do."""
    (project / ".sge_request").write_text("-v BASH_ENV=/stranger/code\n")
    for name, answer in {"qsub": "echo 7", "qstat": "exit 1", "qacct": "exit 1"}.items():
        client(
            tmp_path,
            monkeypatch,
            name,
            LIKE_GRID_ENGINE.replace("$HIT", str(tmp_path / "hit")) + answer,
        )
    return tmp_path / "hit"


def test_no_option_of_its_file_for_grid_engine_counts(hit: Path, project: Path) -> None:
    """One of them names code that bash runs on the node before the job, outside of the image."""
    assert run_cli(["submit", "thing", *TSUBAME]) == 0
    run_cli(["status", "7"])
    asked = hit.with_name("hit.asked").read_text()
    assert f"-wd {project} " in asked
    assert not hit.exists()


def test_nor_for_a_terminal_on_a_node(
    hit: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[tuple[str, ...], Path]] = []
    client(tmp_path, monkeypatch, "qrsh", "exit 1")
    monkeypatch.setattr(
        "envbuild.cli.submit.hand_over", lambda argv, _: seen.append((argv, Path.cwd()))
    )
    with contextlib.suppress(SystemExit):
        run_cli(["submit", "thing", "--interactive", *TSUBAME])
    [(argv, folder)] = seen
    assert folder == Path("/")
    assert argv[:3] == ("qrsh", "-wd", str(project))
    assert "-cwd" not in argv
    os.chdir(project)
    assert not hit.exists()


def test_nor_for_a_kernel_on_a_node(tmp_path: Path, user_settings: Settings) -> None:
    folder, notebooks = tmp_path / "kernel", tmp_path / "note books"
    folder.mkdir()
    notebooks.mkdir()
    (folder / RELAY).write_text("import os, sys; print(os.getcwd(), sys.argv[3:])")
    words = ("qrsh", "-now", "n", "-cwd", "bash", "start")
    kernel = NodeKernel(folder=str(folder), site=load_site("tsubame4", user_settings), words=words)
    start = tmp_path / "on-node"
    start.write_text(render_forward(kernel))
    ran = LocalRunner()(Command(argv=("bash", str(start), "/connection"), cwd=notebooks))
    wanted = ["qrsh", "-wd", str(notebooks), "-now", "n", "bash", "start"]
    assert ran.stdout == f"/ {wanted}\n"


def test_no_python_of_its_virtual_environment_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv asks it where pip-tools are put into a folder of their own."""
    stranger, work = tmp_path / "stranger", tmp_path / "work"
    program = stranger / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    (stranger / ".venv/pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hit'\nexit 1\n")
    program.chmod(0o755)
    work.mkdir()
    LocalRunner()(
        Command(argv=(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")))
    )
    monkeypatch.chdir(stranger)
    settings = load_settings(cwd=stranger)
    environment = {
        name: value for name, value in settings.environment.items() if name != "VIRTUAL_ENV"
    }
    context = quiet_context(replace(settings, environment=environment))
    python = str(tmp_path / "v/bin/python")
    here = "{}.{}.1".format(*sys.version_info[:2])
    with contextlib.suppress(EnvbuildError):
        find_compiler(
            base(python=here), work, python=python, uv=uv_program(settings),
            index=(tmp_path / "nothing").as_uri(), context=context,
        )  # fmt: skip
    assert (work / "home").is_dir()
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize("place", ["logs/thing-7.log", "logs/thing-123456.log"])
def test_no_log_is_written_through_a_link(
    place: str, hit: Path, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its author decides what the log says, and guesses its number."""
    (project / place).parent.mkdir()
    (project / place).symlink_to(tmp_path / ".bashrc")
    for verb in ("submit", "job"):
        assert run_cli([verb, "thing", *TSUBAME]) == 6
        assert f"{place}: is a link" in capsys.readouterr().err
    assert not hit.with_name("hit.asked").exists()


def test_nor_through_a_link_in_the_place_of_its_folder(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "runs").mkdir()
    (project / "runs/7").symlink_to(tmp_path)
    words = ("--on", "tsubame4", "--account", "lab", "--output", "runs/{id}/{name}.log")
    assert run_cli(["job", "thing", *words, "--", "./train"]) == 6
    assert "runs/7: is a link" in capsys.readouterr().err


def test_a_printed_script_neither_runs_nor_writes_what_waits_for_its_number(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number of runs that is code for bash, and links where the script keeps its receipt."""
    words = ("--requeue", "1", "--walltime", "1h", "--launcher", "mpi", "--tasks", "1")
    assert run_cli(["job", "thing", *TSUBAME[:-2], *words, *TSUBAME[-2:]]) == 0
    script = project / "job.sh"
    script.write_text(capsys.readouterr().out)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    records = project / ".envbuild/jobs"
    for folder in (records, project / "logs"):
        folder.mkdir(parents=True)
        for ending in (
            "receipt.json.part",
            "json.part",
            "receipt.use",
            "use",
            "receipt.hosts",
            "hosts",
        ):
            (folder / f"thing-7.{ending}").symlink_to(victim)
        for ending in ("receipt.runs", "runs"):
            text = f"SECONDS[$(touch '{tmp_path}/hit'; echo 0)]\n"
            (folder / f"thing-7.{ending}").write_text(text)
    env = {"PATH": os.environ["PATH"], "JOB_ID": "7", "BASH_FUNC_module%%": "() { :; }"}
    command = Command(argv=("bash", "job.sh"), cwd=project, env=env)
    assert LocalRunner()(command, check=False).code == 125
    assert '"code":125' in (records / "thing-7.receipt.json").read_text()
    assert victim.read_text() == "mine"
    assert not (tmp_path / "hit").exists()


def test_a_printed_script_keeps_its_records_in_no_linked_folder(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["job", "thing", *TSUBAME]) == 0
    (project / "job.sh").write_text(capsys.readouterr().out)
    (project / ".envbuild").symlink_to(tmp_path)
    ran = LocalRunner()(Command(argv=("bash", "job.sh"), cwd=project), check=False)
    assert (ran.code, ran.stderr) == (
        125,
        "envbuild: error: .envbuild is no folder of its own\n",
    )
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("made", "protected"), [("recipes/x.toml", True), ("x.sif", True), ("notes.txt", False)]
)
def test_a_wrapper_of_an_image_protects_the_jobs_that_a_project_will_have(
    made: str, protected: bool, tmp_path: Path
) -> None:
    """A kernel runs for hours, and meanwhile the folder gets its first job."""
    project = tmp_path / "my [project]"
    (project / made).parent.mkdir(parents=True)
    (project / made).touch()
    text = f'{script_text("container.sh")}\nrecords=()\nprotect_records "$1"\nprintf "%s\\n" "${{records[@]}}"\n'
    ran = LocalRunner()(Command(argv=("bash", "-c", text, "bash", str(project))))
    records = project / ".envbuild"
    wanted = f"--bind\n{records}:{records}:ro\n--bind\n{records}/results:{records}/results:rw\n"
    assert ran.stdout.strip() == (wanted.strip() if protected else "")
