"""Why a package is in a lock, from the lock alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from msgspec import structs

from envbuild.lock.dependency_paths import MOST, dependency_paths, describe_package
from envbuild.lock.model import (
    CondaPackage,
    Lock,
    PythonPackage,
)
from envbuild.lock.read import read_lock
from envbuild.resolve.outcome import HeldBack, Moved, Provided
from tests.lock.strategies import locks

SHIPPED = read_lock(Path(__file__).parent.parent.parent / "lockfiles" / "torch-mnist.lock")


def package(name: str, *via: str, group: str = "project", version: str = "1.0") -> PythonPackage:
    return PythonPackage(
        name=name,
        version=version,
        group=group,  # type: ignore[arg-type]
        file=f"{name}-{version}-py3-none-any.whl",
        size=1,
        sha256="0" * 64,
        via=via,
    )


def lock(*packages: PythonPackage, **other: object) -> Lock:
    empty = {"provided": (), "moved": (), "held_back": (), "notes": (), "debian": ()}
    return structs.replace(SHIPPED, python=packages, **{**empty, **other})


def conda_package(
    name: str, version: str, *, via: tuple[str, ...], licence: str | None = None
) -> CondaPackage:
    return CondaPackage(
        name=name,
        version=version,
        build="h0_0",
        subdir="linux-64",
        channel="conda-forge",
        file=f"{name}-{version}-h0_0.conda",
        size=1,
        sha256="0" * 64,
        license=licence,
        via=via,
    )


def test_shortest_ways_from_the_recipe_down() -> None:
    held = lock(
        package("a", "(direct)"),
        package("b", "(direct)", "a"),
        package("c", "b"),
        package("d", "a", "c"),
        package("e", "torch"),
    )
    assert dependency_paths(held, "a") == (("a",),)
    assert dependency_paths(held, "b") == (("b",), ("a", "b"))
    assert dependency_paths(held, "d") == (("a", "d"), ("b", "c", "d"))
    assert dependency_paths(held, "e") == (("torch", "e"),)


def test_packages_that_require_each_other_end() -> None:
    held = lock(package("a", "b"), package("b", "a", "(direct)"))
    assert dependency_paths(held, "a") == (("b", "a"),)


@given(locks())
def test_every_chain_ends_at_the_package_and_repeats_nothing(held: Lock) -> None:
    for entry in held.python:
        found = dependency_paths(held, entry.name)
        assert len(found) <= MOST
        assert all(way[-1] == entry.name and len(set(way)) == len(way) for way in found)


def test_whole_story() -> None:
    held = lock(
        package("torch", "(direct)", group="framework", version="2.5.1"),
        package("transformers", "(direct)", version="4.40.0"),
        package("tokenizers", "transformers", version="0.19.1"),
        package("click", "transformers", version="8.5.1"),
        package("setuptools", "tokenizers", group="build", version="70.0"),
        provided=(Provided(name="cupy", version="10.6.0", alias_of="cupy-cuda114"),),
        moved=(
            Moved(
                name="click", before="8.1.7", after="8.5.1", reason="transformers needs click>=8.4"
            ),
        ),
        held_back=(
            HeldBack(
                name="transformers", version="4.40.0", newest="5.0", reason="it needs torch>=2.6"
            ),
        ),
        notes=("click 8.5.1 may not fit",),
    )
    assert describe_package(held, "transformers") == [
        "transformers 4.40.0 (project): transformers-4.40.0-py3-none-any.whl",
        "wanted by: the recipe -> transformers 4.40.0",
        "held back: 5.0 is newer, but it needs torch>=2.6",
        "brings: click, tokenizers",
    ]
    assert describe_package(held, "click") == [
        "click 8.5.1 (project): click-8.5.1-py3-none-any.whl",
        "wanted by: the recipe -> transformers 4.40.0 -> click 8.5.1",
        "replaces 8.1.7 of the base, because transformers needs click>=8.4",
        "note: click 8.5.1 may not fit",
    ]
    assert describe_package(held, "torch")[1] == "wanted by: the recipe's framework -> torch 2.5.1"
    assert describe_package(held, "cupy") == [
        "cupy 10.6.0: the base holds it; cupy-cuda114 stands for it"
    ]
    assert describe_package(held, "cupy-cuda114") == describe_package(held, "cupy")
    assert describe_package(held, "setuptools") == [
        "setuptools 70.0 (build only): for building tokenizers"
    ]
    assert describe_package(held, "absent") == []


@pytest.mark.parametrize("name", [p.name for p in SHIPPED.python])
def test_every_package_of_a_shipped_lock_has_a_story(name: str) -> None:
    package = next(p for p in SHIPPED.python if p.name == name)
    assert any(f"{name} {package.version}" in line for line in describe_package(SHIPPED, name))


def test_a_conda_package_is_told_with_its_build_channel_and_licence() -> None:
    held = lock(
        conda=(
            conda_package("python", "3.12.4", licence="Python-2.0", via=("numpy",)),
            conda_package("numpy", "2.1.0", via=("(direct)",)),
            conda_package("zlib", "1.3.1", via=("python",)),
        )
    )
    assert describe_package(held, "python") == [
        "python 3.12.4 h0_0 (conda, conda-forge, Python-2.0): python-3.12.4-h0_0.conda",
        "wanted by: the recipe -> numpy 2.1.0 -> python 3.12.4",
        "brings: zlib",
    ]
    assert describe_package(held, "numpy") == [
        "numpy 2.1.0 h0_0 (conda, conda-forge): numpy-2.1.0-h0_0.conda",
        "wanted by: the recipe -> numpy 2.1.0",
        "brings: python",
    ]
