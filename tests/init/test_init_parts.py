"""The readers of init one by one: definitions, imports, the tree, setup.py, notebooks, proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.project.code.imports import (
    file_written_for,
    imported_modules,
    needed_modules,
    notebook_cells,
    top_module,
)
from envbuild.project.draft.propose import (
    BaseNeeds,
    for_debian,
    propose_base,
    propose_system,
    takes_debian_packages,
)
from envbuild.project.images.container import is_dockerfile, read_container
from envbuild.project.lists.setup_py import read_setup_py
from envbuild.project.model import FileFindings, ImportedModule, Requirement
from envbuild.project.shell.notebook import read_notebook
from envbuild.project.tree import is_about_developing, is_aside, is_list, scan_project
from tests.init.projects import comments, dependencies, notebook, write


def need(text: str) -> Requirement:
    return Requirement(
        text=text, name=text.split("=", maxsplit=1)[0].split("<", maxsplit=1)[0], where="a list"
    )


def names(findings: FileFindings | None) -> list[str]:
    assert findings is not None
    return [one.text for one in findings.requirements]


# ------------------------------------------------------------------ container


def test_a_definition_is_taken_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "image.def": """\
Bootstrap: docker
From: pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime

%files
    model /opt/model

%post
    apt-get update && apt-get install -y ffmpeg build-essential
    pip install --no-cache-dir einops==0.7.0
    echo ready > /etc/ready

%environment
    export OMP_NUM_THREADS=4
    export PATH=/opt/x/bin:$PATH

%runscript
    exec python /opt/model/run.py "$@"
""",
        },
    )
    found = read_container(tmp_path / "image.def", tmp_path)
    assert found.image == "docker://pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime"
    assert (names(found), found.system, found.build) == (
        ["einops==0.7.0"],
        ("ffmpeg",),
        ("build-essential",),
    )
    assert found.post == ("echo ready > /etc/ready",)
    assert found.cuda == "11.8"
    assert found.command == ("python", "/opt/model/run.py")
    assert found.environment == (("OMP_NUM_THREADS", "4"),)


@pytest.mark.parametrize(
    ("name", "text", "is_docker"),
    [
        ("Dockerfile", "FROM python:3.11\n", True),
        ("gpu.dockerfile", "FROM python:3.11\n", True),
        ("Containerfile", "FROM python:3.11\n", True),
        ("image.def", "Bootstrap: docker\nFrom: debian:12\n", False),
        ("Singularity.gpu", "Bootstrap: docker\nFrom: debian:12\n", False),
    ],
)
def test_kinds_of_definitions(name: str, text: str, *, is_docker: bool) -> None:
    assert is_dockerfile(Path(name), text) is is_docker


# ------------------------------------------------------------------ what code imports

PROGRAM = """\
import torch, numpy as np
from google.cloud import storage
try:
    import apex
except ImportError:
    apex = None
def later():
    import pandas
"""


def test_what_is_imported_at_every_start_is_certain(tmp_path: Path) -> None:
    files = {
        "train.py": PROGRAM,
        "own.py": "import os\n",
        "tests/test_train.py": "import pytest\nimport own\n",
        "broken.ipynb": "{",
    }
    found, notes = imported_modules(scan_project(write(tmp_path, files)))
    certain = {one.module: one.certain for one in found}
    assert certain == {
        "apex": False,
        "google.cloud.storage": True,
        "numpy": True,
        "pandas": False,
        "pytest": False,
        "torch": True,
    }
    assert notes == ("broken.ipynb is not read: not a notebook as Jupyter writes it",)


def test_code_that_compiles_when_it_runs(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "# torch.compile is slow\n", "b.py": "model = torch.compile(model)\n"})
    assert file_written_for(scan_project(tmp_path), "compiling") == "b.py"
    (tmp_path / "b.py").unlink()
    assert file_written_for(scan_project(tmp_path), "compiling") is None


def test_cells_and_names() -> None:
    assert notebook_cells(notebook("import a", "b = 1")) == ["import a", "b = 1"]
    assert notebook_cells("[]") is None
    assert [top_module(name) for name in ("a.b.c", "google.cloud.x", "ruamel.yaml")] == [
        "a",
        "google.cloud",
        "ruamel.yaml",
    ]


# ------------------------------------------------------------------ tree


def test_what_a_tree_holds(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "",
        "requirements-dev.txt": "",
        "a/b/requirements.txt": "",
        "pkg/__init__.py": "",
        "run.py": "",
        "setup.py": "",
        "part/pyproject.toml": "",
        "x.ipynb": "",
        "third_party/lib/code.py": "",
        ".git/hook.py": "",
        "env/pyvenv.cfg": "",
        "env/lib/deep.py": "",
    }
    tree = scan_project(write(tmp_path, files))
    assert [str(path) for path in tree.lists] == [
        "requirements.txt",
        "setup.py",
        "part/pyproject.toml",
    ]
    assert [str(path) for path in tree.aside] == ["requirements-dev.txt"]
    assert [str(path) for path in tree.code] == ["run.py", "pkg/__init__.py"]
    assert [str(path) for path in tree.notebooks] == ["x.ipynb"]
    assert tree.parts == {Path("part")}
    assert {"pkg", "run", "lib"} <= tree.modules
    assert not tree.cut


def test_scripts_in_folders_of_src_are_of_the_project(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "numpy\n",
        "src/train.py": "import scipy\n",
        "src/server/app.py": "import fastapi\n",
        "src/data/convert.py": "import h5py\n",
        "src/tests/test_app.py": "import requests\n",
    }
    found, _ = imported_modules(scan_project(write(tmp_path, files)))
    assert [one.module for one in found if one.certain] == ["fastapi", "scipy"]


@pytest.mark.parametrize(
    ("path", "lists", "developing", "aside"),
    [
        ("requirements.txt", True, False, False),
        ("requirements/base.in", True, False, False),
        ("docs/requirements.txt", True, True, True),
        ("environment_gpu.yml", True, False, False),
        ("config.yml", False, False, False),
        ("Dockerfile.dev", True, True, False),
        ("src/test_a.py", False, True, True),
        ("src/main.py", False, False, False),
    ],
)
def test_what_names_of_files_say(path: str, *, lists: bool, developing: bool, aside: bool) -> None:
    one = Path(path)
    assert (is_list(one), is_about_developing(one), is_aside(one)) == (lists, developing, aside)


# ------------------------------------------------------------------ setup.py


def test_setup_py_is_read_and_not_run(tmp_path: Path) -> None:
    text = """\
import sys
from setuptools import setup
sys.exit("never run")
"""
    write(tmp_path, {"setup.py": text})
    assert read_setup_py(tmp_path / "setup.py", tmp_path) is None
    handed = "install_requires=['numpy>=1.20', 'torch'], python_requires='>=3.8', name='My_Kit'"
    write(tmp_path, {"setup.py": f"from setuptools import setup\nsetup({handed})\n"})
    found = read_setup_py(tmp_path / "setup.py", tmp_path)
    assert names(found) == ["numpy>=1.20", "torch"]
    assert found is not None
    assert (found.python, found.project, found.complete) == (">=3.8", "my-kit", False)


def test_setup_py_that_reads_a_list_of_its_project(tmp_path: Path) -> None:
    code = "setup(install_requires=[line for line in open('requirements.txt') if check(line)])"
    write(tmp_path, {"setup.py": f"from setuptools import setup\n{code}\n"})
    found = read_setup_py(tmp_path / "setup.py", tmp_path)
    assert found is not None
    assert found.notes == (
        "setup.py computes its requirements; it is not run, so they are not known",
    )
    write(tmp_path, {"requirements.txt": "einops\nrich>=13\n"})
    assert names(read_setup_py(tmp_path / "setup.py", tmp_path)) == ["einops", "rich>=13"]
    write(tmp_path, {"setup.py": "print 'Python 2'\n"})
    old = read_setup_py(tmp_path / "setup.py", tmp_path)
    assert old is not None
    assert old.notes == ("setup.py is not read: no Python 3",)


# ------------------------------------------------------------------ notebooks


def test_what_a_notebook_installs(tmp_path: Path) -> None:
    cells = (
        "!pip install -q einops==0.7 \\\n  rich",
        "%%bash\napt-get install -y graphviz\npip install timm",
        "import numpy",
    )
    write(tmp_path, {"a.ipynb": notebook(*cells), "b.ipynb": notebook("import numpy")})
    found = read_notebook(tmp_path / "a.ipynb", tmp_path)
    assert names(found) == ["einops==0.7", "rich", "timm"]
    assert found is not None
    assert found.system == ("graphviz",)
    assert read_notebook(tmp_path / "b.ipynb", tmp_path) is None


# ------------------------------------------------------------------ proposals


@pytest.mark.parametrize(
    ("tag", "taken"),
    [
        ("1.15.0-py3", "1.15.0-gpu-py3"),
        ("2.4.1-devel", "2.4.1-devel-gpu"),
        ("latest-jupyter", "latest-gpu-jupyter"),
        ("latest-devel-gpu-py3", None),
        ("2.1.0-custom-op-ubuntu16", None),
        ("2.4.1@sha256:" + "0" * 64, None),  # the digest names the image, whatever its tag says
    ],
)
def test_the_twin_with_cuda_of_an_image_of_tensorflow(tag: str, taken: str | None) -> None:
    found = propose_base(BaseNeeds(image=f"docker://tensorflow/tensorflow:{tag}"))
    assert found.base.image == f"docker://tensorflow/tensorflow:{taken or tag}"
    assert any("its twin with CUDA" in note for note in found.notes) == (taken is not None)


@pytest.mark.parametrize("maker", ["", "docker.io/", "index.docker.io/"])
def test_an_image_of_tensorflow_without_a_tag_is_the_latest(maker: str) -> None:
    found = propose_base(BaseNeeds(image=f"docker://{maker}tensorflow/tensorflow"))
    assert found.base.image == f"docker://{maker}tensorflow/tensorflow:latest-gpu"


def test_bases_that_are_proposed() -> None:
    bare = propose_base(BaseNeeds(python=">=3.12"))
    assert (bare.base.bootstrap, bare.base.framework) == ("debian:trixie", None)
    torch = propose_base(BaseNeeds(framework=need("torch==2.1.2")))
    assert (torch.base.bootstrap, torch.base.framework) == ("debian:bookworm", "torch==2.1.2")
    image = propose_base(BaseNeeds(image="docker://example.invalid/lab/base:1"))
    assert image.base.image == "docker://example.invalid/lab/base:1"


def test_debian_packages_that_are_proposed() -> None:
    run, build = propose_system([need("opencv-python"), need("mpi4py==4.0"), need("numpy")])
    assert run["libgl1"] == "opencv-python"
    assert "mpi4py" in build.values()
    notes: list[str] = []
    assert for_debian(["libgl1-mesa-glx", "ffmpeg"], notes) == ("libgl1", "ffmpeg")
    assert notes == ["libgl1-mesa-glx is called libgl1 in Debian"]
    known = (
        "docker://pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime"  # Ubuntu 22.04, says the catalogue
    )
    assert takes_debian_packages(known) is True
    assert takes_debian_packages("docker://example.invalid/lab/base:1") is False


def test_what_only_a_file_of_its_own_runs_is_not_needed_at_every_start(tmp_path: Path) -> None:
    by_hand = "import numpy\nif __name__ == '__main__':\n    import scipy\n"
    write(tmp_path, {"run.py": by_hand, "data/__init__.py": "", "data/bank.py": by_hand})
    found = {one.module: (one.certain, one.where) for one in imports(tmp_path)}
    assert found == {"numpy": (True, "run.py"), "scipy": (True, "run.py")}
    (tmp_path / "run.py").write_text("import data.bank\n", "utf-8")
    found = {one.module: (one.certain, one.where) for one in imports(tmp_path)}
    assert found["numpy"] == (True, "data/bank.py")
    assert found["scipy"] == (False, "data/bank.py")


def test_programs_that_compile_for_torch_call_ninja(tmp_path: Path) -> None:
    built = "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
    write(tmp_path, {"train.py": built})
    assert "ninja" not in {one.module for one in imports(tmp_path)}
    (tmp_path / "train.py").write_text("from torch.utils.cpp_extension import load\n", "utf-8")
    assert [one.certain for one in imports(tmp_path) if one.module == "ninja"] == [True]


def test_comments_are_no_code_for_tensorflow_1(tmp_path: Path) -> None:
    write(
        tmp_path, {"net.py": "import tensorflow as tf\n# tf.contrib.rnn has it\nx = tf.ones(3)\n"}
    )
    assert file_written_for(scan_project(tmp_path), "tensorflow-1") is None
    (tmp_path / "net.py").write_text("import tensorflow as tf\n\nx = 1 + tf.flags.N\n", "utf-8")
    assert file_written_for(scan_project(tmp_path), "tensorflow-1") == "net.py"
    (tmp_path / "net.py").write_text("import tensorflow as tf\nx = tf.to_float(y)\n", "utf-8")
    assert file_written_for(scan_project(tmp_path), "tensorflow-1") == "net.py"


def imports(folder: Path) -> tuple[ImportedModule, ...]:
    return imported_modules(scan_project(folder))[0]


def test_what_a_project_cannot_run_without(tmp_path: Path) -> None:
    files = {
        "train.py": "import json\nimport yaml\nimport net\nfrom google.colab import drive\n",
        "net.py": "import torch\ntry:\n    import wandb\nexcept ImportError:\n    pass\n",
    }
    assert needed_modules(write(tmp_path, files)) == {"torch": "net.py", "yaml": "train.py"}
    assert needed_modules(tmp_path / "nowhere") == {}


COPY = {
    "requirements.txt": "torch==1.13.1\nflower==1.3.0\n",
    "client.py": "import torch\nimport flower\n",
    "flower-1.4.0/pyproject.toml": '[project]\nname = "flower"\nversion = "1.4.0"\n'
    'dependencies = ["grpcio"]\n',
    "flower-1.4.0/src/flower/__init__.py": "import ray\n",
}


def test_an_unpacked_archive_is_no_part_of_the_project(tmp_path: Path) -> None:
    folder = write(tmp_path, COPY)
    assert dependencies(folder) == ["flower==1.3.0"]
    assert "copies of other projects, not read: flower-1.4.0" in comments(folder)


def test_an_unpacked_archive_that_a_list_installs_is_a_part(tmp_path: Path) -> None:
    folder = write(tmp_path, COPY | {"requirements.txt": "torch\nflower\n-e ./flower-1.4.0\n"})
    assert dependencies(folder) == ["grpcio", "ray"]


def test_the_project_itself_may_be_unpacked(tmp_path: Path) -> None:
    files = {
        "README.md": "My project.",
        "Mine-main/setup.py": "from setuptools import setup\nsetup(name='mine')\n",
        "Mine-main/requirements.txt": "torch\nnumpy\n",
        "Mine-main/train.py": "import torch\n",
    }
    assert dependencies(write(tmp_path, files)) == ["numpy"]


def test_a_renamed_copy_of_a_package_that_programs_import_is_not_the_projects(
    tmp_path: Path,
) -> None:
    files = {
        "requirements.txt": "torch==1.13.1\nflower==1.3.0\n",
        "client.py": "import torch\nimport flower\nimport network\nimport flower_net\n",
        "network/__init__.py": "import einops\nimport flower_more\n",
        "flower_more/__init__.py": "import tqdm\n",
        "flower2/__init__.py": "import ray\n",
        "flower_old/__init__.py": "import flower_old.more\nimport hydra\n",
        "flower_net/__init__.py": "import scipy\n",
        "baselines/__init__.py": "import skimage\n",
    }
    assert dependencies(write(tmp_path, files)) == ["einops", "flower==1.3.0", "scipy", "tqdm"]
