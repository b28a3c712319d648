"""A few trees of real wheels that are small enough for every run; python -m tests.sick.real tries them all."""

from __future__ import annotations

import re

import pytest

from tests.base.interpreters import interpreter
from tests.check.tree import failures
from tests.sick.real.cases import HEALTHY, SICK, Case
from tests.sick.real.judge import check_tree
from tests.sick.real.mends import MENDS
from tests.sick.real.more_cases import MORE_HEALTHY, MORE_SICK
from tests.sick.real.trees import UV, make_tree, run_python

PYTHON = interpreter("3.11")
QUICK = [
    case
    for case in (*SICK, *HEALTHY)
    if case.stack == "small"
    or case.name in ("jax for the CPU", "onnxruntime-gpu 1.20 without CUDA")
]
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not UV.exists(), reason="not installed here: uv"),
    pytest.mark.skipif(PYTHON is None, reason="not installed here: CPython 3.11"),
]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_real_tree_is_judged_as_its_framework_behaves(case: Case) -> None:
    assert PYTHON is not None
    tree = make_tree(case.tree, PYTHON)
    _, said = run_python(tree, case.proof, driver=case.driver)
    assert re.search(case.says, said)
    report = check_tree(case, tree)
    found = failures(report)
    if case.found is None:
        assert found == {}
        return
    check, words = case.found
    told = [why for name, why in found.items() if re.fullmatch(check, name)]
    assert any(re.search(words, why) for why in told), found


def test_the_tables_have_each_tree_once_and_enough_of_them() -> None:
    sick, healthy = (*SICK, *MORE_SICK), (*HEALTHY, *MORE_HEALTHY)
    names = [case.name for case in (*sick, *healthy)]
    assert len(names) == len(set(names))
    assert (len(sick) >= 100, len(healthy) >= 85) == (True, True)
    assert all(case.found is None for case in healthy)
    assert set(MENDS) <= {case.name for case in sick if case.mended is None}
