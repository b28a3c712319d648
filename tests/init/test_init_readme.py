"""init: commits of git servers, and what a README says of the framework and of groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.project.draft.draft import draft_recipe
from envbuild.project.draft.package_index import Offline
from envbuild.project.gather import gather_findings
from envbuild.project.lists.declared import read_pyproject
from envbuild.project.lists.readme import framework_releases, own_extras, said_releases
from envbuild.project.lists.requirements import read_requirements
from tests.init.projects import dependencies, drafted, write

COMMIT = "6cdc929315aab1b5674b6dcf73b16ec99147735f"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (f"v @ git+https://x.invalid/v.git@{COMMIT}", f"v @ git+https://x.invalid/v.git@{COMMIT}"),
        (f"git+https://x.invalid/v@{COMMIT}#egg=v", f"v @ git+https://x.invalid/v@{COMMIT}"),
    ],
)
def test_a_commit_of_a_git_server_is_taken(tmp_path: Path, line: str, text: str) -> None:
    write(tmp_path, {"requirements.txt": f"{line}\n"})
    found = read_requirements(tmp_path / "requirements.txt", tmp_path)
    assert [one.text for one in found.requirements] == [text]
    assert found.aside == ()


@pytest.mark.parametrize(
    "line",
    [
        "v @ git+https://x.invalid/v.git",
        "v @ git+https://x.invalid/v.git@v1.0",
        "v @ git+https://x.invalid/v.git@main",
        f"v @ git+https://me:pw@x.invalid/v@{COMMIT}",
        f"v @ git+http://x.invalid/v@{COMMIT}",
        f"git+https://x.invalid/v@{COMMIT}",
        f"-e git+https://x.invalid/v@{COMMIT}#egg=v",
        f"torch @ git+https://x.invalid/pytorch@{COMMIT}",
        f"v @ https://x.invalid/v-{COMMIT}.zip",
        "tqdm @ file:///home/me/tqdm",
        "tqdm @ file:///croot/tqdm/work",
        "./tqdm_1686613057838/work",
    ],
)
def test_what_others_can_change_is_not_taken(tmp_path: Path, line: str) -> None:
    write(tmp_path, {"requirements.txt": f"{line}\n"})
    found = read_requirements(tmp_path / "requirements.txt", tmp_path)
    assert found.requirements == ()
    assert len(found.aside) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "* [TensorFlow](https://x.invalid/) 1.15 (although 2.0 is planned)",
            ["tensorflow==1.15.*"],
        ),
        ("- tensorflow-gpu 1.6.0", ["tensorflow==1.6.*"]),
        ("* PyTorch ( == 0.4.1, for <= 0.4.0 see a branch)", ["torch==0.4.*"]),
        ("1. **PyTorch** 1.3.0", ["torch==1.3.*"]),
        ("- PyTorch >= 1.6", []),
        ("- PyTorch 1.6 or later", []),
        ("- PyTorch 1.6+", []),
        ("- torchvision 0.7", []),
        ("We trained with PyTorch 1.6.", []),
        ("* Ubuntu 16.04 with CUDA 10.1 + TensorFlow 1.9", ["tensorflow==1.9.*"]),
        ("- Python 3.7, PyTorch 1.4, CUDA 10.1", ["torch==1.4.*"]),
        ("The code was tested on Ubuntu with Python 3.8 and PyTorch 1.8.0.", ["torch==1.8.*"]),
        ("Tested with PyTorch 1.6 and above.", []),
        ("- Python 3.7 with torchvision 0.7", []),
        ("- Python 3.7", []),
        ("It is implemented in PyTorch 1.7.", ["torch==1.7.*"]),
        ("This works with PyTorch 1.4 - 1.9.", []),
        ("It requires PyTorch 1.4 or 1.5.", []),
    ],
)
def test_a_readme_names_the_release_of_the_framework(
    tmp_path: Path, line: str, expected: list[str]
) -> None:
    write(tmp_path, {"README.md": f"# A\n\n{line}\n"})
    assert [one.text for one in framework_releases(tmp_path)] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("The code runs with Python 3.7, CUDA 10.0.", {"python": "3.7", "cuda": "10.0"}),
        ("- Python 3.7.0", {"python": "3.7"}),
        ("* **Python** version 3.6", {"python": "3.6"}),
        ("conda create -n x python==3.8", {"python": "3.8"}),
        ("    conda create --name x python=3.10 -y", {"python": "3.10"}),
        ("- NVIDIA GPU with CUDA 11.3", {"cuda": "11.3"}),
        ("Tested on `Python 3.9` and `CUDA 11.6`", {"python": "3.9", "cuda": "11.6"}),
        ("- Python >= 3.7", {}),
        ("- Python 3.7+", {}),
        ("- Python 3.6 or newer", {}),
        ("- Python 3.6 - 3.9", {}),
        ("- Python 3.8/3.9", {}),
        ("- Python 2.7", {}),
        ("We like Python 3.7 a lot.", {}),
        ("See the wheel for CUDA 11.3.", {}),
    ],
)
def test_a_readme_says_which_python_and_cuda_its_code_runs_with(
    tmp_path: Path, line: str, expected: dict[str, str]
) -> None:
    write(tmp_path, {"README.md": f"# A\n\n{line}\n"})
    assert said_releases(tmp_path) == expected


def _base_of(folder: Path, readme: str, listed: str = "torch\n") -> str:
    files = {"README.md": readme, "requirements.txt": listed, "train.py": "import torch\n"}
    made = draft_recipe(gather_findings(write(folder, files)), Offline())
    return f"{made.recipe.base.image} {made.recipe.base.framework}"


def test_a_base_fits_the_python_and_the_cuda_that_a_readme_says(tmp_path: Path) -> None:
    assert "2." in _base_of(tmp_path / "plain", "# A\n")
    old = _base_of(tmp_path / "old", "The code runs with Python 3.7, CUDA 10.0.\n")
    assert "pytorch:1.4" in old
    assert "pytorch:1.12" in _base_of(tmp_path / "python", "- Python 3.7\n")


@pytest.mark.parametrize("line", ["* pip install einops rich", "1. conda install -c x einops rich"])
def test_an_item_of_a_readme_may_be_an_installation(tmp_path: Path, line: str) -> None:
    code = "import torch, einops, rich\n"
    write(tmp_path, {"README.md": f"# A\n\n{line}\n", "train.py": code})
    assert all(
        "README.md" in drafted(tmp_path).beside["python", "dependencies", one]
        for one in ("einops", "rich")
    )


def test_a_list_goes_before_what_a_readme_says(tmp_path: Path) -> None:
    said = "The code runs with Python 3.7, CUDA 10.0.\n"
    assert "2.6" in _base_of(tmp_path, said, "torch==2.6.*\n")
    assert "2." in _base_of(tmp_path / "bound", "Tested with CUDA 10.0.\n", "torch>=2.1\n")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ('pip install -e ".[all]"', ("all",)),
        ("pip3 install '.[train,test]'", ("train",)),
        ("uv pip install .[a,b] --no-build-isolation", ("a", "b")),
        ("pip install -e .\npip install -e .[extra]", ()),
        ("pip install .[cpu]", ()),
        ("pip install torch\npip install ./part", ()),
    ],
)
def test_the_readmes_own_installation_names_groups(
    tmp_path: Path, block: str, expected: tuple[str, ...]
) -> None:
    write(tmp_path, {"README.md": f"```sh\n{block}\n```\n"})
    assert own_extras(tmp_path) == expected


def test_groups_that_the_readme_installs_are_taken(tmp_path: Path) -> None:
    project = """\
[project]
name = "Deep-Thing"
dependencies = ["einops"]
[project.optional-dependencies]
gui = ["gradio"]
torch = ["torch==2.6.0"]
trt = ["polygraphy"]
all = ["deep_thing[gui]", "deep-thing[torch,all]"]
"""
    write(tmp_path, {"pyproject.toml": project, "README.md": "```\npip install -e '.[all]'\n```\n"})
    found = read_pyproject(tmp_path / "pyproject.toml", tmp_path)
    assert found is not None
    assert [one.text for one in found.requirements] == ["einops", "gradio", "torch==2.6.0"]
    assert found.notes == ("pyproject.toml: its optional groups are not taken: trt",)


def test_the_readmes_release_counts_where_no_list_has_one(tmp_path: Path) -> None:
    files = {"README.md": "## Needs\n- TensorFlow 2.15\n", "a.py": "import tensorflow as tf\n"}
    write(tmp_path / "said", files)
    assert drafted(tmp_path / "said").recipe.base.framework == "tensorflow[and-cuda]==2.15.*"
    write(tmp_path / "listed", {**files, "requirements.txt": "tensorflow==2.17.0\n"})
    assert drafted(tmp_path / "listed").recipe.base.framework == "tensorflow[and-cuda]==2.17.0"


def test_a_companion_stands_for_torch_beside_another_framework(tmp_path: Path) -> None:
    listed = {"requirements.txt": "tensorflow==2.17.0\ntorchvision==0.20.1\n"}
    more = {"a.py": "import torch\n", "b.py": "import torch\n", "c.py": "import tensorflow\n"}
    write(tmp_path / "torch", {**listed, **more})
    assert drafted(tmp_path / "torch").recipe.base.framework == "torch==2.5.*"
    write(tmp_path / "tf", {**listed, **more, "b.py": "import tensorflow\n"})
    assert drafted(tmp_path / "tf").recipe.base.framework == "tensorflow[and-cuda]==2.17.0"


OLD = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"


@pytest.mark.parametrize(
    ("python", "framework"),
    [
        ("=3.7", None),
        ("=3.10", "tensorflow[and-cuda]"),
        (">=3.6", None),
        ("=3.11", "tensorflow[and-cuda]"),
    ],
)
def test_old_code_beside_a_newer_python_is_not_tensorflow_1(
    tmp_path: Path, python: str, framework: str | None
) -> None:
    listed = f"dependencies:\n  - python{python}\n  - numpy\n  - pip:\n    - tensorflow\n"
    write(tmp_path, {"environment.yml": listed, "old.py": OLD})
    base = drafted(tmp_path).recipe.base
    assert (base.framework or "").partition("==")[0] == (framework or "")
    assert dependencies(tmp_path) == ["numpy"]


def test_a_script_that_installs_is_read_where_nothing_else_names_packages(tmp_path: Path) -> None:
    script = (
        "conda create -n a python=3.9\npip install torch==2.0.1 \\\n  einops\n# pip install timm\n"
    )
    write(tmp_path, {"scripts/requirements.sh": script, "train.py": "import einops, torch\n"})
    made = drafted(tmp_path)
    assert made.recipe.base.framework == "torch==2.0.1"
    assert made.recipe.python.dependencies == ("einops",)
    write(tmp_path, {"requirements.txt": "torch==2.5.*\nrich\n"})
    assert drafted(tmp_path).recipe.base.framework == "torch==2.5.*"


def test_a_readme_names_another_package_with_the_imported_module(tmp_path: Path) -> None:
    readme = "```sh\npip install torch==1.5.0 mmcv-full==1.1.5\n```\n"
    write(tmp_path, {"README.md": readme, "train.py": "import mmcv, torch\n"})
    assert dependencies(tmp_path) == ["mmcv-full==1.1.5"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"a/README.md": "```sh\ndeepspeed --master_port 60000 \\\n train.py\n```\n"},
            ["deepspeed"],
        ),
        ({"run.sh": "CUDA_VISIBLE_DEVICES=0 accelerate launch train.py\n"}, ["accelerate"]),
        ({"README.md": "We tried deepspeed train.py too.\n"}, []),
        ({"README.md": "```sh\npip install deepspeed\n# deepspeed train.py\n```\n"}, []),
    ],
)
def test_the_launcher_of_the_programs_is_needed(
    tmp_path: Path, files: dict[str, str], expected: list[str]
) -> None:
    write(tmp_path, {"train.py": "import torch\n", **files})
    assert dependencies(tmp_path) == expected


def test_the_library_of_a_models_backbone_is_needed(tmp_path: Path) -> None:
    code = 'import transformers\nname = "facebook/detr-resnet-50"\n'
    write(tmp_path, {"train.py": code})
    assert dependencies(tmp_path) == ["timm", "transformers"]


def test_a_readme_that_installs_two_packages_is_no_list_of_all(tmp_path: Path) -> None:
    files = {
        "README.md": "```\npip install openai==0.28\n```\n",
        "inference.py": "import torch\nimport openai\n",
        "distill/train.py": "import wandb\n",
    }
    assert dependencies(write(tmp_path, files)) == ["openai==0.28", "wandb"]
