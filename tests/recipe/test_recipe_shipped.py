"""The recipes that come with envbuild: each is locked, proved, and has a check of its own that trains something."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.recipe.read import read_recipe

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "recipes").glob("*.toml"))
FOR_REGISTRIES = {"keras-bert-hub"}
"""Recipes that start from an image of a registry, which not everybody reaches: locked by who uses them."""
LOCKED = [path for path in PATHS if path.stem not in FOR_REGISTRIES]
SYSTEMS = {"keras-bert", "chainer-mnist", "optuna-mpi", "torch-multigpu", "lightning-sweep"}


def _name(path: Path) -> str:
    return path.stem


def test_each_of_the_five_systems_has_one() -> None:
    assert {path.stem for path in LOCKED} >= SYSTEMS


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_a_shipped_recipe_says_for_whom_it_is(path: Path) -> None:
    recipe, text = read_recipe(path)
    assert text.startswith("# ")
    assert recipe.recipe.summary
    assert "://" not in re.sub(r"(docker|postgresql\+psycopg)://", "", text), (
        "addresses are configuration"
    )


@pytest.mark.parametrize("path", LOCKED, ids=_name)
def test_a_shipped_recipe_is_locked_proved_and_checked_by_training(path: Path) -> None:
    recipe, _ = read_recipe(path)
    lock = read_lock(ROOT / f"lockfiles/{path.stem}.lock")
    assert stale_reasons(recipe, lock) == ()
    assert lock.proof == "imported" or path.stem in {"keras-bert", "torch-mnist"}, (
        "locked before proofs were kept"
    )
    assert recipe.check.script == f"{path.stem}/check.py"
    script = (path.parent / recipe.check.script).read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(script))
    assert docstring
    assert "sys.exit(" in script, "it can fail"


def test_recipes_on_one_framework_share_its_files() -> None:
    """What one of them has downloaded serves the others."""
    first, *others = (
        read_lock(ROOT / f"lockfiles/{name}.lock") for name in ("torch-mnist", *sorted(TORCH))
    )
    wheels = {package.file for package in first.python if package.group == "framework"}
    for lock in others:
        assert {package.file for package in lock.python if package.group == "framework"} == wheels


TORCH = {"torch-multigpu", "lightning-sweep"}


def test_mpi4py_is_built_against_the_mpi_of_the_image() -> None:
    lock = read_lock(ROOT / "lockfiles/optuna-mpi.lock")
    [mpi4py] = [package for package in lock.python if package.name == "mpi4py"]
    assert mpi4py.is_sdist
    groups = {package.name: package.group for package in lock.debian}
    assert (groups["libopenmpi3"], groups["libopenmpi-dev"]) == ("system", "build")
