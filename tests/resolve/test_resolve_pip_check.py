from __future__ import annotations

from envbuild.resolve.conflict.pip_check import broken_requirements
from envbuild.resolve.stubs import plan_stubs
from tests.resolve.conftest import base

FACTS = base(
    "numba==0.59.1",
    "numpy==1.24.4",
    "pandas==1.5.3",
    "old==1.0",
    requires={
        "numba": ("numpy<1.27,>=1.22", "llvmlite<0.43,>=0.42"),
        "pandas": (
            "numpy>=1.21",
            "numpy<1.25 ; python_version < '3.8'",
            "numpy<1 ; extra == 'test'",
        ),
        "old": ("numpy<1.20",),
    },
)
STUBS = plan_stubs(FACTS, protected=(), aliases={})


def test_only_what_held_before_and_does_not_now() -> None:
    assert broken_requirements(FACTS, STUBS, {"numpy": "1.27.0"}) == (
        ("numba", "numba 0.59.1 of the base needs numpy<1.27,>=1.22"),
    )


def test_what_moves_itself_is_not_broken() -> None:
    assert broken_requirements(FACTS, STUBS, {"numpy": "1.27.0", "numba": "0.60.0"}) == ()


def test_move_within_the_bounds() -> None:
    assert broken_requirements(FACTS, STUBS, {"numpy": "1.26.4"}) == ()
