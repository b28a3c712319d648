"""Small projects as people leave them, written into a folder."""

from __future__ import annotations

import json
from pathlib import Path

from envbuild.project.draft.draft import draft_recipe
from envbuild.project.draft.package_index import Offline
from envbuild.project.gather import gather_findings
from envbuild.project.model import RecipeDraft
from envbuild.recipe.write import write_recipe


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def drafted(place: Path) -> RecipeDraft:
    return draft_recipe(gather_findings(place), Offline())


def text_of(made: RecipeDraft) -> str:
    return write_recipe(made.recipe, head=made.head, beside=made.beside, below=made.below)


def dependencies(folder: Path) -> list[str]:
    return list(drafted(folder).recipe.python.dependencies)


def comments(folder: Path) -> str:
    made = drafted(folder)
    return "\n".join([*made.head, *(line for lines in made.below.values() for line in lines)])


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps(
        {"cells": [{"cell_type": "markdown", "source": "import nothing"}, *code], "nbformat": 4}
    )


UNIVERSITY = {
    "README.md": "docker run tensorflow/tensorflow:2.1.0-gpu-py3",
    "requirements.txt": "keras-bert\ntensorflow-gpu==2.1.0\nkeras\nsentencepiece\nscikit-learn\ntransformers\nmatplotlib\npydot\n",
    "train.py": "import keras_bert\nimport tensorflow as tf\nfrom sklearn.metrics import f1_score\n",
}

TORCH = {
    "pyproject.toml": """\
[project]
name = "seg"
requires-python = ">=3.10"
dependencies = ["torch>=2.4,<2.6", "torchvision", "nvidia-cudnn-cu12==9.1.0.70", "triton", "numpy", "hydra-core>=1.3"]

[project.optional-dependencies]
dev = ["pytest"]
""",
    "seg/__init__.py": "",
    "seg/model.py": "import torch\nimport cv2\nfrom seg import data\nimport numpy as np\n",
    "seg/data.py": "from PIL import Image\nimport yaml\ntry:\n    import wandb\nexcept ImportError:\n    wandb = None\n",
    "tests/test_seg.py": "import pytest\nimport hypothesis\n",
}

DUMP = """\
absl-py==0.9.0
astor==0.8.1
cachetools==4.0.0
certifi==2019.11.28
chardet==3.0.4
gast==0.2.2
google-auth==1.11.0
grpcio==1.27.0
h5py==2.10.0
idna==2.8
jieba==0.42.1
Keras==2.3.1
keras-bert==0.80.0
Markdown==3.1.1
numpy==1.18.1
pkg-resources==0.0.0
protobuf==3.11.2
pyasn1==0.4.8
requests==2.22.0
rsa==4.0
scipy==1.4.1
six==1.14.0
tensorboard==2.1.0
tensorflow==2.1.0
tensorflow-estimator==2.1.0
urllib3==1.25.8
Werkzeug==0.16.1
wrapt==1.11.2
"""

CONDA = """\
name: vision
channels:
  - pytorch
  - conda-forge
dependencies:
  - python=3.8
  - pytorch::pytorch=1.12.1=py3.8_cuda11.3_cudnn8.3.2_0
  - cudatoolkit=11.3
  - conda-forge::opencv>=4.5
  - scikit-learn=1.1
  - ffmpeg
  - r-base
  - numpy
  - pip
  - pip:
    - timm==0.6.7
    - -e .
    - git+https://example.invalid/lab/private.git
    - --find-links https://example.invalid/whl
"""

DEFINITION = """\
Bootstrap: docker
From: ubuntu:20.04

%files
    train.py /opt

%post
    export DEBIAN_FRONTEND=noninteractive
    apt-get -y update && apt-get install -y --no-install-recommends \\
        python3-pip python3-dev \\
        # for drawing
        graphviz libgl1 build-essential
    rm -rf /var/lib/apt/lists/*
    pip3 install --no-cache-dir -f https://example.invalid/whl torch==1.13.1+cu117 'numpy<2' \\
        pandas==1.5.3
    mkdir -p /data
    curl -L https://example.invalid/weights.bin -o /data/weights.bin
    conda install -y -c conda-forge pytables=3.7

%environment
    export LC_ALL=C
    export OMP_NUM_THREADS=4

%runscript
    exec python3 /opt/train.py
"""

DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG TAG=2.1.0
FROM tensorflow/tensorflow:${TAG}-gpu-py3
ENV TF_CPP_MIN_LOG_LEVEL=1 PATH=/opt/bin:$PATH
RUN apt-get update && apt-get install -y \\
    # a comment among the words
    libgl1 \\
    git && rm -rf /var/lib/apt/lists/*
RUN ["pip", "install", "jieba==0.42.1"]
RUN --mount=type=cache,target=/root/.cache pip install -r /app/requirements.txt \\
  pandas==1.0.5
COPY . /app
WORKDIR /app
CMD ["python", "train.py"]
"""

POETRY = """\
[tool.poetry]
name = "trainer"
version = "0.1.0"
packages = [{include = "trainer", from = "src"}]

[[tool.poetry.source]]
name = "torch-cu121"
url = "https://mirror.invalid/whl/cu121"
priority = "explicit"

[tool.poetry.dependencies]
python = ">=3.10,<3.13"
torch = {version = "^2.3.0", source = "torch-cu121"}
lightning = "^2.2"
"ruamel.yaml" = "~0.18"
mylib = {git = "https://git.invalid/lab/mylib.git", rev = "abc"}
datasets = [{version = "^2.19", python = "<3.12"}, {version = "^3.0", python = ">=3.12"}]
wandb = {version = "*", optional = true}

[tool.poetry.extras]
log = ["wandb"]

[tool.poetry.group.dev.dependencies]
pytest = "^8"

[tool.poetry.group.train.dependencies]
deepspeed = "^0.14"
"""

UV = """\
[project]
name = "uvproj"
version = "0"
requires-python = "==3.12.*"
dependencies = ["torch==2.5.1", "torchvision>=0.20", "flash-attn==2.7.2.post1", "lab-tools", "vllm @ https://x.invalid/vllm-0.6.4-cp312-cp312-linux_x86_64.whl"]
[tool.uv.sources]
torch = { index = "pytorch-cu124" }
lab-tools = { workspace = true }
[[tool.uv.index]]
name = "pytorch-cu124"
url = "https://mirror.invalid/whl/cu124"
explicit = true
[tool.uv.workspace]
members = ["packages/*"]
"""

UV_MEMBER = """\
[project]
name = "lab-tools"
version = "0"
dependencies = ["einops"]
"""

STAGES = """\
ARG CUDA=12.1.1
FROM nvidia/cuda:${CUDA}-cudnn8-devel-ubuntu22.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3.10 python3-pip git ninja-build
FROM build AS run
SHELL ["/bin/bash", "-c"]
ENV PYTHONUNBUFFERED=1 \\
    HF_HOME=/models
RUN python3 -m pip install --upgrade pip && \\
    pip3 install torch==2.1.2 torchvision==0.16.2 --index-url https://x.invalid/whl/cu121 && \\
    pip3 install "xformers<0.0.24" -r requirements.txt
COPY requirements.txt /tmp/requirements.txt
RUN pip install -r /tmp/requirements.txt
RUN git clone https://git.invalid/detectron2.git && pip install -e detectron2
USER 1000
EXPOSE 8080
HEALTHCHECK CMD curl -f http://localhost/
ENTRYPOINT ["python3", "serve.py"]
CMD ["--port", "8080"]
RUN cd /opt && wget https://example.invalid/a.tgz && tar xf a.tgz
RUN make -C /opt/a install
"""

COLAB = notebook(
    "%pip install -q umap-learn==0.5.5\n!pip install hdbscan\nimport umap, hdbscan\nimport tensorflow as tf\n"
    "from google.colab import drive\nimport keras_nlp",
    "%%capture\n!apt-get install -y ffmpeg\nimport librosa\n",
    "%%bash\npip install lifelines\ncd /content && git clone https://example.invalid/x.git\n",
    "%%writefile x.py\nimport nothing_of_ours\n",
)
