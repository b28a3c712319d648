"""init: what each kind of file says, line by line, and what bad ones become."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.data.package_tables import load_names
from envbuild.errors import UsageError
from envbuild.project.conda.environment import conda_bounds
from envbuild.project.draft.clean import clean_requirements
from envbuild.project.gather import gather_findings, recipe_name
from envbuild.project.lists.freeze import find_roots, guess_roots
from envbuild.project.lists.requirements import parse_requirement, read_requirements
from envbuild.project.model import Requirement
from envbuild.project.names import distribution_of
from envbuild.project.shell.installs import read_lines
from envbuild.resolve.sources.declared import poetry_bounds
from tests.init.projects import comments, dependencies, drafted, notebook, write


def requirements(*texts: str) -> tuple[Requirement, ...]:
    found = [parse_requirement(text, "here") for text in texts]
    assert None not in found
    return tuple(one for one in found if one is not None)


def test_requirements_with_everything(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "requirements.txt": "# comment\n-r base/more.txt\n-c bounds.txt\nuvloop ; sys_platform == 'win32'\n"
            "transformers[torch,sentencepiece] >= 4.30 \\\n   , < 5   # why\n-e .\n--extra-index-url https://u:secret@x.invalid/\n"
            "./local\nhttps://x.invalid/a-1.0-py3-none-any.whl\npkg @ git+https://u:secret@x.invalid/p.git@v1\n--pre\nbad name\n",
            "base/more.txt": "numpy\n-r ../requirements.txt\n-r ../../outside.txt\n-r https://x.invalid/list.txt\n",
            "bounds.txt": "numpy<2\nscipy==1.10\n",
        },
    )
    said = read_requirements(tmp_path / "requirements.txt", tmp_path)
    assert [one.text for one in said.requirements] == [
        "numpy<2",
        'uvloop ; sys_platform == "win32"',
        "transformers[sentencepiece,torch]<5,>=4.30",
    ]
    assert said.requirements[2].where == "requirements.txt, line 5"
    assert [text for text, _ in said.aside] == [
        "./local",
        "https://x.invalid/a-1.0-py3-none-any.whl",
        "pkg @ git+https://x.invalid/p.git@v1",
        "bad name",
    ]
    assert (
        "requirements.txt includes itself (requirements.txt -> base/more.txt -> requirements.txt): read once"
        in said.notes
    )
    assert (
        "outside.txt lies outside of the project, or is a link that leads there: not read"
        in said.notes
    )
    assert not any("secret" in text for text in (*said.notes, *(text for text, _ in said.aside)))


def test_lists_without_end(tmp_path: Path) -> None:
    write(tmp_path, {f"r{number}.txt": f"-r r{number + 1}.txt\n" for number in range(150)})
    with pytest.raises(UsageError, match=r"r0\.txt: includes more than 100 files"):
        read_requirements(tmp_path / "r0.txt", tmp_path)


@pytest.mark.parametrize(
    ("wish", "bounds"),
    [("=1.2", "==1.2.*"), ("==1.2.3", "==1.2.3"), ("=1.2.3=py36_0", "==1.2.3"), (">=1.2,<2", ">=1.2,<2"), ("", ""),
     ("=1.2.3", "==1.2.3"), ("3.8", "==3.8.*"), ("1.2.*", "==1.2.*"), ("=1.2|=1.3", ""), ("[build=x]", ""), (">= 3.8, < 4", ">=3.8,<4")],
)  # fmt: skip
def test_conda_bounds(wish: str, bounds: str) -> None:
    assert conda_bounds(wish) == bounds


@pytest.mark.parametrize(
    ("wish", "bounds"),
    [("^1.2.3", ">=1.2.3,<2"), ("^0.2.3", ">=0.2.3,<0.3"), ("^0.0.3", ">=0.0.3,<0.0.4"), ("~1.2", ">=1.2,<1.3"), ("*", ""),
     ("1.2.3", "==1.2.3"), ("=1.2.3", "==1.2.3"), (">=1.2, <2", ">=1.2,<2"), ("^1 || ^2", ">=1,<2"), (">=3.8,<3.11", ">=3.8,<3.11")],
)  # fmt: skip
def test_poetry_bounds(wish: str, bounds: str) -> None:
    assert poetry_bounds(wish) == bounds


def test_poetry_pipfile_setup_cfg(tmp_path: Path) -> None:
    write(
        tmp_path / "poetry",
        {
            "pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.9"\ntorch = "^1.13"\nfastapi = { version = "*", '
            'extras = ["all"] }\nlocal = { path = "x" }\nmaybe = { version = "1", optional = true }\n[tool.poetry.group.dev]\n'
        },
    )
    made = drafted(tmp_path / "poetry").recipe
    assert made.python.dependencies == ("fastapi[all]",)
    assert made.base.framework == "torch==1.13.*"
    write(tmp_path / "pipfile", {"Pipfile": '[packages]\nrequests = "*"\nflask = {version = ">=2", extras = ["async"]}\n'
                                            '[requires]\npython_version = "3.9"\n'})  # fmt: skip
    made = drafted(tmp_path / "pipfile").recipe
    assert made.python.dependencies == ("flask[async]>=2", "requests")
    assert made.base.bootstrap == "debian:bullseye"
    write(tmp_path / "cfg", {"setup.cfg": "[options]\ninstall_requires =\n  numpy>=1.20\n  scipy; python_version<'4'\n",
                             "setup.py": "from setuptools import setup\nsetup()\n"})  # fmt: skip
    assert dependencies(tmp_path / "cfg") == ["numpy>=1.20", 'scipy ; python_version < "4"']


def test_setup_py_that_computes_is_not_run(tmp_path: Path) -> None:
    files = {
        "setup.py": "import os, setuptools\nos.system('touch ran')\n"
        "setuptools.setup(install_requires=open('reqs/requirements.txt').read().splitlines())\n",
        "reqs/requirements.txt": "einops\n",
    }
    assert dependencies(write(tmp_path / "a", files)) == ["einops"]
    assert not (tmp_path / "a" / "ran").exists()
    odd = write(
        tmp_path / "b",
        {"setup.py": "from setuptools import setup\nsetup(install_requires=deps())\n", "a.py": ""},
    )
    assert "setup.py computes its requirements; it is not run, so they are not known" in comments(
        odd
    )


def test_pip_compile_says_what_is_direct(tmp_path: Path) -> None:
    text = """\
# autogenerated by pip-compile
certifi==2024.2.2
    # via requests
einops==0.7.0 \\
    --hash=sha256:00
    # via -r requirements.in
numpy==1.26.4
    # via
    #   -r requirements.in
    #   scipy
requests==2.31.0
    # via seg (pyproject.toml)
scipy==1.12.0  # via numpyro
"""
    assert dependencies(write(tmp_path, {"requirements.txt": text})) == [
        "einops==0.7.0",
        "numpy==1.26.4",
        "requests==2.31.0",
    ]


def test_a_direct_list_wins_over_a_dump(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "requirements.in": "einops\n",
            "requirements.txt": "# autogenerated by pip-compile\nnumpy==1.0\neinops==1\n",
        },
    )
    assert dependencies(tmp_path) == ["einops"]


def test_roots_of_a_dump() -> None:
    listed = requirements("a==1", "b==1", "c==1", "ring1==1", "ring2==1", "d==1")
    requires = {
        "a": frozenset({"b"}),
        "b": frozenset({"c"}),
        "ring1": frozenset({"ring2"}),
        "ring2": frozenset({"ring1"}),
    }
    assert [one.name for one in find_roots(listed, requires, frozenset({"c"}))] == [
        "a",
        "c",
        "ring1",
        "d",
    ]
    # what conda had built has no release there, but requires others all the same
    assert [one.name for one in find_roots(requirements("a", "b==1"), requires, frozenset())] == []
    assert [
        one.name
        for one in guess_roots(requirements("six==1", "idna==2", "lab==1"), frozenset({"idna"}))
    ] == ["idna", "lab"]


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30),
    st.sets(st.integers(0, 8)),
)
def test_roots_bring_everything_back(edges: list[tuple[int, int]], used: set[int]) -> None:
    """Law: what the roots require, directly or not, is the whole dump; what the code imports stays."""
    listed = requirements(*(f"p{number}==1" for number in range(9)))
    requires: dict[str, frozenset[str]] = {}
    for start, end in edges:
        requires[f"p{start}"] = requires.get(f"p{start}", frozenset()) | {f"p{end}"}
    kept = {
        one.name for one in find_roots(listed, requires, frozenset(f"p{number}" for number in used))
    }
    assert {f"p{number}" for number in used} <= kept
    reached, todo = set(), list(kept)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += requires.get(name, ())
    assert reached == {one.name for one in listed}


def test_wrong_and_dead_names() -> None:
    cleaned = clean_requirements(
        requirements(
            "sklearn==0.0",
            "PIL",
            "pathlib",
            "opencv-python>=4",
            "opencv-contrib-python",
            "apex",
            "nvidia-ml-py3",
        )
    )
    assert sorted(one.text for one in cleaned.requirements) == [
        "nvidia-ml-py", "opencv-contrib-python-headless>=4", "pillow", "scikit-learn",
    ]  # fmt: skip
    assert {one.name for one, _ in cleaned.dropped} == {"pathlib", "apex"}
    assert any(
        "opencv-python, opencv-contrib-python write the same files (cv2)" in note
        for note in cleaned.notes
    )


def test_twice_asked_and_local_builds() -> None:
    cleaned = clean_requirements(
        requirements(
            "numpy",
            "numpy==1.24.4",
            "numpy>=1.20",
            "torch==2.0.1+cu118",
            "torchvision==0.15.2+cu118",
        )
    )
    assert [one.text for one in cleaned.requirements] == ["numpy==1.24.4", "torchvision==0.15.2"]
    assert [one.text for one in cleaned.frameworks] == ["torch==2.0.1"]
    assert "numpy is asked for twice; taken: numpy==1.24.4 (here), left: >=1.20" in cleaned.notes


def test_shell_lines() -> None:
    found = read_lines(
        ["set -e", "sudo apt-get install -y git=1:2.3 $EXTRA libgl1 \\", "  # comment", "  curl && apt-get clean",
         "python3 -m pip install -U pip 'numpy<2' --index-url https://x.invalid/simple scipy", "for i in 1 2; do", "  echo $i",
         "done", "uv pip install einops; make install", "conda create -n x python=3.7 pytables", "cat > /etc/x <<EOF", "hidden", "EOF"],
        "a.def",
    )  # fmt: skip
    assert found.system == ["git", "libgl1", "curl"]
    assert [one.text for one in found.requirements] == [
        "pip",
        "numpy<2",
        "scipy",
        "einops",
        "tables",
    ]
    assert found.post == [
        "for i in 1 2; do",
        "echo $i",
        "done",
        "make install",
        "cat > /etc/x <<EOF",
        "hidden",
        "EOF",
    ]
    assert found.python == "==3.7.*"
    assert found.notes == [
        "the Debian package $EXTRA is not a plain name, so it is left out",
        "a.def: pip's --index-url is left out: name the index in [python] indexes if it is needed",
    ]


def test_a_definition_with_forty_pip_lines(tmp_path: Path) -> None:
    lines = "\n".join(f"    pip install package{number}==1.{number}" for number in range(40))
    write(tmp_path, {"big.def": f"Bootstrap: docker\nFrom: python:3.9\n%post\n{lines}\n"})
    assert len(dependencies(tmp_path)) == 40


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"README.md": "hello"},
            "no file here lists what the project needs: no list of requirements, no definition, no Python code",
        ),
    ],
)
def test_nothing_there(files: dict[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        gather_findings(write(tmp_path, files))
    assert caught.value.what == told


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("nb.ipynb", "{not json", "is not a notebook as Jupyter writes it"),
        ("nb.ipynb", '{"cells": 3}', "is not a notebook as Jupyter writes it"),
        ("environment.yml", "a: [b\n", "is not YAML"),
        ("environment.yml", "- 1\n", "does not list what a project needs"),
        ("other.yml", "- a\n- b\n", "does not list what a project needs"),
        ("Dockerfile", "FROM\nRUN", "is not a Dockerfile that can be read"),
        ("a.def", "hello\n%post", "is not an Apptainer definition: it has no Bootstrap:"),
        ("setup.py", "print('no setup here')", "does not list what a project needs"),
    ],
)
def test_a_single_bad_file(name: str, text: str, told: str, tmp_path: Path) -> None:
    write(tmp_path, {name: text})
    with pytest.raises(UsageError) as caught:
        gather_findings(tmp_path / name)
    assert caught.value.what == told
    assert name in str(caught.value)


def test_bad_files_of_a_folder_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[project\n", "environment.yml": "name: only-a-name\n", "nb.ipynb": "{", "setup.py": "print 'old'",
                     "requirements.txt": "einops\n", "old.py": "print 'old'\nimport tqdm\n"})  # fmt: skip
    assert dependencies(tmp_path) == ["einops", "tqdm"]
    said = comments(tmp_path)
    assert "not read: pyproject.toml, line 1" in said
    assert "environment.yml names an environment, but no packages" in said
    assert "nb.ipynb is not read: not a notebook as Jupyter writes it" in said
    assert "setup.py is not read: no Python 3" in said


def test_an_environment_with_only_a_name(tmp_path: Path) -> None:
    """Alone it says nothing; a recipe without dependencies, which tells why, is better than none beside code."""
    made = drafted(write(tmp_path, {"environment.yml": "name: only-a-name\n"}))
    assert made.recipe.python.dependencies == ()
    assert "environment.yml names an environment, but no packages" in made.head


def test_poetry_and_conda_details(tmp_path: Path) -> None:
    write(
        tmp_path / "conda",
        {"environment.yml": "dependencies: [numpy]\nvariables: {SEED: 7, 'bad name': x}\n"},
    )
    assert drafted(tmp_path / "conda").recipe.run.environment == {"SEED": "7"}
    write(
        tmp_path / "pipenv",
        {"Pipfile": '[packages]\nrequests = "*"\n[requires]\npython_full_version = "3.9.7"\n'},
    )
    assert drafted(tmp_path / "pipenv").recipe.base.bootstrap == "debian:bullseye"
    write(tmp_path / "uv", {"pyproject.toml": '[project]\nname = "a"\ndependencies = ["b", "c"]\n'
                            '[tool.uv.sources]\nB = [{ git = "https://x.invalid/b" }]\nc = { index = "lab" }\n'})  # fmt: skip
    assert dependencies(tmp_path / "uv") == ["c"]


def test_code_without_any_dependency(tmp_path: Path) -> None:
    made = drafted(write(tmp_path, {"a.py": "import os\n"})).recipe
    assert made.python.dependencies == ()
    assert made.base.bootstrap == "debian:bookworm"


def test_private_names_are_never_guessed(tmp_path: Path) -> None:
    """A name that no table knows could be anybody's on a public index."""
    write(tmp_path, {"a.py": "import ourlab_utils\nimport einops\n"})
    assert dependencies(tmp_path) == ["einops"]
    assert (
        "unknown: the module ourlab_utils (a.py) is in no table; add the package that has it"
        in comments(tmp_path)
    )


def test_ten_thousand_files_take_seconds(tmp_path: Path) -> None:
    """One text under ten thousand names: each is read, and only a new import is worth taking a file apart for."""
    text = "import os\nimport numpy as np\nfrom torch import nn\nimport pkg.mod3\n\ndef f(x):\n    return x + 1\n"
    first = write(tmp_path / "pkg0", {"mod0.py": text}) / "mod0.py"
    for number in range(1, 10_000):
        folder = tmp_path / f"pkg{number // 100}"
        if number % 100 == 0:
            folder.mkdir()
        os.link(first, folder / f"mod{number}.py")
    started = time.process_time()
    made = drafted(tmp_path).recipe
    assert time.process_time() - started < 15
    assert made.python.dependencies == ("numpy",)


def test_other_peoples_code_is_not_the_projects(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import einops\n", "venv/lib/x.py": "import flask\n", ".git/x.py": "import flask\n",
                     "third_party/x.py": "import flask\n", "node_modules/x.py": "import flask\n"})  # fmt: skip
    assert dependencies(tmp_path) == ["einops"]


@pytest.mark.parametrize(
    ("module", "dist"),
    [("cv2", "opencv-python-headless"), ("sklearn.svm", "scikit-learn"), ("google.protobuf", "protobuf"), ("google.cloud", None),
     ("torch_geometric.nn", "torch-geometric"), ("apex", ""), ("nobody_knows", None), ("sentence_transformers", "sentence-transformers")],
)  # fmt: skip
def test_modules_and_their_distributions(module: str, dist: str | None) -> None:
    assert distribution_of(module) == dist


def test_the_tables_do_not_contradict_each_other() -> None:
    names = load_names()
    for wrong in names.wrong.values():
        assert wrong.use not in names.wrong, "a replacement is itself wrong"
    for module, dist in names.module.items():
        assert dist not in names.wrong or dist == "setuptools", module


@given(st.text(max_size=80))
def test_every_text_makes_a_name(text: str) -> None:
    import re

    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", recipe_name(text))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("実験 1", "project-1"),
        ("卒業研究", "project"),
        ("2024", "project-2024"),
        ("BERT 入門", "BERT"),
    ],
)
def test_a_name_without_letters_is_a_projects(folder: str, name: str) -> None:
    assert recipe_name(folder) == name


def test_a_list_of_cog(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cog.yaml": """\
build:
  gpu: true
  cuda: "11.8"
  python_version: "3.11"
  python_packages:
    - "torch==2.0.1"
    - "diffusers==0.21.4"
  python_requirements: more.txt
  system_packages: ["libgl1-mesa-glx", "ffmpeg"]
  run:
    - pip install einops
    - command: echo ready > /etc/ready
predict: "predict.py:Predictor"
""",
            "more.txt": "safetensors>=0.3\n",
        },
    )
    made = drafted(tmp_path)
    assert made.recipe.base.framework == "torch==2.0.1"
    assert made.recipe.python.dependencies == ("diffusers==0.21.4", "einops", "safetensors>=0.3")
    assert made.recipe.system.packages == ("libgl1", "ffmpeg")
    assert made.recipe.system.post == ("echo ready > /etc/ready",)
    (tmp_path / "cog.yaml").write_text("build: [")
    with pytest.raises(UsageError, match=r"cog\.yaml, line 2: is not YAML"):
        gather_findings(tmp_path / "cog.yaml")


def test_notebooks_of_examples_are_no_list(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "import einops\n",
            "examples/x.ipynb": notebook("!pip install rich"),
            "setup.py": "from setuptools import setup\nsetup(name='a')\n",
        },
    )
    assert dependencies(tmp_path) == ["einops"]


README = """\
# A project

Not in a block: pip install black-hole

```bash
conda create -n ours python=3.9
$ conda install pytorch=1.13 cudatoolkit=11.6 -c pytorch
pip install einops \\
    rich
```
"""


def test_a_readme_counts_where_no_list_says_anything(tmp_path: Path) -> None:
    files = {"README.md": README, "a.py": "import torch, einops\n"}
    write(tmp_path / "alone", files)
    made = drafted(tmp_path / "alone")
    assert made.recipe.base.framework == "torch==1.13.*"
    assert made.recipe.python.dependencies == ("einops",)
    assert "installs what no code imports, so it is not taken: rich" in comments(tmp_path / "alone")
    write(tmp_path / "listed", {**files, "requirements.txt": "einops\ntorch\n"})
    assert dependencies(tmp_path / "listed") == ["einops"]


def test_a_definition_that_only_serves_the_models_is_left(tmp_path: Path) -> None:
    files = {
        "setup.py": "from setuptools import setup\n"
        "setup(name='ours', install_requires=['einops', 'rich', 'tqdm', 'fire', 'wandb', 'torch'])\n",
        "deploy/Dockerfile": "FROM ubuntu:22.04\nRUN pip3 install fschat transformers==4.36.0\nCOPY run.sh .\n",
    }
    write(tmp_path / "apart", files)
    assert dependencies(tmp_path / "apart") == ["einops", "fire", "rich", "tqdm", "wandb"]
    assert "lists that are not taken: deploy/Dockerfile" in comments(tmp_path / "apart")
    files["deploy/Dockerfile"] += "COPY . /ours\nRUN pip3 install -e /ours\n"
    write(tmp_path / "own", files)
    assert "transformers==4.36.0" in dependencies(tmp_path / "own")


def test_tools_of_developers_are_left_unless_the_code_imports_them(tmp_path: Path) -> None:
    listed = {"requirements.txt": "rich\nflake8-bugbear\nnumpydoc\npre-commit==3.5.0\npytest\n"}
    write(tmp_path / "plain", {**listed, "a.py": "import rich\n"})
    assert dependencies(tmp_path / "plain") == ["rich"]
    write(tmp_path / "used", {**listed, "a.py": "import rich, pytest\n"})
    assert dependencies(tmp_path / "used") == ["pytest", "rich"]


def test_the_framework_of_an_optional_group_or_a_compiled_list_tells_the_release(
    tmp_path: Path,
) -> None:
    project = "[project]\nname = 'ours'\nversion = '1'\ndependencies = ['rich']\n"
    groups = "[project.optional-dependencies]\ntest = ['torch==1.8.0']\ncuda = ['torch==2.5.1']\n"
    write(tmp_path / "group", {"pyproject.toml": project + groups, "a.py": "import torch\n"})
    assert drafted(tmp_path / "group").recipe.base.framework == "torch==2.5.1"
    compiled = "".join(f"a{number}==1.{number}\n" for number in range(60)) + "torch==2.2.1+cpu\n"
    write(
        tmp_path / "compiled",
        {
            "requirements/core.in": "rich\ntorch>=2.0.0\n",
            "requirements/core.txt": f"# autogenerated by pip-compile\n{compiled}",
            "a.py": "import torch\n",
        },
    )
    assert drafted(tmp_path / "compiled").recipe.base.framework == "torch==2.2.1"


def test_stubs_of_a_framework_are_not_the_project_s_own_module(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"docs/stubs/tensorflow/__init__.py": "", "ours/a.py": "import tensorflow as tf\n"},
    )
    assert drafted(tmp_path).recipe.base.framework == "tensorflow[and-cuda]==2.21.*"


def test_the_framework_of_the_code_where_the_list_names_another(tmp_path: Path) -> None:
    code = {f"net{number}.py": "import torch\n" for number in range(4)}
    write(tmp_path, {"requirements.txt": "tensorflow==1.15.2\n", "log.py": "import tensorflow\n"})
    assert "tensorflow" in (drafted(tmp_path).recipe.base.image or "")
    write(tmp_path, code)
    made = drafted(tmp_path).recipe
    assert (made.base.framework or "").startswith("torch")
    assert made.python.dependencies == ("tensorflow==1.15.2",)


def test_of_lists_side_by_side_the_one_with_the_framework(tmp_path: Path) -> None:
    both = {"a/requirements.txt": "jax==0.4.35\nscipy\n", "b/requirements.txt": "numpy==1.26.4\n"}
    write(tmp_path, {**both, "a/run.py": "import jax\n"})
    made = drafted(tmp_path).recipe
    assert (made.base.framework or "").startswith("jax")
    assert made.python.dependencies == ("scipy",)
    write(tmp_path, {"requirements.txt": "numpy\n"})  # the root's own list says all
    assert dependencies(tmp_path) == ["numpy"]


def test_a_file_called_like_a_package_does_not_hide_it_from_itself(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch\nfrom metrics import score\n",
        "metrics/__init__.py": "from .lpips import score\n",
        "metrics/lpips.py": "import lpips\nscore = lpips.LPIPS\n",
    }
    assert dependencies(write(tmp_path, files)) == ["lpips"]
    # what only a hook of this name asks for, the project may do without
    (tmp_path / "metrics/tensorboard.py").write_text(
        "def log():\n    import torch.utils.tensorboard\n"
    )
    (tmp_path / "metrics/__init__.py").write_text(
        "from .lpips import score\nfrom .tensorboard import log\n"
    )
    assert dependencies(tmp_path) == ["lpips"]
    (tmp_path / "lpips.py").write_text("LPIPS = 1\n")  # this one is imported
    assert dependencies(tmp_path) == []
