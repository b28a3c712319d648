"""``add``, ``remove``, ``promote``, ``dev``: what is refused before anything is resolved, and how it is told."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path

import pytest

from envbuild.app.dev.add import ChangeResult, _refuse_checked
from envbuild.cli import _print_error, run_cli
from envbuild.cli.add import recipe_and_packages
from envbuild.cli.context import make_context
from envbuild.errors import UsageError
from envbuild.lock.digest import lock_digest
from envbuild.lock.read import read_lock
from envbuild.recipe.find import find_recipe
from envbuild.settings import load_settings
from envbuild.store import atomic
from tests.support import SIF

RECIPE = """\
[recipe]
name = "tiny"
[base]
bootstrap = "debian:bookworm"
[python]
dependencies = ["numpy>=1.26"]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/tiny.toml").write_text(RECIPE)
    (tmp_path / "tiny.sif").write_bytes(SIF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("add tiny", "which package?"),
        ("add", "missing argument 'NAME|PKG'"),
        ("add --dev", "the layer is empty"),
        ("add --dev -e recipes", "none that tells its name"),
        ("add --dev six tqdm", "the recipe comes first: envbuild add --dev tiny six tqdm"),
        ("remove six 'tq dm'", "the recipe comes first: envbuild remove tiny six 'tq dm'"),
        ("add --dev --over nix.sif", "missing argument 'NAME|PKG'"),
        ("add tiny -e .", "-e and --over need --dev"),
        ("add tiny ../x", "'../x': is not a requirement"),
        ("add tiny -- --help", "'--help': is not a requirement"),
        (
            "add --dev --conda tiny six",
            "a layer over the image contains packages of Python's index",
        ),
        ("add --conda tiny ../x", "'../x' names no package"),
        ("remove --conda tiny numpy", "[conda] dependencies has no numpy"),
        ("add --dev tiny", "the layer is empty"),
        ("remove tiny", "which package?"),
        ("remove nunpy", 'has no nunpy; did you mean "numpy"?'),
        ("remove keras-bert nunpy", "[python] dependencies has no nunpy"),
        ("add ../x", "which package?"),
        ("add tinny six", 'there is no recipe called "tinny"'),
        ("add --dev tiny six;x", "'six;x': is not a requirement"),
        ("add --dev ./tiny.sif six", "envbuild add --dev tiny --over ./tiny.sif"),
        ("add --dev tiny -e /nowhere", "-e takes the folder of a Python project"),
        ("add --dev tiny -e recipes", "none that tells its name"),
        ("add --dev nosuch six", 'there is no recipe called "nosuch"'),
        ("add --dev tinny six", "did you mean tiny?"),
        ("add --dev --over nix.sif new six", "there is no such image"),
        ("add --dev --over ./tiny.sif tiny six", "tiny is taken"),
        ("add --dev --over ./tiny.sif a/b six", "a layer belongs to a name"),
        ("remove tiny nunpy", 'has no nunpy; did you mean "numpy"?'),
        ("promote tiny", "tiny: there is no development layer"),
        ("dev * --clear", "a layer belongs to a name"),
        ("dev ../tiny --clear", "a layer belongs to a name"),
        ("exec --dry-run --with six tiny -- true", "which a dry run does not"),
    ],
)
def test_a_wrong_word_is_told_and_nothing_is_written(
    project: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert run_cli(shlex.split(words)) == (125 if words.startswith("exec") else 2)
    assert told in capsys.readouterr().err
    assert (project / "recipes/tiny.toml").read_text() == RECIPE
    assert [path.name for path in (project / "recipes").iterdir()] == ["tiny.toml"]
    assert sorted(path.name for path in project.iterdir() if path.name != "store") == [
        "recipes",
        "tiny.sif",
    ]


def test_a_shipped_recipe_is_copied_whole_or_not_at_all(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A half of a file would be taken for the user's own by the next run."""

    def fail(_file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "sync_file", fail)
    assert run_cli(["add", "keras-bert", "six"]) == 8
    assert "the file system is full" in capsys.readouterr().err
    files = (path.name for path in (project / "recipes").rglob("*") if path.is_file())
    assert list(files) == ["tiny.toml"]


def test_clearing_takes_only_the_layers_of_the_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ["tiny.dev.json", "tiny.dev-0123456789ab.sqfs", "tiny.dev-abcdefabcdef.sif"]
    others = ["tiny2.dev.json", "a.tiny.dev-0123456789ab.sqfs", "tiny.dev-notes.txt"]
    for name in (*ours, *others):
        (project / name).touch()
    assert run_cli(["dev", "tiny", "--clear"]) == 0
    assert all(name in capsys.readouterr().out for name in ours[:1])
    assert not any((project / name).exists() for name in ours)
    assert all((project / name).exists() for name in others)


@pytest.mark.parametrize("words", ["add keras-bert six", "remove keras-bert pydot"])
def test_a_change_is_told_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    source = find_recipe("keras-bert", load_settings(dict(os.environ), Path.cwd()))
    lock = read_lock(source.lock)
    result = ChangeResult(source=source, old=lock, lock=lock, made=None)
    for module in ("add", "remove"):
        monkeypatch.setattr(f"envbuild.cli.{module}.change_recipe", lambda *_: result)
    assert run_cli([*words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "recipe": str(source.path),
        "lock": lock_digest(lock),
        "direct": list(lock.direct),
        "image": None,
    }


def test_a_removed_package_that_the_check_imports_is_told(project: Path) -> None:
    path = project / "recipes/tiny.toml"
    path.write_text(RECIPE + '[check]\nimports = ["sklearn.svm"]\n')
    source = find_recipe("tiny", load_settings(dict(os.environ), project))
    lock = read_lock(Path(__file__).parents[2] / "lockfiles/torch-mnist.lock")
    _refuse_checked(source, lock, ("numpy",))
    with pytest.raises(UsageError) as caught:
        _refuse_checked(source, lock, ("scikit-learn",))
    assert caught.value.what.startswith('[check] imports names "sklearn.svm"')


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("envbuild lock NAME && envbuild make NAME", "envbuild lock tiny && envbuild make tiny"),
        ("write docker://NAME:TAG", "write docker://NAME:TAG"),
        (
            "put it into /etc/NAME.crt; envbuild check NAME",
            "put it into /etc/NAME.crt; envbuild check tiny",
        ),
        (
            "envbuild make NAME, or write NAME @ git+https://h/p",
            "envbuild make tiny, or write NAME @ git+https://h/p",
        ),
    ],
)
def test_a_hint_has_the_recipes_name_in_commands_only(
    capsys: pytest.CaptureFixture[str], hint: str, told: str
) -> None:
    _print_error(UsageError("a fault", hint=hint), ["make", "tiny"])
    assert f"  what to do: {told}\n" in capsys.readouterr().err


def test_one_word_is_a_package_of_the_only_recipe(project: Path) -> None:
    context = make_context(verbose=0, quiet=True, color="never")
    assert recipe_and_packages("six>=1", (), "add", context) == ("tiny", ("six>=1",))
    assert recipe_and_packages(None, (), "add", context) == ("tiny", ())
    with pytest.raises(UsageError, match='no recipe called "tinny"'):
        recipe_and_packages("tinny", ("six",), "add", context)
    (project / "elsewhere.dev.json").touch()
    assert recipe_and_packages("elsewhere", (), "add", context) == ("elsewhere", ())
    (project / "recipes/second.toml").write_text(RECIPE.replace("tiny", "second"))
    with pytest.raises(UsageError, match=r"which recipe\? ./recipes holds several"):
        recipe_and_packages("six", (), "add", context)
