from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.lock.changes import lock_changes
from envbuild.lock.digest import image_key, lock_digest, recipe_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.lock.write import write_lock
from envbuild.recipe.read import read_recipe
from tests.lock.strategies import locks

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "lockfiles").glob("*.lock"))
BROKEN = Path(__file__).parents[1] / "broken" / "lock"


def read_text(text: str) -> Lock:
    with tempfile.NamedTemporaryFile("w", suffix=".lock", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        return read_lock(Path(file.name))


def in_order(lock: Lock) -> Lock:
    """Return the lock with its rows in the order of its text."""
    return read_text(write_lock(lock))


@given(locks())
@settings(max_examples=40, deadline=None)
def test_lock_to_text_to_lock_is_the_identity(lock: Lock) -> None:
    again = in_order(lock)
    assert write_lock(again) == write_lock(lock)
    assert sorted(again.python, key=repr) == sorted(lock.python, key=repr)
    assert sorted(again.debian, key=repr) == sorted(lock.debian, key=repr)
    for field in (
        "direct",
        "system",
        "notes",
        "base",
        "packer",
        "tools",
        "as_of",
        "proof",
        "recipe_digest",
    ):
        assert getattr(again, field) == getattr(lock, field)


@given(locks())
@settings(max_examples=15, deadline=None)
def test_the_order_of_packages_changes_nothing(lock: Lock) -> None:
    turned = msgspec.structs.replace(lock, python=lock.python[::-1], debian=lock.debian[::-1])
    assert write_lock(turned) == write_lock(lock)


@given(locks())
@settings(max_examples=15, deadline=None)
def test_equal_locks_have_no_changes(lock: Lock) -> None:
    assert lock_changes(lock, lock) == ()


@given(locks())
@settings(max_examples=15, deadline=None)
def test_the_proof_is_no_part_of_the_digest(lock: Lock) -> None:
    proved = msgspec.structs.replace(lock, proof="imported")
    assert lock_digest(proved) == lock_digest(msgspec.structs.replace(lock, proof="not run"))


@given(locks())
@settings(max_examples=5, deadline=None)
def test_an_image_is_named_by_lock_mode_and_definition(lock: Lock) -> None:
    keys = {
        image_key(lock, mode, text) for mode in ("fakeroot", "flat") for text in ("one", "other")
    }
    assert len(keys) == 4


def test_each_package_stands_on_one_line() -> None:
    lock = read_lock(ROOT / "lockfiles" / "keras-bert.lock")
    text = write_lock(lock)
    for package in lock.python:
        lines = [line for line in text.splitlines() if package.sha256 in line]
        assert len(lines) == 1
        assert f'name = "{package.name}"' in lines[0]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_locks_fit_their_recipes_and_are_in_canonical_form(path: Path) -> None:
    lock = read_lock(path)
    recipe, _ = read_recipe(ROOT / "recipes" / f"{lock.name}.toml")
    assert stale_reasons(recipe, lock) == ()
    assert write_lock(lock) == path.read_text(encoding="utf-8")


def test_the_university_set_keeps_tensorflow_and_its_keras() -> None:
    """The list that brought a second TensorFlow to a hands-on brings none here."""
    lock = read_lock(ROOT / "lockfiles" / "keras-bert.lock")
    versions = {p.name: p.version for p in lock.installed}
    assert versions["tensorflow"].startswith("2.15.")
    assert versions["keras"].startswith("2.15.")
    assert versions["numpy"].startswith("1.26.")
    assert not [
        name
        for name in versions
        if name in ("tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel")
    ]
    direct = {p.name for p in lock.python if "(direct)" in p.via}
    assert direct >= {
        "keras-bert",
        "sentencepiece",
        "scikit-learn",
        "transformers",
        "matplotlib",
        "pydot",
    }
    sdists = {p.name for p in lock.python if p.is_sdist}
    assert "keras-bert" in sdists
    assert {p.name for p in lock.build_only} >= {"setuptools", "uv", "wheel"}


def test_a_lock_names_no_host() -> None:
    for path in SHIPPED:
        assert "://" not in path.read_text(encoding="utf-8")


STALE = {
    "[python]\n": (
        '[python]\nas-of = "2024-01-01"\n',
        "another line of [base], [python], [system], [conda] or [target] was changed",
    ),
    '  "pydot",\n': ("", 'requirement "pydot" was removed'),
    '  "matplotlib",\n': ('  "matplotlib>=3.8",\n', 'requirement "matplotlib>=3.8" was added'),
    'packages = ["graphviz"]': ('packages = ["graphviz", "git"]', 'system package "git" was added'),
    "[base]\n": (
        "[base]\ncpu = true\n",
        "another line of [base], [python], [system], [conda] or [target] was changed",
    ),
    "debian:bookworm": (
        "debian:trixie",
        'the base was changed from "debian:bookworm" to "debian:trixie"',
    ),
}


@pytest.mark.parametrize("line", sorted(STALE))
def test_a_changed_line_makes_the_lock_stale_and_is_named(line: str, tmp_path: Path) -> None:
    text = (ROOT / "recipes" / "keras-bert.toml").read_text(encoding="utf-8")
    new, reason = STALE[line]
    assert line in text
    path = tmp_path / "keras-bert.toml"
    path.write_text(
        text.replace(line, new).replace('script = "keras-bert/check.py"\n', ""), encoding="utf-8"
    )
    recipe, _ = read_recipe(path)
    assert reason in stale_reasons(recipe, read_lock(ROOT / "lockfiles" / "keras-bert.lock"))


def test_check_and_run_do_not_make_a_lock_stale(tmp_path: Path) -> None:
    text = (ROOT / "recipes" / "keras-bert.toml").read_text(encoding="utf-8")
    path = tmp_path / "keras-bert.toml"
    path.write_text(
        text.split("[check]")[0] + '[run]\ncommand = ["python", "x.py"]\n', encoding="utf-8"
    )
    recipe, _ = read_recipe(path)
    original, _ = read_recipe(ROOT / "recipes" / "keras-bert.toml")
    assert recipe_digest(recipe) == recipe_digest(original)


MESSAGES: dict[str, tuple[type[EnvbuildError], str]] = {
    "newer-schema": (UsageError, "is a lock of schema 2; this envbuild reads up to 1"),
    "unknown-key": (UsageError, "line 1: unknown section 'pyton'; did you mean \"python\"?"),
    "no-base": (UsageError, "line 1: 'base' is missing"),
    "bad-hash": (
        UsageError,
        "line 11: python.sha256: takes text that matches '^[0-9a-f]{64}\\\\Z'",
    ),
    "path-outside": (UsageError, "line 8: debian.path: takes text that matches "),
    "file-with-slash": (UsageError, "line 11: python.file: takes text that matches "),
    "name-with-shell": (UsageError, "line 11: python.name: takes text that matches "),
    "two-hashes": (IntegrityError, "a-1-py3-none-any.whl is listed with two different hashes"),
    "twice": (IntegrityError, "a is locked twice"),
    "twice-in-other-letters": (IntegrityError, "A is locked twice"),
    "wheel-of-another": (IntegrityError, "a-1-py3-none-any.whl is no file of numpy 1"),
}


@pytest.mark.parametrize("fault", sorted(MESSAGES))
def test_broken_locks_are_refused(fault: str) -> None:
    path = BROKEN / f"{fault}.lock"
    kind, message = MESSAGES[fault]
    with pytest.raises(kind) as caught:
        read_lock(path)
    told = str(caught.value)
    assert told.startswith(str(path))
    assert message in told


def test_every_broken_lock_is_tested() -> None:
    assert {path.stem for path in BROKEN.glob("*.lock")} == set(MESSAGES)
