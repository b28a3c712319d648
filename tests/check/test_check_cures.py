"""Hints of imports that fail name the package and the release that mends them."""

from __future__ import annotations

from pathlib import Path

from envbuild.check.checks.libraries import advise_provider
from tests.check.tree import Tree, failures, make_recipe


def hint_of(tree: Tree, check: str, *direct: str) -> str | None:
    report = tree.check(make_recipe(*direct))
    return next(one.hint for one in report.findings if one.check == check)


def test_a_requirement_that_is_not_met_is_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    asks = ["answer<2,>=1", "other; extra == 'all'"]
    tree.install("asker", "1", {"asker.py": "from answer import gone\n"}, requires=asks)
    assert hint_of(tree, "direct-imports", "asker") == (
        'put "answer<2,>=1" into [python] dependencies: asker asks for it, and answer 2.1 is there'
    )


def test_two_releases_that_do_not_go_together_are_both_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    tree.install("asker", "1", {"asker.py": "from answer import gone\n"}, requires=["answer"])
    assert hint_of(tree, "direct-imports", "asker") == (
        "asker takes from answer 2.1 what it does not have: take the newest of both "
        '(put "asker" and "answer" without bounds into [python] dependencies)'
    )


def test_no_line_of_the_project_mends_two_packages_that_do_not_go_together(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    tree.install(
        "asker", "1", {"asker/__init__.py": "", "asker/parts.py": "import answer\nanswer.gone\n"}
    )
    (tmp_path / "p").mkdir()
    (tmp_path / "p/train.py").write_text("import asker.parts\n")
    report = tree.check(make_recipe("asker"), project=tmp_path / "p")
    hint = next(one.hint for one in report.findings if one.check == "project-imports")
    assert hint == (
        "asker takes from answer 2.1 what it does not have: take the newest of both "
        '(put "asker" and "answer" without bounds into [python] dependencies)'
    )


def test_a_missing_module_is_named_by_metadata_or_by_the_table_and_never_guessed(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path / "i")
    tree.install("asker", "1", {"asker.py": "import the_core\n"}, requires=["the-core==1.4"])
    tree.install("reader", "1", {"reader.py": "import yaml\n"})
    tree.install("loner", "1", {"loner.py": "import unheard_of\n"})
    assert hint_of(tree, "direct-imports", "asker") == (
        'add "the-core==1.4" to [python] dependencies: it has the module the_core'
    )
    assert hint_of(tree, "direct-imports", "reader") == (
        'add "pyyaml" to [python] dependencies: it has the module yaml'
    )
    assert hint_of(tree, "direct-imports", "loner") == (
        "add the package that has the module unheard_of to [python] dependencies"
    )


def test_keras_is_set_to_the_backend_that_is_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", {"torch/__init__.py": ""})
    tree.install("keras", "3.7.0", {"keras/__init__.py": "import jax\n"})
    tree.env["KERAS_BACKEND"] = "numpy"
    for check in ("direct-imports", "gpus-left"):
        assert hint_of(tree, check, "keras", "torch") == (
            'set KERAS_BACKEND = "torch" in [run] environment: Keras is set to "numpy", and the image has torch'
        )


def test_what_a_namespace_lacks_is_told_and_one_that_is_not_there_is_left_alone(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path / "i").install("cuda-bindings", "13.0", {"cuda/bindings/runtime.py": ""})
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("from cuda import cudart\nfrom google.colab import drive\n")
    found = failures(tree.check(make_recipe("cuda-bindings"), project=project))
    assert found["project-imports"] == (
        "the project's source imports cuda: AttributeError: module 'cuda' has no attribute 'cudart'"
    )
    (project / "train.py").write_text("from cuda.bindings import runtime\n")
    assert failures(tree.check(make_recipe("cuda-bindings"), project=project)) == {}


def test_parts_of_rocm_are_no_debian_packages() -> None:
    assert advise_provider("librccl.so.1") == (
        "librccl.so.1 is a part of AMD's ROCm: take a base with ROCm, or the framework's build for CUDA"
    )
