"""Hints of imports that fail name the package and the release that mends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.check.checks.libraries import advise_provider
from envbuild.check.target import read_target
from tests.check.elf import shared_object
from tests.check.tree import Tree, failures, make_recipe, tensorflow_tree

CPU_ONLY = "it computes on the CPU only"


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


def test_libraries_that_are_missing_together_come_from_one_cuda(tmp_path: Path) -> None:
    needs = ["libcudart.so.11.0", "libcublas.so.11", "libcudnn.so.8", "libcurand.so.10"]
    tree = Tree(tmp_path / "i").install(
        "engine", "1", {"engine/__init__.py": "", "engine/engine.so": shared_object(needs)}
    )
    hint = hint_of(tree, "shared-libraries", "engine")
    assert hint is not None
    assert 'add "nvidia-cudnn-cu11==8.9.*"' in hint
    assert 'add "nvidia-curand-cu11"' in hint
    assert "-cu12" not in hint


def test_two_releases_that_do_not_go_together_are_both_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    tree.install("asker", "1", {"asker.py": "from answer import gone\n"}, requires=["answer"])
    assert hint_of(tree, "direct-imports", "asker") == (
        "asker takes from answer 2.1 what it does not have: take the newest of both "
        '(put "asker" and "answer" without bounds into [python] dependencies)'
    )


def test_the_package_that_asks_is_named_and_not_the_one_that_imports_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    tree.install("asker", "1", {"asker.py": "from answer import gone\n"})
    tree.install("maker", "3", {"maker.py": "import asker\n"}, requires=["asker", "answer"])
    assert hint_of(tree, "direct-imports", "maker") == (
        "asker takes from answer 2.1 what it does not have: take the newest of both "
        '(put "asker" and "answer" without bounds into [python] dependencies)'
    )


def test_the_other_package_is_taken_older_where_the_newer_one_is_refused(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("numpy", "2.0.2", {"numpy.py": ""})
    tree.install("pandas", "1.5.3", {"pandas.py": "import numpy\n"})
    for bounds, told in (("<2.0.0", 'put "numpy<2"'), (">=1", 'put "pandas>=2.2.2"')):
        tree.install("maker", "3", {"maker.py": "import pandas\n"}, requires=[f"pandas{bounds}"])
        hint = hint_of(tree, "companions", "maker")
        assert hint is not None
        assert hint.startswith(told)


def test_the_package_that_the_message_names_comes_before_a_requirement_of_another(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path / "i").install("answer", "2.1", {"answer/__init__.py": ""})
    tree.install("painter", "15", {"painter.py": ""})
    asks = ["painter~=11.1", "answer"]
    tree.install("asker", "1", {"asker.py": "from answer import gone\n"}, requires=asks)
    hint = hint_of(tree, "direct-imports", "asker")
    assert hint is not None
    assert hint.startswith("asker takes from answer 2.1 what it does not have")


def test_a_missing_module_comes_before_a_requirement_of_another_package(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("painter", "15", {"painter.py": ""})
    tree.install("parts", "2", {"parts/__init__.py": ""})
    asks = ["painter~=11.1", "the-core>=1.4", "parts"]
    tree.install("asker", "1", {"asker.py": "import the_core\n"}, requires=asks)
    tree.install("reader", "1", {"reader.py": "import parts.gone\n"}, requires=asks)
    hint = hint_of(tree, "direct-imports", "asker")
    assert hint == 'add "the-core>=1.4" to [python] dependencies: it has the module the_core'
    hint = hint_of(tree, "direct-imports", "reader")
    assert hint is not None
    assert hint.startswith("parts is here in a release without parts.gone")


def test_a_package_for_another_python_is_told_as_such(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i")
    code = "from collections import Mapping\n"
    tree.install("elder", "1.2", {"elder.py": code}, requires=["typing-extensions"])
    told = "raise ValueError(\"mutable default <class 'x.Y'> for field z is not allowed: use\")\n"
    tree.install("sister", "1.3", {"sister.py": told})
    for name, version in (("elder", "1.2"), ("sister", "1.3")):
        hint = hint_of(tree, "direct-imports", name)
        assert hint is not None
        assert hint.startswith(f"{name} {version} was written for an older Python than the image's")
        assert f'put "{name}" without bounds' in hint


def test_a_package_that_says_itself_what_it_removed_is_the_one_that_lacks_it(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path / "i").install("numpy", "2.1.3", {"numpy.py": ""})
    told = "raise AttributeError('`np.Inf` was removed in the NumPy 2.0 release. Use it no more')\n"
    tree.install("asker", "1", {"asker.py": told}, requires=["numpy"])
    hint = hint_of(tree, "direct-imports", "asker")
    assert hint is not None
    assert hint.startswith("asker takes from numpy 2.1.3 what it does not have")


def test_what_another_package_removed_is_mended_by_no_line_of_the_project(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i")
    gone = "def __getattr__(name):\n    raise AttributeError('`np.%s` was removed in 2.0' % name)\n"
    tree.install("numpy", "2.1.3", {"numpy.py": gone})
    tree.install("asker", "1", {"asker.py": "import numpy as np\nnp.sctypes\n"})
    (tmp_path / "p").mkdir()
    (tmp_path / "p/train.py").write_text("import asker\nprint(asker.name)\n")
    report = tree.check(make_recipe("numpy"), project=tmp_path / "p")
    hint = next(one.hint for one in report.findings if one.check == "project-imports")
    assert hint is not None
    assert hint.startswith("asker takes from numpy 2.1.3 what it does not have")


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


def test_a_torch_for_amd_fails_where_the_gpus_are_nvidias(tmp_path: Path) -> None:
    version = "cuda: Optional[str] = None\nhip: Optional[str] = '6.2.41133'\n"
    files = {"torch/__init__.py": "", "torch/version.py": version}
    tree = Tree(tmp_path / "i").install("torch", "2.5.1+rocm6.2", files)
    report = tree.check(make_recipe("torch"))
    alone = next(one for one in report.findings if one.check == "cuda-match")
    other = 'ask for "torch==2.5.1"; +rocm6.2 is a build of another index than the one with CUDA'
    what = "torch 2.5.1+rocm6.2 is built for AMD GPUs (ROCm)"
    assert (alone.outcome, alone.hint) == ("skipped", f"for NVIDIA's GPUs {other}")
    told = failures(tree.check(make_recipe("torch"), target=read_target(gpu="A100")))
    assert told["cuda-match"] == f"{what}, and the node (A100) has NVIDIA's GPUs: {CPU_ONLY}"
    tree.install("nvidia-nccl-cu12", "2.21.5", {"nvidia/nccl/__init__.py": ""})  # xgboost's
    assert "cuda-match" not in failures(tree.check(make_recipe("torch")))
    tree.install("nvidia-cudnn-cu12", "9.1.0.70", {"nvidia/cudnn/__init__.py": ""})
    told = failures(tree.check(make_recipe("torch")))
    assert told["cuda-match"] == f"{what}, and the image has CUDA (nvidia-cudnn-cu12): {CPU_ONLY}"
    assert hint_of(tree, "cuda-match", "torch") == other


def test_certificates_of_several_folders_need_one_that_is_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("six", "1.17.0", {"six.py": ""})
    tree.env["SSL_CERT_DIR"] = f"{tmp_path}:/nowhere/certs"
    assert "leaks" not in failures(tree.check(make_recipe("six")))
    tree.env["SSL_CERT_DIR"] = "/nowhere:/nowhere/certs"
    assert "SSL_CERT_DIR names /nowhere" in failures(tree.check(make_recipe("six")))["leaks"]


def test_where_no_release_goes_with_the_framework_nothing_mends(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", {"torch/__init__.py": ""})
    tree.install("torchtext", "0.18.0", {"torchtext/__init__.py": ""})
    assert hint_of(tree, "companions", "torch", "torchtext") == (
        "take torchtext out: nothing mends it beside torch 2.5.1"
    )


def test_allocator_options_are_read_by_torch_itself(tmp_path: Path) -> None:
    reader = "def _set_allocator_settings(text):\n    if '=' in text:\n        raise RuntimeError('Unrecognized')\n"
    files = {
        "torch/__init__.py": "import torch.cuda.memory\n",
        "torch/cuda/__init__.py": "",
        "torch/cuda/memory.py": reader,
    }
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", files)
    tree.env["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:512"
    assert "entry-points" not in failures(tree.check(make_recipe("torch")))
    tree.env["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb=512"
    told = failures(tree.check(make_recipe("torch")))["entry-points"]
    assert told == "PYTORCH_CUDA_ALLOC_CONF: RuntimeError: Unrecognized"


def test_compiled_code_for_another_torch_names_its_package(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", {"torch/__init__.py": ""})
    text = "raise ImportError('/x/_ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEi')\n"
    tree.install("kernels", "1", {"kernels.py": text})
    assert hint_of(tree, "direct-imports", "kernels") == (
        "the compiled code of kernels is for another release of torch: take a release of kernels that was "
        "built for torch 2.5.1; where the newest fails too, there is none, and nothing mends it"
    )


@pytest.mark.parametrize(
    ("asks", "other", "bound"),
    [
        ("lightgbm==4.5.0", "scikit-learn==1.8.0", "scikit-learn<1.8"),
        ("umap-learn==0.5.6", "scikit-learn==1.8.1", "scikit-learn<1.8"),
        ("hdbscan==0.8.40", "scikit-learn==1.8.0", "scikit-learn<1.8"),
        ("gym==0.26.2", "numpy==2.1.3", "numpy<2"),
    ],
)
def test_what_only_fails_when_it_is_used_is_told_by_a_rule(
    tmp_path: Path, asks: str, other: str, bound: str
) -> None:
    tree = Tree(tmp_path / "i")
    for name, version in (asks.split("=="), other.split("==")):
        module = name.replace("-", "_")
        tree.install(name, version, {f"{module}.py": f"__version__ = '{version}'\n"})
    names = (asks.partition("==")[0], other.partition("==")[0])
    found = failures(tree.check(make_recipe(*names)))
    assert list(found) == ["companions"]
    assert bound in found["companions"]


@pytest.mark.parametrize("told", [True, False])
def test_a_variable_without_which_it_works_is_named(told: bool, tmp_path: Path) -> None:
    said = "ValueError('there is no way ' + os.environ.get('ASKER_WAY', ''))"
    code = (
        "import os\nif os.environ.get('ASKER_WAY') == 'north':\n    raise "
        if told
        else "import os\nraise "
    )
    tree = Tree(tmp_path / "i").install("asker", "1", {"asker.py": f"{code}{said}\n"})
    tree.env |= {"ASKER_WAY": "north", "ASKER_CACHE": "/cache"}
    report = tree.check(make_recipe("asker"))
    assert ("(it works without ASKER_WAY of" in failures(report)["direct-imports"]) is told
    hints = [one.hint or "" for one in report.findings if one.check == "direct-imports"]
    assert hints[0].startswith("take ASKER_WAY out of the environment") is told


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            "RuntimeError('a-core version (0.6.13) does not match a version (0.6.14). Please install')",
            'put "a-core==0.6.14" into [python] dependencies: both have to be of one release',
        ),
        (
            "RuntimeError('cannot load MPI library')",
            'add "openmpi-bin" to [system] packages, or bind the cluster\'s MPI into the image',
        ),
        (
            "AttributeError(\"'NoneType' object has no attribute 'replace'\")",
            "take PYTHONOPTIMIZE out of the environment: 2 strips the texts of documentation, which some packages work with; 1 does not",
        ),
        (
            "ImportError('Extension a.torch has not been built: reinstall A with WITH_TORCH=1')",
            "do what the package says itself; the whole message is in the evidence: envbuild check --json",
        ),
    ],
)
def test_a_message_that_says_what_is_wrong_is_followed(
    error: str, hint: str, tmp_path: Path
) -> None:
    tree = Tree(tmp_path / "i").install("asker", "1", {"asker.py": f"raise {error}\n"})
    tree.env["MPLBACKEND"] = "module://of.a.notebook"
    tree.env["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "cpp"
    tree.env["PYTHONOPTIMIZE"] = "2"
    assert hint_of(tree, "direct-imports", "asker") == hint


def test_a_package_of_pythonpath_that_does_not_import_is_taken_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("asker", "2", {"asker.py": ""})
    other = Tree(tmp_path / "other").install("asker", "1", {"asker.py": "raise ImportError('x')\n"})
    tree.env["PYTHONPATH"] = str(other.site)
    assert hint_of(tree, "direct-imports", "asker") == (
        f"take {other.site} out of PYTHONPATH in the base's or the recipe's environment: its asker 1 comes before "
        "the image's own"
    )


def test_a_wheel_for_another_system_is_told_by_its_import_too(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"asker/__init__.py": "import asker._core\n"}
    files["asker/_core.cpython-39-aarch64-linux-gnu.so"] = b""
    tree = Tree(tmp_path / "i").install("asker", "1", files)
    hint = hint_of(tree, "direct-imports", "asker")
    assert hint is not None
    assert hint.startswith("take the wheel for Python 3.")


def test_two_packages_of_one_module_are_named_where_it_lacks_something(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i")
    tree.install("pyticket", "2", {"ticket/__init__.py": "", "ticket/a.py": "", "ticket/b.py": ""})
    tree.install("ticket", "1", {"ticket/__init__.py": "import ticket.gone\n"})
    assert hint_of(tree, "direct-imports", "pyticket") == (
        "pyticket and ticket write the same files (ticket/__init__.py): ask for one of them only"
    )


def test_of_two_wheels_of_cudnn_the_one_for_the_framework_stays(tmp_path: Path) -> None:
    tree, recipe, lock = tensorflow_tree(tmp_path / "i")
    tree.install("nvidia-cudnn-cu11", "8.9.4.25", {"nvidia/cudnn/__init__.py": ""})
    report = tree.check(recipe, lock)
    hints = [one.hint for one in report.findings if one.check == "exclusive"]
    assert hints == ["keep one of them: nvidia-cudnn-cu12, which is for the framework's CUDA"]
