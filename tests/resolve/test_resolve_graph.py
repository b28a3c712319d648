from __future__ import annotations

import pytest

from envbuild.names import DIRECT
from envbuild.resolve.graph import requiring_names, walk_requirements
from envbuild.resolve.platform import marker_environment
from tests.resolve.conftest import base

REQUIRES = {
    "keras-bert": ("numpy", "keras-transformer==0.40.0"),
    "keras-transformer": ("NumPy", "keras_pos.embd"),
    "keras-pos-embd": ("numpy", "tqdm ; python_version < '3.8'"),
    "transformers": (
        "tqdm",
        "torch>=2 ; extra == 'torch'",
        "accelerate ; extra == 'torch'",
        "jax ; extra == 'flax'",
    ),
    "accelerate": ("torch", "transformers"),
    "jaxlib": (),
}


def test_who_requires_whom() -> None:
    starts = [(DIRECT, "keras-bert"), (DIRECT, "transformers[torch]>=4")]
    found = requiring_names(walk_requirements(starts, REQUIRES, marker_environment(base())))
    assert found == {
        "keras-bert": (DIRECT,),
        "transformers": (DIRECT, "accelerate"),
        "numpy": ("keras-bert", "keras-pos-embd", "keras-transformer"),
        "keras-transformer": ("keras-bert",),
        "keras-pos-embd": ("keras-transformer",),
        "tqdm": ("transformers",),
        "torch": ("accelerate", "transformers"),
        "accelerate": ("transformers",),
    }


def test_markers_are_the_bases() -> None:
    edges = walk_requirements(
        [(DIRECT, "keras-pos-embd")], REQUIRES, marker_environment(base(python="3.6.9"))
    )
    assert "tqdm" in {edge.target for edge in edges}


@pytest.mark.parametrize("order", [("a", "d"), ("d", "a")])
def test_extra_asked_for_later_still_counts(order: tuple[str, ...]) -> None:
    requires = {"a": ("b",), "b": ("c ; extra == 'x'",), "d": ("b[x]",)}
    asked = [(DIRECT, name) for name in order]
    names = requiring_names(walk_requirements(asked, requires, marker_environment(base())))
    assert (names["b"], names["c"]) == (("a", "d"), ("b",))


def test_circle_ends() -> None:
    assert requiring_names(
        walk_requirements([("x", "a")], {"a": ("b",), "b": ("a",)}, marker_environment(base()))
    ) == {
        "a": ("b", "x"),
        "b": ("a",),
    }


def test_what_always_holds_counts_once_beside_extras() -> None:
    edges = walk_requirements(
        [(DIRECT, "transformers[torch,flax]")], REQUIRES, marker_environment(base())
    )
    own = sorted(edge.target for edge in edges if edge.source == "transformers")
    assert own == ["accelerate", "jax", "torch", "tqdm"]


def test_an_extra_counts_however_it_is_spelled() -> None:
    requires = {"a": ("b ; extra == 'Dev_Tools'", "c ; extra == 'dev-tools'", "d ; extra == 'x'")}
    for wish in ("a[dev-tools]", "a[Dev.Tools]", "a[dev_tools]"):
        edges = walk_requirements([(DIRECT, wish)], requires, marker_environment(base()))
        assert {edge.target for edge in edges} == {"a", "b", "c"}
