"""What a command names is found to be invisible before the job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import UsageError
from envbuild.job.compose import collect, read_env_file
from envbuild.job.inputs import check_inputs


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


def check(home: Path, *words: str, binds: tuple[str, ...] = (), inputs: tuple[str, ...] = ()) -> list[str]:
    project = home / "me/project"
    found = check_inputs(words, inputs, project, (project, *(home / name for name in binds)))
    return [item.named for item in found]


@pytest.mark.parametrize(
    "words", [("train.py", "--model", "model"), ("train.py", "--model=model/weights"), ("cat", "data")]
)
def test_a_link_into_another_home_is_refused_with_the_missing_bind(home: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as told:
        check(home, *words)
    assert "which cannot be seen inside the container" in told.value.what
    assert told.value.hint == f"add: --bind {home}/tnal/model:ro"


def test_the_bind_mends_it(home: Path) -> None:
    assert check(home, "train.py", "model", "data", binds=("tnal",)) == []


def test_a_link_that_the_command_does_not_name_is_only_mentioned(home: Path) -> None:
    assert check(home, "train.py") == ["model"]


def test_words_that_are_no_paths_and_programs_of_the_image_pass(home: Path) -> None:
    check(home, "/usr/bin/env", "/bin/sh", "-c", "echo /tmp", "nosuch/file", "x" * 5000, "a\0b", "--lr=0.1")


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
