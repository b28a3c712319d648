"""init: whole recipes from whole projects, as text; each is a recipe that envbuild reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuild.project.images.definition import read_stages
from envbuild.recipe.read import read_recipe
from envbuild.recipe.write import write_recipe
from tests.init.projects import (
    COLAB,
    CONDA,
    DEFINITION,
    DOCKERFILE,
    DUMP,
    POETRY,
    STAGES,
    TORCH,
    UNIVERSITY,
    UV,
    UV_MEMBER,
    drafted,
    notebook,
    text_of,
    write,
)
from tests.support import Golden

PROJECTS: dict[str, dict[str, str]] = {
    "university": UNIVERSITY,
    "torch": TORCH,
    "dump": {"requirements.txt": DUMP, "run.py": "import keras_bert, h5py\n"},
    "conda": {"environment.yml": CONDA, "main.py": "import torch, sklearn\n"},
    "definition": {"lab.def": DEFINITION, "train.py": "import torch\n"},
    "dockerfile": {
        "Dockerfile": DOCKERFILE,
        "requirements.txt": "transformers==2.8.0\n",
        "train.py": "",
    },
    "notebooks": {
        "a.ipynb": notebook(
            "import torch\n%matplotlib inline\n!pip install nothing\nimport seaborn as sns",
            "%%bash\nimport x",
        ),
        "broken.ipynb": "{",
        "lib/own.py": "import jax_private_thing\nimport own2\n",
        "lib/own2.py": "",
    },
    "setup-py": {
        "setup.py": "from setuptools import setup\nimport os\nos.remove('precious')\nextra = ['tqdm']\n"
        "setup(name='x', install_requires=['jax>=0.4.20', 'sklearn'] + extra, python_requires='>=3.9')\n",
        "precious": "still here",
    },
    "poetry": {
        "pyproject.toml": POETRY,
        "poetry.lock": "",
        "src/trainer/__init__.py": "import torch, lightning\n",
    },
    "uv-workspace": {
        "pyproject.toml": UV,
        "packages/lab_tools/pyproject.toml": UV_MEMBER,
        "packages/lab_tools/src/lab_tools/__init__.py": "import einops\n",
        "main.py": "import torch\nimport lab_tools\n",
    },
    "stages": {
        "Dockerfile": STAGES,
        "requirements.txt": "diffusers\ntransformers\n",
        "serve.py": "import diffusers\n",
    },
    "colab": {"a.ipynb": COLAB},
}


@pytest.mark.parametrize("name", PROJECTS)
def test_whole_recipe(name: str, tmp_path: Path, golden: Golden) -> None:
    folder = write(tmp_path / name, PROJECTS[name])
    text = text_of(drafted(folder))
    golden(f"init/{name}.toml", text)
    target = tmp_path / f"{name}.toml"
    target.write_text(text, "utf-8")
    recipe, _ = read_recipe(target)
    assert recipe == drafted(folder).recipe
    if name == "setup-py":
        assert (folder / "precious").read_text() == "still here"


def test_a_single_file(tmp_path: Path) -> None:
    write(
        tmp_path / "vision",
        {"environment.yml": CONDA, "requirements.txt": "numpy", "lab.def": DEFINITION},
    )
    assert drafted(tmp_path / "vision" / "environment.yml").recipe.name == "vision"
    assert drafted(tmp_path / "vision" / "lab.def").recipe.name == "lab"
    assert drafted(tmp_path / "vision" / "requirements.txt").recipe.python.dependencies == (
        "numpy",
    )


def test_a_definition_that_starts_from_a_pulled_file(tmp_path: Path) -> None:
    """The university's own: apptainer pull docker://tensorflow/tensorflow:latest-gpu-py3 made the file."""
    text = "BootStrap: localimage\nFrom: tensorflow_latest-gpu-py3.sif\n\n%post\n  apt install -y graphviz\n  pip install keras==2.3\n"
    folder = write(tmp_path, {"keras-bert.def": text})
    assert drafted(folder).recipe.base.image == "docker://tensorflow/tensorflow:latest-gpu-py3"
    (folder / "tensorflow_latest-gpu-py3.sif").write_bytes(b"")
    assert drafted(folder).recipe.base.image == "tensorflow_latest-gpu-py3.sif"


def test_here_documents_and_stages_of_a_definition() -> None:
    first, last = read_stages(
        "Bootstrap: docker\nFrom: a\nStage: one\n%post\n cat > x <<EOF\n%files\nEOF\n echo 1\n"
        "Bootstrap: docker\nFrom: b\n%post\n echo 2\n%post\n echo 3\n"
    )
    assert first.lines("post") == [" cat > x <<EOF", "%files", "EOF", " echo 1"]
    assert first.lines("files") == []
    assert last.header == {"bootstrap": "docker", "from": "b"}
    assert last.lines("post") == [" echo 2", " echo 3"]


def test_a_free_table_is_written_as_it_is_read(tmp_path: Path) -> None:
    made = drafted(write(tmp_path / "p", {"requirements.txt": "einops\n"})).recipe
    wanted = msgspec.structs.replace(
        made, files={"data/small set": "/opt/data", "a.py": "/opt/a.py"}
    )
    target = tmp_path / f"{wanted.name}.toml"
    target.write_text(write_recipe(wanted), "utf-8")
    assert read_recipe(target)[0] == wanted
