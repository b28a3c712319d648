"""What a command names is found to be invisible before the job is submitted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.errors import UsageError
from envbuild.job.compose import check_visible, collect, git_commit, read_env_file
from envbuild.job.render.staging import check_stage, staged_data
from envbuild.job.request.inputs import check_inputs
from envbuild.job.warnings import lonely_lightning, shared_sqlite
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from tests.hosts import ROOT
from tests.job.situations import plan
from tests.support import context_for, needs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with a link into another home, as in the oldest example."""
    (tmp_path / "tnal/model").mkdir(parents=True)
    (tmp_path / "tnal/model/weights").write_text("w")
    project = tmp_path / "me/project"
    (project / "data").mkdir(parents=True)
    (project / "train.py").write_text("")
    (project / "model").symlink_to(tmp_path / "tnal/model")
    (project / "data/part").symlink_to(tmp_path / "tnal/model/weights")
    return tmp_path


def check(
    home: Path, *words: str, binds: tuple[str, ...] = (), inputs: tuple[str, ...] = ()
) -> list[str]:
    project = home / "me/project"
    found = check_inputs(words, inputs, project, (project, *(home / name for name in binds)))
    return [item.named for item in found]


@pytest.mark.parametrize(
    "words",
    [("train.py", "--model", "model"), ("train.py", "--model=model/weights"), ("cat", "data")],
)
def test_a_link_into_another_home_is_refused_with_the_missing_bind(
    home: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as told:
        check(home, *words)
    assert "which cannot be seen inside the container" in told.value.what
    assert told.value.hint == f"add: --bind {home}/tnal/model:ro"


def test_the_bind_mends_it(home: Path) -> None:
    assert check(home, "train.py", "model", "data", binds=("tnal",)) == []


def test_a_link_that_the_command_does_not_name_is_only_mentioned(home: Path) -> None:
    assert check(home, "train.py") == ["model"]


def test_words_that_are_no_paths_and_programs_of_the_image_pass(home: Path) -> None:
    check(
        home,
        "/usr/bin/env",
        "/bin/sh",
        "-c",
        "echo /tmp",
        "nosuch/file",
        "x" * 5000,
        "a\0b",
        "--lr=0.1",
    )


def test_an_absolute_path_outside_is_refused(home: Path) -> None:
    with pytest.raises(UsageError) as told:
        check(home, "cat", f"{home}/tnal/model/weights")
    assert told.value.what == f"{home}/tnal/model/weights cannot be seen inside the container"


def test_a_declared_input_must_be_there(home: Path) -> None:
    with pytest.raises(UsageError) as told:
        check(home, "train.py", inputs=("nodata",))
    assert str(told.value) == "nodata: the input is not there"


def test_handed_on_variables(tmp_path: Path) -> None:
    assert collect(("A", "B"), {"B": "2"}, {"A": "1"}) == {"A": "1", "B": "2"}
    with pytest.raises(UsageError) as told:
        collect(("WANDB_API_KEY",), {}, {})
    assert str(told.value) == "WANDB_API_KEY: a variable to hand on is not set here"
    file = tmp_path / "secrets"
    file.write_text("# mine\nexport KEY='a b'\nOTHER=x=y\n")
    file.chmod(0o600)
    assert read_env_file(file) == {"KEY": "a b", "OTHER": "x=y"}
    file.chmod(0o640)
    with pytest.raises(UsageError) as told:
        read_env_file(file)
    assert (told.value.what, told.value.hint) == ("others can read it", f"chmod 600 {file}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "the data to stage is not there"),
        ("../../tnal", "cannot be staged: it needs a path of letters"),
        ("da:ta", "cannot be staged: it needs a path of letters"),
        (".", "cannot be staged: it needs a path of letters"),
        ("/", "the project itself cannot be staged"),
    ],
)
def test_what_cannot_be_staged(home: Path, name: str, message: str) -> None:
    (home / "me/project/da:ta").mkdir()
    check_stage(("data", "model"), home / "me/project")
    with pytest.raises(UsageError) as told:
        check_stage(("data", name), home / "me/project")
    assert told.value.what.startswith(message)
    assert told.value.where == name


def test_what_is_staged_may_lie_in_another_home(user_settings: Settings, home: Path) -> None:
    """It is copied on the node, where links are followed, so the container needs to see nothing else."""
    settings = replace(user_settings, cwd=home / "me/project")
    job, site = plan("amane", "single", settings)
    job = replace(job, argv=("train.py", "--model", "model"))
    with pytest.raises(UsageError, match="cannot be seen inside the container"):
        check_visible(job, site, settings, ())
    check_visible(replace(job, intent=replace(job.intent, stage=("model",))), site, settings, ())


@pytest.mark.parametrize(
    ("names", "targets"),
    [
        (("data", "a.b/texts.tar.gz"), [("data", False), ("a.b/texts", True)]),
        (
            ("x.tgz", "y.tar", "z.tar.zst", "tar"),
            [("x", True), ("y", True), ("z", True), ("tar", False)],
        ),
    ],
)
def test_archives_become_folders(
    user_settings: Settings, names: tuple[str, ...], targets: list[object]
) -> None:
    job, _ = plan("amane", "single", user_settings)
    found = staged_data(replace(job, intent=replace(job.intent, stage=names)))
    assert [(item.target, item.packed) for item in found] == targets
    assert tuple(item.source for item in found) == names


@pytest.mark.parametrize(
    ("situation", "source", "argument", "place"),
    [
        ("array", 'storage="sqlite:///db.sqlite3"', "x", "tune.py, line 2: 2 processes"),
        (
            "mpi",
            "",
            "--storage=sqlite+pysqlite:///db",
            "--storage=sqlite+pysqlite:///db: 4 processes",
        ),
        ("single", 'storage="sqlite:///db.sqlite3"', "x", None),
        ("array", '# storage="sqlite:///db.sqlite3"', "x", None),
        ("array", 'storage="journal.log"', "x", None),
    ],
)
def test_several_writers_of_one_sqlite_file(
    *,
    user_settings: Settings,
    tmp_path: Path,
    situation: str,
    source: str,
    argument: str,
    place: str | None,
) -> None:
    (tmp_path / "tune.py").write_text(f"import optuna\n{source}\n")
    job, _ = plan("plai", situation, user_settings)
    told = shared_sqlite(replace(job, argv=("python", "tune.py", argument)), tmp_path)
    assert (told is None) if place is None else (told or "").startswith(place)


def test_the_projects_commit(tmp_path: Path) -> None:
    run = LocalRunner()
    settings = load_settings({"HOME": str(tmp_path), "PATH": os.defpath}, tmp_path)

    def git(*words: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@y.invalid")
        return run(Command(argv=("git", *identity, *words), cwd=tmp_path)).stdout.strip()

    assert git_commit(context_for(settings, run)) == "none"
    git("init", "-q")
    assert git_commit(context_for(settings, run)) == "none", "there is no commit yet"
    (tmp_path / "train.py").write_text("one")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("")
    assert git_commit(context_for(settings, run)) == head
    (tmp_path / "train.py").write_text("two")
    assert git_commit(context_for(settings, run)) == f"{head} (modified)"


def test_lightning_alone_on_slurm(user_settings: Settings) -> None:
    """SLURM_NTASKS=1 is its whole world, so that several GPUs are an error there."""
    (user_settings.cwd / "train.py").write_text("import pytorch_lightning as pl\n")
    for situation in ("single", "lightning", "torchrun"):
        job, site = plan("amane", situation, user_settings)
        assert lonely_lightning(job, site, user_settings.cwd) is None, situation
    lonely = replace(job, intent=replace(job.intent, launcher="single"))
    lonely = replace(lonely, allocation=replace(job.allocation, gpus=4))
    told = lonely_lightning(lonely, site, user_settings.cwd)
    assert told is not None
    assert told.startswith("train.py, line 1: on Slurm, Lightning uses several GPUs only")
    (user_settings.cwd / "train.py").write_text("import torch\n")
    assert lonely_lightning(lonely, site, user_settings.cwd) is None


@needs("bash")
@pytest.mark.parametrize(
    ("target", "told"), [("others", "{} is not yours"), ("absent", "no file can be written in {}")]
)
def test_data_is_brought_into_no_folder_of_another(target: str, told: str, tmp_path: Path) -> None:
    """Who lists processes on one node of a job sees the name, and may make it on the next one first."""
    others, staged = tmp_path / "others", tmp_path / "envbuild-stage-1"
    others.mkdir()
    for name in ("lock", "copy", "done"):
        (others / name).write_text("precious")
    staged.symlink_to(tmp_path / target)
    script = (ROOT / "envbuild/job/scripts/staging.sh").read_text()
    around = f'node_local() {{ echo "{tmp_path}"; }}; fail() {{ echo "$1"; exit 125; }}; token=1'
    ran = LocalRunner()(Command(argv=("bash", "-uc", f"{around}\n{script}\nstage")), check=False)
    assert (ran.code, ran.stdout) == (125, f"{told.format(staged)}\n")
    assert {path.read_text() for path in others.iterdir()} == {"precious"}
    assert not (tmp_path / "absent").exists()
