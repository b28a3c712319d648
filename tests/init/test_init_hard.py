"""init on what is hard or hostile: links, depth, encodings, secrets, escapes; nothing of it ends in a traceback."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.project.gather import gather_findings
from envbuild.project.private import has_secret, is_secret_name, without_secrets
from envbuild.project.tree import DEEPEST, read_text, scan_project
from envbuild.store.units import as_printable
from tests.init.projects import comments, dependencies, drafted, text_of, write

TOKEN = "hf_" + "abcdefghijklmnopqrstuv"
SECRETS = {
    "Dockerfile": f"""\
FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime
ARG HF_TOKEN={TOKEN}
ENV WANDB_API_KEY=0123456789 MY_PASSWORD=hunter22 LD_PRELOAD=/usr/lib/evil.so DB=postgres://me:pw99@h/d OMP_NUM_THREADS=4
RUN pip install --extra-index-url https://me:pw99@x.invalid/simple numpy git+https://{TOKEN}@x.invalid/lab/p.git
RUN configure --with "$HF_TOKEN" && echo "machine x password z12345678" > /root/.netrc
RUN register --api-key=sk-abcdefghijklmnopqrst
CMD ["python", "t.py", "--token=abcdef123456"]
""",
    "environment.yml": "dependencies: [numpy]\nvariables: {OPENAI_API_KEY: sk-abcdefgh12345678, LD_PRELOAD: /x.so, SEED: 7}\n",
    "requirements.txt": "--index-url https://me:pw99@x.invalid/simple\npkg @ git+https://pw99@x.invalid/x.git\n-r https://me:pw99@x.invalid/m.txt\n",
    "t.py": "import torch\n",
}


def test_no_secret_enters_a_recipe(tmp_path: Path) -> None:
    made = drafted(write(tmp_path, SECRETS))
    text = text_of(made)
    for secret in (
        TOKEN,
        "0123456789",
        "hunter22",
        "evil.so",
        "pw99",
        "z12345678",
        "sk-abc",
        "abcdef123456",
        "/x.so",
    ):
        assert secret not in text
    assert made.recipe.run.environment == {"SEED": "7", "OMP_NUM_THREADS": "4"}
    assert made.recipe.run.command == ()
    assert made.recipe.system.post == ('configure --with "$HF_TOKEN"',)
    for name in ("WANDB_API_KEY", "MY_PASSWORD", "LD_PRELOAD", "DB", "OPENAI_API_KEY"):
        assert f"variable {name}" in text


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "HF_TOKEN", "aws_secret", "DB_PASSWD", "GOOGLE_APPLICATION_CREDENTIALS"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "AUTHOR", "HF_HOME"])
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("line", ["make install", "pip install tokenizers==0.15.0 transformers", "git clone https://x.invalid/p.git",
                                  "run --password=$PW", "sed -i s/a/b/ /etc/passwd"])  # fmt: skip
def test_lines_without_a_secret(line: str) -> None:
    assert not has_secret(line)
    assert without_secrets(line) == line


@given(st.text(max_size=60))
def test_what_is_shown_moves_no_cursor(text: str) -> None:
    assert as_printable(text).isprintable()
    assert len(as_printable(text)) == len(text)


def test_links(tmp_path: Path) -> None:
    """A list that is a link out of the project, or to itself, is named and not read; folders are not followed."""
    (tmp_path / "outside.txt").write_text("private-name==1\n")
    folder = write(tmp_path / "p", {"a.py": "import numpy\n"})
    (folder / "requirements.txt").symlink_to("../outside.txt")
    (folder / "setup.py").symlink_to("setup.py")
    (folder / "conf.py").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("..")
    assert dependencies(folder) == ["numpy"]
    said = comments(folder)
    assert "requirements.txt is a link that leads out of the project, or nowhere: not read" in said
    assert "setup.py is a link that leads out of the project, or nowhere: not read" in said
    write(
        tmp_path / "q",
        {
            "setup.cfg": "[options]\ninstall_requires = file: ../outside.txt\n",
            "a.py": "import einops\n",
        },
    )
    assert dependencies(tmp_path / "q") == ["einops"]
    assert "outside.txt lies outside of the project" in comments(tmp_path / "q")


def test_a_thousand_folders_in_one_another(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import numpy\n"})
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 1000 ]; do mkdir d; cd d; i=$((i+1)); done; : > deep.py"],
                   cwd=tmp_path, check=True)  # fmt: skip
    tree = scan_project(tmp_path)
    assert [path.as_posix() for path in tree.code] == ["a.py"]
    assert DEEPEST < 1000
    subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True)


def test_lists_that_are_no_utf_8(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import einops\n"})
    (tmp_path / "requirements.txt").write_bytes(
        "torch==2.0.1\nnumpy\n".encode("utf-16")
    )  # PowerShell's pip freeze >
    assert dependencies(tmp_path) == ["einops", "numpy"]
    (tmp_path / "requirements.txt").write_bytes(b"\x7fELF\0\0numpy\n")
    assert dependencies(tmp_path) == ["einops"]
    assert (
        "requirements.txt cannot be read as text, so what it asks for is missing here"
        in comments(tmp_path)
    )
    assert read_text(tmp_path) is None


def test_escapes_in_file_names(tmp_path: Path) -> None:
    write(tmp_path, {"\x1b[2J\nx.py": "import nobody_knows\n"})
    assert "\x1b" not in text_of(drafted(tmp_path))
    with pytest.raises(Exception, match="is not a notebook") as caught:
        gather_findings(write(tmp_path, {"\x1b[31m.ipynb": "{"}) / "\x1b[31m.ipynb")
    assert "\x1b" not in str(caught.value)


def test_an_installed_environment_is_not_the_projects(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import einops\n", "env/pyvenv.cfg": "", "env/lib/x.py": "import flask\n",
                     "env2/conda-meta/history": "", "env2/x.py": "import flask\n", "vendor/lietorch/a.py": "import flask\n",
                     "b.py": "import lietorch\n"})  # fmt: skip
    assert dependencies(tmp_path) == ["einops"]
    assert "lietorch" not in comments(tmp_path)


def test_projects_inside_a_project(tmp_path: Path) -> None:
    """What they are called is never looked for on an index; what a listed one needs counts."""
    files = {
        "other/setup.py": "from setuptools import setup\nsetup(name='other', install_requires=['dash'])\n",
        "setup.py": "from setuptools import setup\nsetup(name='big', install_requires=['torch', 'se3-part'])\n",
        "part/setup.py": "from setuptools import setup\nsetup(name='se3-part', install_requires=['flask'])\n",
        "part/se3/__init__.py": "import flask\n",
        "big/__init__.py": "import numpy\n",
    }
    folder = write(tmp_path, files)
    assert dependencies(folder) == ["flask", "numpy"]
    assert "not taken: se3-part: part of this project" in comments(folder)


def test_members_of_a_repository_without_a_list_of_its_own(tmp_path: Path) -> None:
    table = "[tool.poetry]\nname = '{}'\n[tool.poetry.dependencies]\npython = '>=3.9'\n"
    files = {
        "pyproject.toml": "[tool.poetry]\n[tool.poetry.dev-dependencies]\nblack = '^23'\n",
        "libs/base/pyproject.toml": table.format("corp-base") + "numpy = '>=1.21'\n",
        "libs/fancy/pyproject.toml": table.format("corp-fancy") + "corp-base = '*'\n",
    }
    assert dependencies(write(tmp_path, files)) == ["numpy>=1.21"]


def test_lists_of_examples_for_other_frameworks_are_not_joined(tmp_path: Path) -> None:
    files = {
        "requirements/requirements_jax.txt": "jax\nflax\n",
        "requirements/requirements_torch.txt": "torch\ntqdm\n",
        "requirements/requirements_common.txt": "numpy\n",
        "lab/torch/__init__.py": "import torch\n",
        "lab/__init__.py": "import torch\n",
        "examples/jax_dl.py": "import jax\n",
    }
    folder = write(tmp_path, files)
    assert dependencies(folder) == ["numpy", "tqdm"]
    assert "requirements/requirements_jax.txt" in comments(folder)


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("from torch.utils.tensorboard import SummaryWriter\n", "tensorboard"),
        (
            "from transformers import AutoModel\nAutoModel.from_pretrained('x', device_map='auto')\n",
            "accelerate",
        ),
        ("import pandas as pd\npd.DataFrame().to_parquet('x')\n", "pyarrow"),
        ("import pandas as pd\npd.read_csv('x')\n", None),
        ("from transformers import Trainer\nTrainer(None)\n", None),
        ("from transformers import GPT2Model\ndevice_map = {0: [0, 1]}\n", None),
    ],
)
def test_what_code_needs_and_does_not_import(tmp_path: Path, code: str, module: str | None) -> None:
    there = {"tensorboard", "accelerate", "pyarrow"} & set(
        dependencies(write(tmp_path, {"train.py": "import torch\n" + code}))
    )
    assert there == ({module} if module else set())


@pytest.mark.parametrize(
    "line", ["from keras.layers.advanced_activations import ELU", "model.compile(Adam(lr=0.1))"]
)
def test_keras_2_code_gets_a_tensorflow_with_keras_2(tmp_path: Path, line: str) -> None:
    folder = write(tmp_path, {"train.py": f"import keras\n{line}\n"})
    assert "made for Keras 2" in comments(folder)


def test_a_script_that_installs_tells_the_release(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch, einops\n",
        "requirements.txt": "einops\n",
        "init_setup_linux.sh": "pip install torch==1.8.2+cu111 torchvision==0.9.2+cu111\n",
    }
    assert "init_setup_linux.sh, which installs it: torch==1.8.2 is taken" in comments(
        write(tmp_path, files)
    )


def test_a_project_of_nothing_but_scripts(tmp_path: Path) -> None:
    assert dependencies(write(tmp_path, {"scripts/train.py": "import einops\n"})) == ["einops"]
