"""init on projects of several parts: dumps beside lists, wheels of another machine, packages for other machines."""

from __future__ import annotations

from pathlib import Path

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


def test_a_short_dump_beside_the_list_that_was_written_by_hand(tmp_path: Path) -> None:
    dump = "".join(f"{name}==1.0\n" for name in ("Flask", *BROUGHT.split()[:6]))
    write(tmp_path, {"Pipfile": '[packages]\nflask = "*"\ntorch = "*"\n', "requirements.txt": dump})
    assert dependencies(tmp_path) == ["flask"]


def test_a_wheel_of_poetry_names_the_release(tmp_path: Path) -> None:
    wheel = "https://x.invalid/cu110/torch-1.7.1%2Bcu110-cp38-cp38-linux_x86_64.whl"
    table = (
        f'[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\ntorch = {{ url = "{wheel}" }}\n'
    )
    write(tmp_path, {"pyproject.toml": table})
    assert ":1.7.1-cuda11.0" in (drafted(tmp_path).recipe.base.image or "")


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
