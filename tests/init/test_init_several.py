"""init on projects of several parts: dumps beside lists, wheels of another machine, packages for other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.init.projects import comments, dependencies, drafted, notebook, write

BROUGHT = "asttokens attrs backcall appdirs certifi cffi charset-normalizer cycler decorator idna kiwisolver packaging pycparser six urllib3"
DUMP = "".join(f"{name}==1.0\n" for name in BROUGHT.split())


def test_a_dump_of_one_example_tells_nothing_of_another(tmp_path: Path) -> None:
    dump = DUMP + "torch==1.0.1\n"
    files = {
        "one/requirements.txt": "numpy\n",
        "one/train.py": "import torch, numpy\n",
        "two/environment.yml": "dependencies:\n"
        + "".join(f"- {line.replace('==', '=')}=py36_0\n" for line in dump.split()),
        "two/train.py": "import torch\n",
    }
    assert "torch==1.0.1" not in comments(write(tmp_path, files))


APPS = {
    "backend/pyproject.toml": '[project]\nname = "b"\ndependencies = ["fastapi", "uvicorn"]\n',
    "backend/Dockerfile": "FROM python:3.14\nRUN apt-get install -y curl\n",
    "ml/pyproject.toml": '[tool.poetry]\nname = "m"\n[tool.poetry.dependencies]\ntorch = "^2.9.1"\ntorchvision = "^0.24.1"\n'
    'pyobjc-core = {version = "*", platform = "darwin"}\nonnxruntime-gpu = {version = "*", platform = "win32"}\n'
    'onnxruntime = {version = "*", markers = "sys_platform != \'win32\'"}\n',
    "ml/train.py": "import torch\n",
    "backend/main.py": "import requests\n",
}


def test_of_several_apps_the_one_with_the_framework_is_drafted(tmp_path: Path) -> None:
    write(tmp_path, APPS)
    assert dependencies(tmp_path) == [
        'onnxruntime ; sys_platform != "win32"',
        "torchvision<0.25,>=0.24.1",
    ]
    assert "lists that are not taken: backend/Dockerfile, backend/pyproject.toml" in comments(
        tmp_path
    )


def test_a_short_dump_beside_the_list_that_was_written_by_hand(tmp_path: Path) -> None:
    dump = "".join(f"{name}==1.0\n" for name in ("Flask", *BROUGHT.split()[:6]))
    write(tmp_path, {"Pipfile": '[packages]\nflask = "*"\ntorch = "*"\n', "requirements.txt": dump})
    assert dependencies(tmp_path) == ["flask"]


def test_an_image_that_nothing_is_known_of_may_lack_the_framework(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch>=2.1\neinops\n", "Dockerfile": "FROM lab.invalid/base:7\n"}
    assert dependencies(write(tmp_path, files)) == ["einops", "torch>=2.1"]
    write(tmp_path, {"Dockerfile": "FROM pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime\n"})
    assert dependencies(tmp_path) == ["einops"]


def test_a_definition_that_only_runs_another_program_is_no_base(tmp_path: Path) -> None:
    text = 'FROM nvcr.io/nvidia/deepstream:8.0\nRUN cmake -B build\nCMD ["run", "--config", "/app/a.yaml"]\n'
    write(tmp_path, {**APPS, "docker/Dockerfile": text})
    assert drafted(tmp_path).recipe.base.framework == "torch==2.9.*"


def test_code_among_the_data_is_data_unless_it_is_loaded(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "torch\n",
        "codes/fit.py": "import torch, einops\nfrom data import load\n",
    }
    write(tmp_path, {**files, "data/load.py": "import h5py\n", "data/seen/a.py": "import pygame\n"})
    assert dependencies(tmp_path) == ["einops", "h5py"]


def test_a_wheel_of_poetry_names_the_release(tmp_path: Path) -> None:
    wheel = "https://x.invalid/cu110/torch-1.7.1%2Bcu110-cp38-cp38-linux_x86_64.whl"
    table = (
        f'[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\ntorch = {{ url = "{wheel}" }}\n'
    )
    write(tmp_path, {"pyproject.toml": table})
    assert ":1.7.1-cuda11.0" in (drafted(tmp_path).recipe.base.image or "")


@pytest.mark.parametrize(
    ("call", "asked"), [("device_map='auto'", True), ("device_map=None", False)]
)
def test_a_device_map_that_is_given_needs_accelerate(
    tmp_path: Path, call: str, *, asked: bool
) -> None:
    write(tmp_path, {"run.py": f"import torch, transformers\ndef load(a, {call}): ...\n"})
    assert ("accelerate" in dependencies(tmp_path)) is asked


def test_a_companion_bounds_a_framework_that_has_bounds(tmp_path: Path) -> None:
    write(tmp_path, APPS)
    assert drafted(tmp_path).recipe.base.framework == "torch==2.9.*"


@pytest.mark.parametrize(
    "root",
    [
        '[project]\nname = "all"\ndependencies = ["pytest>=8"]\n',
        '[project]\nname = "all"\ndependencies = ["rich"]\n[tool.poetry.dependencies]\npart = {path = "libs/part"}\n',
    ],
)
def test_a_root_that_only_holds_its_parts_together(tmp_path: Path, root: str) -> None:
    part = '[project]\nname = "part"\ndependencies = ["einops"]\n'
    write(tmp_path, {"pyproject.toml": root, "libs/part/pyproject.toml": part})
    assert "einops" in dependencies(tmp_path)


def test_what_every_program_imports_is_taken_beside_a_careful_list(tmp_path: Path) -> None:
    table = '[project]\nname = "x"\ndependencies = ["numpy"]\n'
    write(tmp_path, {"pyproject.toml": table, "train.py": "import scipy\nimport part\n"})
    write(tmp_path, {"part.py": "import tqdm\n", "extra/more.py": "import pandas\n"})
    assert dependencies(tmp_path) == ["numpy", "scipy", "tqdm"]


@pytest.mark.parametrize(
    ("copied", "started", "bound"),
    [("model /opt/model", "/opt/model/run.py", "model/run.py"), ("model/run.py /src/fit.py", "/src/fit.py", "model/run.py"),
     (". /app", "/app/model/run.py", "model/run.py"), ("model /opt/model", "/usr/bin/env", "/usr/bin/env")],
)  # fmt: skip
def test_a_copied_script_is_started_from_the_project(
    tmp_path: Path, copied: str, started: str, bound: str
) -> None:
    head = "Bootstrap: docker\nFrom: pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime\n"
    text = f"{head}%files\n    {copied}\n%runscript\n    exec python3 {started}\n"
    write(tmp_path, {"image.def": text, "model/run.py": "import torch\n"})
    assert drafted(tmp_path).recipe.run.command == ("python3", bound)


def test_what_a_dump_beside_a_short_list_adds(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='x', install_requires=['numpy', 'scipy', 'tqdm', 'torch', 'joblib'])\n"
    files = {
        "setup.py": setup,
        "requirements.txt": f"{DUMP}matplotlib==3.4.3\nnumpy==1.20.3\n",
        "train.py": "import matplotlib, numpy, torch\n",
    }
    found = dependencies(write(tmp_path, files))
    assert "matplotlib==3.4.3" in found
    assert "numpy" in found


def test_a_wheel_that_lies_elsewhere_hides_no_package(tmp_path: Path) -> None:
    cells = ("!pip install /content/timm-0.4.12-py3-none-any.whl", "import torch, timm")
    folder = write(tmp_path, {"run.ipynb": notebook(*cells)})
    assert "timm" in dependencies(folder)


def test_packages_for_other_machines_are_left_out(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "jax==0.4.20\njax-metal==0.0.5\ndotenv\n",
        "train.py": "import jax\n",
    }
    assert dependencies(write(tmp_path, files)) == ["python-dotenv"]
    assert "it is for Apple's GPUs alone" in comments(tmp_path)


TWO_WAYS = {
    "requirements.txt": "torch>=2.0\nnumpy\npandas\nscipy>=1.11\n",
    "environment.yml": "channels: [conda-forge]\ndependencies:\n"
    "- python=3.10\n- pytorch>=2.0\n- numpy\n- pandas\n- seaborn\n- scanpy\n- samtools\n",
    "train.py": "import torch\nimport seaborn\n",
}
BY_PIP = "```sh\npip install -r requirements.txt\n```\n"
BY_CONDA = "```sh\nconda env create -f environment.yml\n```\n"


@pytest.mark.parametrize(
    ("beside", "taken"),
    [
        ({"README.md": BY_PIP + BY_CONDA}, ["numpy", "pandas", "scipy>=1.11", "seaborn"]),
        ({"README.md": BY_CONDA + BY_PIP}, ["numpy", "pandas", "scanpy", "seaborn"]),
        (
            {
                "README.md": BY_CONDA,
                "Dockerfile": "FROM debian:bookworm\nCOPY requirements.txt /\n"
                "RUN pip install -r requirements.txt\n",
            },
            ["numpy", "pandas", "scipy>=1.11", "seaborn"],
        ),
        # both in one block are steps, and a list that nothing installs says nothing of the other
        (
            {
                "README.md": "```\nconda env create -f environment.yml\npip install -r requirements.txt\n```"
            },
            ["numpy", "pandas", "scanpy", "scipy>=1.11", "seaborn"],
        ),
        ({}, ["numpy", "pandas", "scanpy", "scipy>=1.11", "seaborn"]),
    ],
)
def test_two_ways_to_install_are_not_joined(
    tmp_path: Path, beside: dict[str, str], taken: list[str]
) -> None:
    folder = write(tmp_path, TWO_WAYS | beside)
    made = drafted(folder)
    assert list(made.recipe.python.dependencies) == taken
    assert ("two ways to install the same" in comments(folder)) == (len(taken) < 5)
    # what a list for pip cannot say is kept
    assert "samtools" in made.recipe.system.packages


def test_lists_that_share_little_belong_together(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "torch\ntqdm\nwandb\ntimm\n",
        "environment.yml": "channels: [c]\ndependencies:\n- pytorch\n- gdal\n- numpy\n",
        "README.md": BY_PIP,
    }
    assert {"numpy", "tqdm"} <= set(dependencies(write(tmp_path, files)))


def test_one_image_is_for_one_of_two_equal_pipelines(tmp_path: Path) -> None:
    files = {
        "requirements_torch.txt": "torch\nnumpy\ntorchinfo\n",
        "requirements_tensorflow.txt": "tensorflow\nnumpy\npydot\n",
        "README.md": "Take PyTorch or TensorFlow.\n",
        "train_torch.py": "import torch\nimport pandas\n",
        "train_tensorflow.py": "import tensorflow\nimport seaborn\n",
        "model_tensorflow.py": "import tensorflow\n",
        "model_torch.py": "import torch\n",
    }
    folder = write(tmp_path, files)
    made = drafted(folder)
    assert (made.recipe.base.framework or "").startswith("torch")
    assert list(made.recipe.python.dependencies) == ["numpy", "pandas", "torchinfo"]
    assert "another one: envbuild init requirements_tensorflow.txt" in comments(folder)


def test_most_files_tell_the_framework_of_unequal_pipelines(tmp_path: Path) -> None:
    files = {
        "requirements_torch.txt": "torch\n",
        "requirements_tensorflow.txt": "tensorflow\n",
        "README.md": "Moved from PyTorch to TensorFlow.\n",
        "old.py": "import torch\n",
        **{f"model_{n}.py": "import tensorflow\n" for n in range(4)},
    }
    made = drafted(write(tmp_path, files))
    assert (made.recipe.base.framework or "").startswith("tensorflow")


def test_namespaces_are_told_apart_by_the_parts_below_them(tmp_path: Path) -> None:
    code = (
        "from azureml.core.run import Run\nfrom azureml.train.estimator import Estimator\n"
        "from google.cloud import storage\nfrom azure.search.documents import SearchClient\n"
        "import google.protobuf\nimport azureml.unheard\n"
    )
    folder = write(tmp_path, {"train.py": f"import torch\n{code}"})
    assert dependencies(folder) == [
        "azure-search-documents",
        "azureml-core",
        "azureml-train-core",
        "google-cloud-storage",
        "protobuf",
    ]
    assert "the module azureml.unheard" in comments(folder)


def test_placeholders_of_an_index_become_comments(tmp_path: Path) -> None:
    folder = write(tmp_path, {"requirements.txt": "torch\ncudf>=24\nnumpy\n"})
    assert dependencies(folder) == ["numpy"]
    assert "not taken: cudf (requirements.txt, line 2): in RAPIDS images" in comments(folder)


def test_a_preview_of_the_framework_beside_it_is_not_taken(tmp_path: Path) -> None:
    lists = {"requirements.txt": "tensorflow==2.15.0\ntf-nightly==1.6.0.dev20180120\nnumpy\n"}
    folder = write(tmp_path, lists)
    assert dependencies(folder) == ["numpy"]
    assert "tf-nightly (requirements.txt, line 2): the framework writes the same" in comments(
        folder
    )


def test_an_environment_that_conda_wrote_without_builds_is_a_dump(tmp_path: Path) -> None:
    names = ("certifi", "idna", "pytz", "six", "urllib3", "pycparser", "pyparsing", "cycler")
    pins = "".join(f"- {name}=1.0\n" for name in (*names, "pytorch", "numpy", "re2"))
    head = "channels: [defaults]\ndependencies:\n"
    code = {"train.py": "import torch\nimport numpy\n"}
    exported = code | {"environment.yml": f"{head}- _libgcc_mutex=0.1\n{pins}"}
    assert dependencies(write(tmp_path / "exported", exported)) == ["numpy==1.0.*"]
    by_hand = code | {"environment.yml": head + pins}
    assert "six==1.0.*" in dependencies(write(tmp_path / "by-hand", by_hand))


def test_a_line_on_a_copied_file_is_no_step_of_the_build(tmp_path: Path) -> None:
    lines = "FROM python:3.11\nWORKDIR /app\nCOPY check_gpu.py other.sh ./\n"
    docker = f"{lines}RUN pip install torch\nRUN python check_gpu.py\nRUN make-cache\n"
    folder = write(tmp_path, {"Dockerfile": docker, "check_gpu.py": "import torch\n"})
    made = drafted(folder)
    assert [line for line in made.recipe.system.post if "check_gpu" in line] == []
    assert any("make-cache" in line for line in made.recipe.system.post)
    assert "python check_gpu.py (Dockerfile): it works on the project's files" in comments(folder)


def test_a_dump_that_lost_the_paths_of_condas_builds(tmp_path: Path) -> None:
    pinned = (
        "absl-py asttokens attrs backcall bleach cachetools cycler debugpy decorator defusedxml "
        "executing gast idna jedi kiwisolver markdown mistune nbclient nbconvert parso pexpect six"
    )
    pins = "".join(f"{name}==1.0\n" for name in pinned.split())
    bare = "certifi\nmenuinst\nlibmambapy\ntornado\nnumpy\n"
    files = {
        "requirements.txt": f"{pins}{bare}torch==2.2.1\n",
        "train.py": "import torch, numpy\n",
    }
    assert dependencies(write(tmp_path, files)) == ["numpy"]


@pytest.mark.parametrize("other", ["ipu", "tpu", "npu", "hpu", "xpu", "cpu"])
def test_a_list_for_another_kind_of_card_is_left(tmp_path: Path, other: str) -> None:
    files = {
        "lists/requirements_gpu.txt": "tensorflow==2.15.0\nnumpy\n",
        f"lists/requirements_{other}.txt": "gc-tensorflow==2.1.0\nnumpy\n",
        "scripts/train.py": "import tensorflow\n",
    }
    assert dependencies(write(tmp_path, files)) == ["numpy"]


@pytest.mark.parametrize(("others", "kept"), [(20, False), (9, True)])
def test_a_framework_that_few_files_import_and_no_list_names(
    tmp_path: Path, others: int, *, kept: bool
) -> None:
    files = {f"nets/net{number}.py": "import torch\n" for number in range(others)}
    files |= {"train.py": "import torch\n", "export.py": "import tensorflow\n"}
    assert ("tensorflow" in dependencies(write(tmp_path, files))) == kept
    assert ("not taken: tensorflow (imported in export.py)" in comments(tmp_path)) != kept
    # what a list names is asked for
    write(tmp_path, {"requirements.txt": "torch\ntensorflow\n"})
    assert "tensorflow" in dependencies(tmp_path)


def test_libraries_of_nvidia_that_no_framework_brings_are_kept(tmp_path: Path) -> None:
    names = ["nvidia-nvimgcodec-cu12", "nvidia-dali-cuda120", "nvidia-cublas-cu12"]
    write(tmp_path, {"requirements.txt": "\n".join(["torch", *names]) + "\n"})
    assert dependencies(tmp_path) == ["nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12"]


@pytest.mark.parametrize(("listed", "taken"), [("~=1.12.1", "1.12"), (">=1.9", "1.10")])
def test_a_dump_pins_the_framework_inside_the_bounds_of_a_list(
    tmp_path: Path, listed: str, taken: str
) -> None:
    dump = "".join(f"- {line.replace('==', '=')}=py36_0\n" for line in DUMP.split())
    files = {
        "requirements.txt": f"torch{listed}\nnumpy\n",
        "environment.yml": f"dependencies:\n{dump}- pytorch=1.10.0=py3.8_cuda11.3_0\n",
        "train.py": "import torch\n",
    }
    base = drafted(write(tmp_path, files)).recipe.base
    assert taken in f"{base.image}{base.framework}"


def test_parts_for_two_frameworks_are_two_images(tmp_path: Path) -> None:
    setup = (
        "from setuptools import setup\nsetup(name='one', install_requires=['torch', 'einops'])\n"
    )
    files = {
        "one/setup.py": setup,
        "one/a.py": "import torch\n",
        "one/b.py": "import torch\n",
        "two/requirements.txt": "tensorflow==1.15.4\nnumpy==1.16.4\n",
        "two/a.py": "import tensorflow\n",
        "three/requirements.txt": "stable-baselines3\n",
        "three/a.py": "import stable_baselines3\n",
    }
    folder = write(tmp_path, files)
    assert dependencies(folder) == ["einops", "stable-baselines3"]
    assert "another one: envbuild init two/requirements.txt" in comments(folder)


def test_lists_for_tests_that_the_main_list_includes_are_not_read(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "-r requirements/runtime.txt\n-r requirements/tests.txt\n",
        "requirements/runtime.txt": "torch\nnumpy\n",
        "requirements/tests.txt": "interrogate\n",
    }
    assert dependencies(write(tmp_path, files)) == ["numpy"]
    assert "requirements.txt: requirements/tests.txt is for those who" in comments(tmp_path)


@pytest.mark.parametrize("other", ["apple", "macos", "windows", "darwin"])
def test_an_environment_for_another_system_is_not_taken(tmp_path: Path, other: str) -> None:
    files = {
        "environment_linux.yml": "dependencies:\n  - pytorch\n  - einops\n",
        f"environment_{other}.yml": "dependencies:\n  - pytorch\n  - scipy\n",
    }
    assert dependencies(write(tmp_path, files)) == ["einops"]
