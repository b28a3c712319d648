"""``why``, ``diff``, ``outdated``, ``lock --upgrade`` on the command line, with shipped locks and a made-up index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest
from msgspec.structs import replace

from envbuild.base.model import BaseFacts
from envbuild.cli import run_cli
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.changes import explain_unmoved, lock_changes
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import EVERYTHING, Lock
from envbuild.lock.read import read_lock
from envbuild.recipe.model import Source
from envbuild.recipe.read import read_recipe
from envbuild.settings import load_settings
from tests.resolve.conftest import SyntheticIndex
from tests.support import quiet_context

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def index(tmp_path: Path) -> SyntheticIndex:
    return SyntheticIndex(tmp_path / "index")


@pytest.fixture
def run(
    tmp_path: Path,
    index: SyntheticIndex,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a verb in an empty folder where the made-up index is the only one; return code, output, errors."""
    for name in [name for name in os.environ if name.startswith(("ENVBUILD_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("ENVBUILD_INDEX", index.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")

    def verb(*arguments: str) -> tuple[int, str, str]:
        code = run_cli(["-q", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return verb


def test_why_from_the_lock_alone(run: Run) -> None:
    code, out, _ = run("why", "Keras_BERT", "keras-bert", "--offline")
    assert code == 0
    assert out.splitlines()[1] == "wanted by: the recipe -> keras-bert 0.89.0"


def test_why_of_the_framework_needs_no_index(run: Run) -> None:
    code, out, _ = run("why", "numpy", "keras-bert")
    assert code == 0
    assert out.splitlines()[-1] == "would change: only with another release under [base] framework"


@pytest.mark.usefixtures("run")
def test_why_says_first_that_an_empty_store_lacks_the_base(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("asked")

    monkeypatch.setattr("envbuild.app.query.why.resolve_lock", refuse)
    assert run_cli(["why", "keras-bert", "keras-bert"]) == 0
    told = capsys.readouterr()
    assert "debian:bookworm is not in the store, so it is made or downloaded first" in told.err
    assert told.out.splitlines()[0].startswith("keras-bert 0.89.0")
    assert told.out.splitlines()[-1] == "would change: not known: asked"


def test_why_with_the_recipe_first_as_with_other_verbs(run: Run) -> None:
    assert run("why", "keras-bert", "numpy", "--offline") == run(
        "why", "numpy", "keras-bert", "--offline"
    )


def test_why_of_what_is_not_there(run: Run) -> None:
    code, out, err = run("why", "tokenizer", "keras-bert")
    assert (code, out) == (2, "")
    assert '"tokenizer" is not in the lock; did you mean "tokenizers"?' in err


def test_outdated(run: Run, index: SyntheticIndex) -> None:
    index.wheel("transformers", "99.0")
    index.wheel("matplotlib", "3.9.0")
    index.wheel("tokenizers", "99.0")
    code, out, _ = run("outdated", "keras-bert")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["package", "locked", "newest", "why"],
        ["transformers", "4.41.2", "99.0", "the", "lock", "is", "as", "of", "2024-06-06"],
    ]
    _, out, _ = run("outdated", "keras-bert", "--all", "--json")
    assert [row["package"] for row in json.loads(out)] == ["tokenizers", "transformers"]


def test_nothing_is_outdated_on_an_index_without_these_packages(run: Run) -> None:
    assert run("outdated", "torch-mnist")[:2] == (0, "nothing is outdated\n")


def test_diff_of_two_recipes(run: Run) -> None:
    code, out, _ = run("diff", "keras-bert", "torch-mnist")
    assert code == 0
    assert "framework: tensorflow 2.15.1 -> torch 2.5.1\n" in out
    assert "- keras-bert 0.89.0\n" in out
    assert "+ torch 2.5.1\n" in out
    assert run("diff", "keras-bert", "keras-bert")[1] == "no difference\n"
    _, out, _ = run("diff", "keras-bert", "torch-mnist", "--json")
    assert {"kind": "about", "name": "CUDA", "before": "12.2", "after": "12.4"} in json.loads(out)[
        "changes"
    ]


@pytest.mark.parametrize("missing", ["absent.lock", "absent.json", "absent"])
def test_diff_of_what_is_not_there(missing: str, run: Run) -> None:
    code, out, err = run("diff", missing, "keras-bert")
    assert (code, out) == (2, "")
    assert "absent" in err


@pytest.fixture
def context(tmp_path: Path, index: SyntheticIndex) -> Context:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ENVBUILD_INDEX": index.url}
    environment |= {"ENVBUILD_STORE": str(tmp_path / "store"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    settings = load_settings(environment, tmp_path)
    return quiet_context(settings)


def test_upgrade_of_one_package_changes_as_little_as_possible(
    index: SyntheticIndex, context: Context, tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        '[recipe]\nname = "x"\n[base]\nimage = "example/x:1"\n[python]\ndependencies = ["rich", "click", "six==1.0"]\n'
    )
    recipe, text = read_recipe(path)
    source = Source(recipe=recipe, path=path, text=text, lock=tmp_path / "x.lock")
    facts = BaseFacts(image="example/x:1", python="3.11.2", machine="x86_64", glibc="2.36")

    def lock(wish: LockOptions) -> Lock:
        return decide_lock(source, wish, context, date(2026, 11, 21), facts=facts)

    index.wheel("uv", version("uv"))
    index.wheel("six", "1.0")
    index.wheel("rich", "13.0", requires=("pygments>=2.0", "mdurl"))
    for name, first, _ in RELEASES:
        index.wheel(name, first)
    old = lock(LockOptions())
    index.wheel("six", "2.0")
    index.wheel("rich", "14.0", requires=("pygments>=2.18", "mdurl"))
    for name, _, second in RELEASES:
        index.wheel(name, second)
    assert lock_changes(old, lock(LockOptions(old=old))) == ()
    upgraded = lock_changes(old, lock(LockOptions(old=old, upgrade=("rich",))))
    assert [str(change) for change in upgraded] == [
        "~ pygments 2.17 -> 2.18",
        "~ rich 13.0 -> 14.0",
    ]
    assert len(lock_changes(old, lock(LockOptions(old=old, upgrade_all=True)))) == 4


def test_what_was_to_be_upgraded_and_was_not_is_told_with_its_reason() -> None:
    lock = read_lock(Path(__file__).parents[2] / "lockfiles/keras-bert.lock")
    pinned = replace(lock, direct=(*lock.direct, "keras-bert==0.89.0"))
    asked = ("Keras_BERT", "numpy", "tokenizers", "pandas")
    assert explain_unmoved(pinned, pinned, asked) == [
        'keras-bert stays at 0.89.0: the recipe asks for "keras-bert==0.89.0"',
        "numpy stays at 1.26.4: the recipe's framework decides",
        "tokenizers stays at 0.19.1: no newer one fits as of 2024-06-06 (envbuild why tokenizers keras-bert)",
        "pandas is not in this lock (envbuild add keras-bert pandas)",
    ]
    assert [line.split()[0] for line in explain_unmoved(pinned, pinned, (EVERYTHING,))] == [
        "keras-bert"
    ]


RELEASES = (("pygments", "2.17", "2.18"), ("mdurl", "0.1", "0.2"), ("click", "8.0", "8.1"))
