"""init: projects without a list, or with one under a name of its own, and what conda leaves in a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from envbuild.project.lists import freeze
from envbuild.project.lists.readme import framework_releases
from envbuild.project.lists.requirements import parse_requirement, read_requirements
from envbuild.project.model import Requirement
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import About
from tests.init.projects import comments, dependencies, drafted, notebook, write

ENVIRONMENT = "channels:\n  - conda-forge\ndependencies:\n  - numpy\n  - pip:\n    - einops\n"


@pytest.mark.parametrize("name", ["reqs.yml", "dependencies/segmentation.yml", "torch13.yaml"])
def test_a_conda_environment_is_known_by_what_it_says(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: ENVIRONMENT, "train.py": "import numpy\n"})
    assert dependencies(tmp_path) == ["einops", "numpy"]


@pytest.mark.parametrize(
    "text", ["dependencies:\n  - numpy\n", "channels:\n  - a\n", "dependencies:\n  numpy: 1\n", "- [\n"]
)  # fmt: skip
def test_other_yaml_is_no_environment(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"config.yml": text, "train.py": "import einops\n"})
    assert dependencies(tmp_path) == ["einops"]


def test_without_a_list_every_file_of_the_project_counts(tmp_path: Path) -> None:
    files = {
        "train.py": "import numpy\n",
        "models/unused.py": "import einops\n",
        "tests/test_it.py": "import flask\n",
        "venv/lib/other.py": "import flask\n",
    }
    write(tmp_path, files)
    assert dependencies(tmp_path) == ["einops", "numpy"]
    write(tmp_path, {"requirements.txt": "numpy\n"})
    assert dependencies(tmp_path) == ["numpy"]
    assert "einops" in comments(tmp_path)


BUILT = "{} @ file:///croot/{}_1686613057838/work"


def test_what_conda_had_built_is_its_name_if_the_code_imports_it(tmp_path: Path) -> None:
    pinned = [f"p{number}==1.0" for number in range(10)]
    brought = ["certifi==2023.5.7", "idna==3.4", "six==1.16.0", "urllib3==1.26.16", "pytz==2023.3"]
    built = [BUILT.format(name, name.lower()) for name in ("PyYAML", "tqdm", "jupyter")]
    write(tmp_path, {"requirements.txt": "\n".join([*pinned, *brought, *built]) + "\n"})
    write(tmp_path, {"train.py": "import yaml\nimport tqdm\nimport six\n"})
    read = read_requirements(tmp_path / "requirements.txt", tmp_path)
    assert read.frozen
    assert read.aside == ()
    listed = dependencies(tmp_path)
    assert {"PyYAML", "tqdm", "six==1.16.0"} <= set(listed)
    assert "jupyter" not in listed


def test_what_an_asked_extra_brings_is_indirect(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "lightning": ("fsspec[http]>=2021", 'flask; extra == "serve"'),
        "fsspec": ('aiohttp; extra == "http"', 'dask; extra == "dask"'),
        "aiohttp": (),
        "dask": (),
        "flask": (),
    }  # fmt: skip

    files = {name: Candidate(file=name, url="", sha256=name, size=1) for name in said}

    def described(*_: object) -> dict[str, About]:
        return {name: About(size=1, requires=texts) for name, texts in said.items()}

    monkeypatch.setattr(freeze, "describe_files", described)
    listed = tuple(
        cast("Requirement", parse_requirement(f"{name}==1", "list")) for name in sorted(said)
    )
    requires = freeze.requirements_of(listed, files, cast("Any", None))
    assert requires["fsspec"] == {"aiohttp"}
    roots = freeze.find_roots(listed, requires, frozenset())
    assert [one.name for one in roots] == ["dask", "flask", "lightning"]


INSTALLING = """
```
pip3 install torch==1.12.1+cu113 torchvision==0.13.1+cu113 --extra-index-url https://x.invalid/
```
"""


def test_a_release_that_the_readme_installs(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": INSTALLING})
    assert [one.text for one in framework_releases(tmp_path)] == ["torch==1.12.1"]
    other = INSTALLING.replace("1.12.1+cu113 ", "1.13.1 ")
    write(tmp_path, {"README.md": INSTALLING + other})
    assert framework_releases(tmp_path) == ()


def test_that_release_counts_beside_a_list_without_the_framework(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": INSTALLING, "requirements.txt": "numpy\n"})
    write(tmp_path, {"train.py": "import torch\nimport numpy\n"})
    assert "pytorch:1.12.1-" in (drafted(tmp_path).recipe.base.image or "")


@pytest.mark.parametrize(
    ("module", "name"), [("ignite", "pytorch-ignite"), ("igl", "libigl"), ("pyspark", "pyspark")]
)
def test_modules_of_packages_that_research_code_imports(
    tmp_path: Path, module: str, name: str
) -> None:
    write(tmp_path, {"train.py": f"import {module}\n"})
    assert dependencies(tmp_path) == [name]


def test_condas_name_of_docker_is_no_package_of_the_index(tmp_path: Path) -> None:
    lines = "".join(f"  - {name}\n" for name in ("docker-py", "conda-content-trust", "numpy"))
    write(
        tmp_path,
        {"environment.yml": f"dependencies:\n{lines}", "a.py": "import numpy\n"},
    )
    assert dependencies(tmp_path) == ["docker", "numpy"]


EXPORTED = [
    "# platform: linux-64",
    "pytorch=1.12.1=py3.10_cuda11.3_cudnn8.3.2_0",
    "python=3.10.4=h12debd9_0",
]
EXPORTED += [
    f"{name}=1.0=h0_0"
    for name in ("zlib", "xz", "tk", "zstd", "yaml", "readline", "sqlite", "openssl")
]
EXPORTED += ["einops=0.3.0=py_0", "wilds=2.0.0=pypi_0"]


@pytest.mark.parametrize("form", ["{}", "{0}   linux"])
def test_a_list_that_conda_printed_is_read(tmp_path: Path, form: str) -> None:
    lines = [line if form == "{}" else form.format(line.replace("=", "   ")) for line in EXPORTED]
    write(
        tmp_path,
        {"requirements.txt": "\n".join(lines), "train.py": "import torch, wilds, einops\n"},
    )
    made = drafted(tmp_path)
    assert made.recipe.python.dependencies == ("einops==0.3.0", "wilds==2.0.0")
    assert "1.12" in str(made.recipe.base.image or made.recipe.base.framework)


def test_a_list_that_pip_printed_is_read(tmp_path: Path) -> None:
    text = "Package    Version\n---------- -------\neinops     0.6.1\nnumpy      1.24.2  /home/me/numpy\n"
    write(tmp_path, {"requirements.txt": text})
    assert dependencies(tmp_path) == ["einops==0.6.1", "numpy==1.24.2"]


def test_a_list_that_pip_printed_is_known_without_its_head(tmp_path: Path) -> None:
    write(tmp_path, {"environment.txt": "einops\t0.6.1\r\nnumpy\t1.24.2\r\n"})
    assert dependencies(tmp_path) == ["einops==0.6.1", "numpy==1.24.2"]
    write(tmp_path, {"environment.txt": "einops==0.6.1\nrich\n"})
    assert dependencies(tmp_path) == ["einops==0.6.1", "rich"]


def test_of_a_conda_installation_only_what_the_code_imports_is_taken(tmp_path: Path) -> None:
    pinned = [f"{name}==1.0" for name in ("conda", "spyder", "bokeh", "einops", "mv-laplace")]
    brought = ["certifi==2023.5.7", "idna==3.4", "six==1.16.0", "urllib3==1.26.16", "pytz==2023.3"]
    more = [f"p{number}==1.0" for number in range(8)]
    write(tmp_path, {"requirements.txt": "\n".join([*pinned, *brought, *more]) + "\n"})
    write(tmp_path, {"train.py": "import einops, mv_laplace\n"})
    assert dependencies(tmp_path) == ["einops==1.0", "mv-laplace==1.0"]


def test_conda_names_its_own_installation(tmp_path: Path) -> None:
    names = ("conda-content-trust", "einops", "bokeh", "spyder", "p1", "p2", "p3", "p4", "p5", "p6")
    lines = "".join(f"  - {name}=1.0=py312_0\n" for name in names)
    write(tmp_path, {"environment.yml": f"dependencies:\n{lines}  - pip:\n    - mv-laplace==1.0\n"})
    write(tmp_path, {"train.py": "import einops, mv_laplace\n"})
    assert dependencies(tmp_path) == ["einops==1.0", "mv-laplace==1.0"]


def test_modules_in_a_list_are_packages_or_python_itself(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "matplotlib.pyplot\npickle\nruamel.yaml\n"})
    assert dependencies(tmp_path) == ["matplotlib", "ruamel.yaml"]
    assert "pickle" in comments(tmp_path)


def test_a_folder_named_like_a_framework_is_not_that_framework(tmp_path: Path) -> None:
    write(
        tmp_path, {"jax/requirements.txt": "einops\n", "jax/train.py": "import jax\nimport optax\n"}
    )
    made = drafted(tmp_path)
    assert made.recipe.base.framework is not None
    assert made.recipe.base.framework.startswith("jax")
    assert made.recipe.python.dependencies == ("einops", "optax")


def test_notebooks_are_the_programs_of_a_project_without_code(tmp_path: Path) -> None:
    cells = notebook("import numpy\nimport einops\n")
    write(tmp_path, {"requirements.txt": "numpy\n", "notebooks/train.ipynb": cells})
    assert dependencies(tmp_path) == ["einops", "numpy"]


def test_tensorflows_image_for_the_cpu_becomes_its_twin(tmp_path: Path) -> None:
    lines = (
        "FROM tensorflow/tensorflow:1.13.2-py3\nRUN pip install --root-user-action ignore einops\n"
    )
    write(tmp_path, {"Dockerfile": lines, "train.py": "import tensorflow\n"})
    made = drafted(tmp_path)
    assert made.recipe.base.image == "docker://tensorflow/tensorflow:1.13.2-gpu-py3"
    assert made.recipe.python.dependencies == ("einops",)


@pytest.mark.parametrize(
    ("tag", "kept"), [("cuda12-python-3.12", True), ("cuda-latest", True), ("latest", False)]
)
def test_images_of_jupyter_with_cuda_are_bases(tmp_path: Path, tag: str, kept: bool) -> None:
    image = f"quay.io/jupyter/pytorch-notebook:{tag}"
    write(tmp_path, {"Dockerfile": f"FROM {image}\nRUN pip install einops\n"})
    assert drafted(tmp_path).recipe.base.image == (f"docker://{image}" if kept else None)


def test_pytests_old_command_in_a_list_is_pytest(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "py.test>=3\nnumpy\n"})
    assert dependencies(tmp_path) == ["numpy", "pytest>=3"]


def test_what_ubuntus_own_python_holds_is_not_taken_from_a_dump() -> None:
    names = ("launchpadlib", "ssh-import-id", "pygobject", "wadllib", "peft", "pyserial")
    listed = tuple(filter(None, (parse_requirement(f"{name}==1.0", "list") for name in names)))
    kept = freeze.guess_roots(listed, frozenset({"pyserial"}))
    assert [one.name for one in kept] == ["peft", "pyserial"]
