"""init: which of a project's environments is the one for the GPU, and what its base holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.init.projects import comments, dependencies, drafted, write

PIXI = """\
[workspace]
name = "seg"
channels = ["conda-forge"]
platforms = ["linux-64"]

[system-requirements]
cuda = "12.0"

[dependencies]
python = ">=3.10,<3.12"
numpy = ">=1.26"
some-tool-of-conda = "*"

[target.osx-arm64.dependencies]
scipy = "*"

[target.linux-64.dependencies]
pytorch = { version = "2.4.*", channel = "pytorch" }

[pypi-dependencies]
einops = ">=0.8, <0.9"
lightning = { version = "*", extras = ["extra"] }
seg = { path = ".", editable = true }
nvdiffrast = { git = "https://host.invalid/NVlabs/nvdiffrast" }

[feature.gpu.pypi-dependencies]
bitsandbytes = "*"

[feature.lint.dependencies]
scikit-learn = "*"
"""


def test_a_manifest_of_pixi_is_a_list(tmp_path: Path) -> None:
    write(tmp_path, {"pixi.toml": PIXI, "train.py": "import torch\n"})
    made = drafted(tmp_path)
    assert list(made.recipe.python.dependencies) == [
        "bitsandbytes", "einops<0.9,>=0.8", "lightning[extra]", "numpy>=1.26",
    ]  # fmt: skip
    assert made.recipe.base.framework == "torch==2.4.*"
    said = comments(tmp_path)
    assert "some-tool-of-conda" in said
    assert "nvdiffrast" in said


PROJECT = """\
[project]
name = "seg"
dependencies = ["tqdm"]
[tool.pixi.dependencies]
pytorch = "2.4.*"
[tool.pixi.pypi-dependencies]
einops = "*"
"""


def test_a_manifest_of_pixi_may_lie_in_pyproject(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": PROJECT})
    assert dependencies(tmp_path) == ["einops", "tqdm"]
    assert drafted(tmp_path).recipe.base.framework == "torch==2.4.*"


def test_the_environment_for_the_gpu_is_taken(tmp_path: Path) -> None:
    plain = "dependencies:\n  - numpy\n"
    files = {
        "environment.yml": plain,
        "environment_gpu.yml": plain + "  - pytorch=2.1\n  - pip:\n    - einops\n",
    }
    write(tmp_path, files)
    assert dependencies(tmp_path) == ["einops", "numpy"]
    assert "environment.yml" in comments(tmp_path)


def test_cupy_of_a_function_is_the_base_where_no_other_framework_is(tmp_path: Path) -> None:
    write(tmp_path, {"run.py": "import numpy\n\n\ndef on_gpu():\n    import cupy\n"})
    assert (drafted(tmp_path).recipe.base.framework or "").startswith("cupy-cuda12x[ctk]==")
    (tmp_path / "net.py").write_text("import torch\n", "utf-8")
    assert (drafted(tmp_path).recipe.base.framework or "").startswith("torch==")


@pytest.mark.parametrize("asked", ["cupy", "cupy-cuda12x"])
def test_cupy_is_the_base_where_no_other_framework_is(tmp_path: Path, asked: str) -> None:
    write(tmp_path, {"requirements.txt": f"{asked}\nnumpy\n", "run.py": "import cupy\n"})
    base = drafted(tmp_path).recipe.base
    assert (base.framework or "").startswith("cupy-cuda12x[ctk]==")
    assert dependencies(tmp_path) == ["numpy"]


@pytest.mark.parametrize(
    ("asked", "tag"),
    [
        ("cupy-cuda113==10.6.0", "v10.6.0"),
        ("cupy-cuda11x==12.2.0", "v12.3.0"),
        ("cupy-cuda12x==13.6.0", "v13.6.0"),
        ("cupy<12", "v11.6.0"),
    ],
)
def test_cupy_is_of_the_release_that_is_asked_for(tmp_path: Path, asked: str, tag: str) -> None:
    """CuPy before 14 brings no CUDA libraries: its makers' images have them."""
    write(tmp_path, {"requirements.txt": f"{asked}\nnumpy\n", "run.py": "import cupy\n"})
    assert drafted(tmp_path).recipe.base.image == f"docker://cupy/cupy:{tag}"


@pytest.mark.parametrize("listed", ["torch==2.5.1\ncupy-cuda12x\n", "torch==2.5.1\n"])
def test_cupy_beside_another_framework_is_a_package(tmp_path: Path, listed: str) -> None:
    code = {"run.py": "import cupy, torch\n", "more.py": "import cupy\n", "x.py": "import cupy\n"}
    write(tmp_path, {"requirements.txt": listed, **code})
    assert drafted(tmp_path).recipe.base.framework == "torch==2.5.1"
    assert dependencies(tmp_path)[0].startswith("cupy")


DOCKERFILE = "FROM nvcr.io/nvidia/pytorch:21.03-py3\nCOPY . .\nRUN pip install tensorflow tqdm\n"


def test_an_image_of_a_framework_that_the_code_does_not_use_is_not_the_base(tmp_path: Path) -> None:
    write(tmp_path, {"Dockerfile": DOCKERFILE, "train.py": "import tensorflow\nimport tqdm\n"})
    base = drafted(tmp_path).recipe.base
    assert "pytorch" not in f"{base.image}"
    assert dependencies(tmp_path) == ["tqdm"]
    write(tmp_path, {"a.py": "import torch\n", "b.py": "import torch\n"})
    assert drafted(tmp_path).recipe.base.image == "docker://nvcr.io/nvidia/pytorch:21.03-py3"


def test_a_dump_of_another_time_does_not_pin_the_framework(tmp_path: Path) -> None:
    old = [f"p{number}==1.0" for number in range(30)] + ["torch==1.12.1", "six==1.16.0"]
    brought = ["certifi==2023.5.7", "idna==3.4", "urllib3==1.26.16", "pytz==2023.3", "yarl==1.8.1"]
    manifest = "[dependencies]\npytorch = '*'\ntorchaudio = '>=2.4,<2.5'\n"
    write(tmp_path, {"requirements.txt": "\n".join(old + brought), "pixi.toml": manifest})
    assert drafted(tmp_path).recipe.base.framework == "torch==2.4.*"


@pytest.mark.parametrize("name", ["pywin32", "wincertstore", "appnope"])
def test_what_is_for_another_system_is_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"requirements.txt": f"numpy\n{name}==1.0\n"})
    assert dependencies(tmp_path) == ["numpy"]
    assert name in comments(tmp_path)


def test_the_bounds_of_a_library_are_not_those_of_its_module(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "yaml~=0.2.5\npyyaml~=6.0.2\n"})
    assert dependencies(tmp_path) == ["pyyaml~=6.0.2"]


def test_a_setup_cfg_is_trusted_as_a_setup_py_is(tmp_path: Path) -> None:
    write(tmp_path, {"setup.cfg": "[options]\ninstall_requires =\n  numpy\n"})
    write(tmp_path, {"pkg/__init__.py": "", "pkg/one.py": "import tqdm\n"})
    write(tmp_path, {"train.py": "from pkg import one\n", "pkg/two.py": "import einops\n"})
    # what the main program loads is needed; pkg/two.py is for those who want it
    assert dependencies(tmp_path) == ["numpy", "tqdm"]
    assert "einops" in comments(tmp_path)


def test_old_calls_of_tensorflow_name_its_series(tmp_path: Path) -> None:
    write(tmp_path, {"run.py": "import tensorflow as tf\ntf.set_random_seed(1)\n"})
    assert ":1.15" in (drafted(tmp_path).recipe.base.image or "")
