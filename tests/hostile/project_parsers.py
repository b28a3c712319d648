"""Parsers of a stranger's project, scripts, logs and libraries, for fuzzing (see parsers.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from envbuild.check.explain import explain_log
from envbuild.check.probes.shared.elf import BROKEN, Elf, Unreadable
from envbuild.errors import IntegrityError
from envbuild.job.lint.lint import lint_script
from envbuild.project.gather import gather_findings
from tests.hostile.index_parsers import CONFIGURATION, INFORMATION, PROJECT, SETUP, Parser

BATCH = """\
#!/bin/bash
#SBATCH --job-name=train --gres=gpu:2 --time=24:00:00 --mem=16G
#SBATCH --output=logs/%j.out
#PBS -l select=1:ncpus=4:ngpus=1 -l walltime=01:00:00
#$ -l h_rt=1:0:0 -pe smp 4 -cwd
module load cuda/12.1
export CUDA_VISIBLE_DEVICES=0 WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
cat <<'END' > run.py
print("x")
END
apptainer exec image.sif python train.py --port 8888 && echo "done" &
srun --ntasks=2 python -m torch.distributed.run train.py | tee log
"""
LOG = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import torch
ImportError: libcudart.so.12: cannot open shared object file: No such file or directory
RuntimeError: CUDA error: no kernel image is available for execution on the device
slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.
FATAL:   container creation failed: mount hook function failure
"""
DEFINITION = """\
Bootstrap: docker
From: nvcr.io/nvidia/pytorch:24.01-py3
Stage: build
%post
    apt-get update && apt-get install -y git graphviz=2.42 \\
        vim
    pip install --no-cache-dir "six>=1.0" -r requirements.txt
%environment
    export A=b
%files
    train.py /opt
%runscript
    exec python train.py "$@"
"""
DOCKERFILE = """\
ARG TAG=3.11
FROM python:${TAG} AS build
ENV A=b C="d e"
COPY requirements.txt ./
RUN apt-get update && apt-get install -y git \\
    && pip install -r requirements.txt 'numpy<2'
RUN <<END
pip install scipy
END
FROM build
CMD ["python", "train.py"]
"""
NOTEBOOK = (
    '{"cells": [{"cell_type": "code", "source": ["!pip install six\\n", "import numpy as np"]}, '
    '{"cell_type": "markdown", "source": "# x"}], "metadata": {"kernelspec": {"name": "python3"}}, '
    '"nbformat": 4}'
)
README = (
    "# x\n```sh\nconda create -n x python=3.8\npip install -r requirements.txt torch==1.8\n```\n"
)
POETRY = (
    "[tool.poetry]\nname='a'\n[tool.poetry.dependencies]\npython='^3.8'\nsix='~1.2'\n"
    "b={version='>=1,<2', extras=['c'], python='<3.9', markers=\"sys_platform == 'linux'\"}\n"
)
PIXI = "[dependencies]\nsix='*'\n[pypi-dependencies]\nsix={version='>=1', extras=['a']}\n"
LINES = "six>=1.0  # old\n-r more.txt\n--hash=sha256:00\ngit+https://x.invalid/a@main#egg=a\n./b\n"
CODE = "import numpy as np\ntry:\n    import torch\nexcept ImportError:\n    torch = None\nfrom .a import b\n"
LIBRARY = Path("/bin/true")


def read_as(name: str) -> Callable[[Path], object]:
    """Return what reads a project that has an input as its file of this name."""

    def read(path: Path) -> None:
        folder = path.with_name("project")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
        gather_findings(folder)

    return read


def text_of(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def read_library(path: Path) -> None:
    read: Any = Elf  # a probe is not annotated
    found = read(str(path))
    found.versions_needed()
    found.versions_defined()


def library(path: Path) -> None:
    """Read a library as the probe of libraries does, whose callers know what a broken one raises."""
    try:
        read_library(path)
    except (Unreadable, *BROKEN) as error:
        raise IntegrityError(str(error)) from error


def as_file(name: str, *seeds: str) -> Parser:
    return Parser(seeds=lambda _: [seed.encode() for seed in seeds], read=read_as(name))


PIPFILE = "[packages]\nsix = '*'\nb = {version = '>=1', extras = ['a'], markers = \"os_name == 'nt'\"}\n[requires]\npython_version = '3.8'\n"
COG = "build:\n  gpu: true\n  cuda: '12.1'\n  python_version: '3.11'\n  python_packages:\n  - six==1.16\n  system_packages: [git]\n  run: [pip install a]\n"
CONDA = "name: a\nchannels: [forge]\ndependencies:\n- python=3.8\n- forge::numpy>=1=py_0\n- pip:\n  - six==1.0\n  - -r more.txt\nprefix: /x\n"
PRINTED = (
    "# Name                    Version                   Build  Channel\nsix   1.16.0   pyh6c4a22f_0    forge\nnumpy 1.26 pypi_0 pypi\n",
    "Package    Version\n---------- -------\nsix        1.16.0\ntorch 2.5.1+cu124 /home/a\n",
)
INSTALL = "#!/bin/bash\nset -e\nconda create -n a python=3.8 -y && conda activate a\npip install six==1.0 'torch>=2' --extra-index-url https://x.invalid/cu121\napt-get install -y git\n"

PROJECT_PARSERS = {
    "pipfile": as_file("Pipfile", PIPFILE),
    "cog": as_file("cog.yaml", COG),
    "environment.yml": as_file("environment.yml", CONDA),
    "printed list": as_file("requirements.txt", *PRINTED),
    "install script": as_file("install.sh", INSTALL),
    "requirements": as_file("requirements.txt", LINES),
    "pyproject": as_file(
        "pyproject.toml", PROJECT + "[project]\nname='a'\ndependencies=['six']\n", POETRY
    ),
    "pixi": as_file("pixi.toml", PIXI),
    "setup.cfg": as_file("setup.cfg", CONFIGURATION),
    "setup.py": as_file("setup.py", SETUP),
    "dockerfile": as_file("Dockerfile", DOCKERFILE),
    "definition": as_file("a.def", DEFINITION),
    "notebook": as_file("a.ipynb", NOTEBOOK),
    "readme": as_file("README.md", README + INFORMATION),
    "code": as_file("train.py", CODE),
    "batch script": Parser(
        seeds=lambda _: [BATCH.encode()], read=lambda path: lint_script(text_of(path))
    ),
    "log": Parser(seeds=lambda _: [LOG.encode()], read=lambda path: explain_log([text_of(path)])),
    "library": Parser(seeds=lambda _: [LIBRARY.read_bytes()], read=library),
}
