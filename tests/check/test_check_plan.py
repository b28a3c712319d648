"""What an image should hold, worked out of recipe and lock."""

from __future__ import annotations

import ast
from importlib import resources

import msgspec
import pytest

from envbuild.check import plan
from envbuild.check.expected import CheckBasis, Expected, derive_expected, requirement_name
from envbuild.check.probe_runner import probe_source
from envbuild.data import lookup
from envbuild.lock.model import Lock
from envbuild.recipe.model import Recipe
from envbuild.resolve.outcome import Provided
from tests.check.tree import make_lock, make_recipe


def expect(recipe: Recipe | None, lock: Lock | None) -> Expected:
    return derive_expected(CheckBasis(recipe=recipe, lock=lock))


def test_recipe_and_lock_name_framework_version_and_direct_requirements() -> None:
    lock = make_lock(
        {"tensorflow": "2.15.1", "nvidia-cudnn-cu12": "8.9.4.25"}, {"keras-bert": "0.89.0"}
    )
    expected = expect(
        make_recipe("Keras_BERT>=0.8", framework="tensorflow[and-cuda]==2.15.*"), lock
    )
    assert expected.framework is not None
    assert expected.framework.name == "tensorflow"
    assert expected.version == "2.15.1"
    assert expected.direct == ("keras-bert",)
    assert expected.locked["keras-bert"] == "0.89.0"
    assert "nvidia-cudnn-cu12" in expected.protected
    assert not expected.wants_cpu


def test_packages_needed_only_to_build_are_not_expected_in_the_image() -> None:
    lock = make_lock({}, {"keras-bert": "0.89.0"})
    build = msgspec.structs.replace(lock.python[0], name="setuptools", group="build")
    assert expect(None, msgspec.structs.replace(lock, python=(*lock.python, build))).locked == {
        "keras-bert": "0.89.0"
    }


def test_a_base_that_provides_under_another_name_is_followed() -> None:
    lock = make_lock({}, {"keras-bert": "0.86.0"})
    provided = (Provided(name="tensorflow", version="2.1.0", alias_of="tensorflow-gpu"),)
    expected = expect(
        make_recipe("keras-bert", "tensorflow"), msgspec.structs.replace(lock, provided=provided)
    )
    assert expected.direct == ("keras-bert", "tensorflow-gpu")
    assert expected.framework is not None
    assert (expected.framework.name, expected.version) == ("tensorflow", "2.1.0")


@pytest.mark.parametrize("line", ["tensorflow-cpu==2.15.*", "torch==2.5.1+cpu", "intel_tensorflow"])
def test_a_build_without_cuda_can_be_asked_for(line: str) -> None:
    assert expect(make_recipe(framework=line), None).wants_cpu


def test_nothing_known_means_that_every_known_framework_is_looked_for() -> None:
    expected = expect(None, None)
    assert expected.framework is None
    assert lookup.matches("torch", expected.protected)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Foo_Bar[x]>=1; python_version>'3'", "foo-bar"),
        ("a.b @ git+https://mirror.invalid/a", "a-b"),
        ("tensorflow 2.15.1", "tensorflow"),
        ("./here", None),
        ("https://mirror.invalid/x.whl", None),
        ("", None),
    ],
)
def test_names_of_requirement_lines(line: str, name: str | None) -> None:
    assert requirement_name(line) == name


def test_only_frameworks_that_open_their_libraries_are_asked_for_them() -> None:
    asked = plan.libraries_request().parameters["wanted"]
    assert sorted(asked) == ["cupy", "tensorflow", "torch"]
    assert {"libcudnn.so.7", "libcudnn.so.8", "libcublas.so.12", "libcudart.so.10.1"} <= set(
        asked["tensorflow"]["names"]
    )
    assert {name.partition(".so")[0] for name in asked["cupy"]["names"]} == {"libcublas"}
    assert {name.partition(".so")[0] for name in asked["torch"]["names"]} == {"libcudnn"}


def probe_names() -> list[str]:
    folder = resources.files("envbuild.check.probes")
    return sorted(
        item.name.removesuffix("_probe.py")
        for item in folder.iterdir()
        if item.name.endswith("_probe.py")
    )


@pytest.mark.parametrize("name", probe_names())
def test_every_probe_is_python_3_6_and_stands_on_the_standard_library(name: str) -> None:
    source = probe_source(
        plan.ProbeRequest(
            name=f"{name}_probe", parts=("preamble", "compute", "distributions", "elf", "loader")
        )
    )
    tree = ast.parse(source, feature_version=(3, 6))
    imports = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imports |= {
        (node.module or "").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert "envbuild" not in imports
    assert not any(isinstance(node, (ast.NamedExpr, ast.Match)) for node in ast.walk(tree))


@pytest.mark.parametrize(
    ("direct", "uses", "tried"),
    [
        (("unsloth",), (), False),
        (("unsloth",), ("diffusers.utils",), True),
        (("diffusers",), (), True),
        ((), (), True),
    ],
)
def test_parts_of_a_package_count_where_something_asks_for_it(
    direct: tuple[str, ...], uses: tuple[str, ...], tried: bool
) -> None:
    expected = expect(make_recipe(*direct) if direct else None, None)
    request = plan.imports_request(expected, dict.fromkeys(uses, ()))
    names = [row["name"] for row in request.parameters["entries"]]
    assert ("diffusers' pipelines" in names) is tried
