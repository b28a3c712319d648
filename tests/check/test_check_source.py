"""The project's own Python: lines that prove nothing or take the GPU away are found, ordinary code is not."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.check.checks.sources import Survey, look_through, survey_project
from tests.check.tree import Tree, failures, make_recipe


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("print(tf.test.is_gpu_available)", "tf.test.is_gpu_available"),
        ("print('GPU:', torch.cuda.is_available)", "torch.cuda.is_available"),
        ("device = 'cuda' if torch.cuda.is_available else 'cpu'", "torch.cuda.is_available"),
        ("if not torch.cuda.is_available:\n    pass", "torch.cuda.is_available"),
        ("assert tensorflow.test.is_built_with_cuda", "tensorflow.test.is_built_with_cuda"),
        ("print(f'{torch.cuda.device_count} GPUs')", "torch.cuda.device_count"),
        ("use = args.gpu and cuda.is_available", "cuda.is_available"),
        ("print(tf.config.list_physical_devices)", "tf.config.list_physical_devices"),
    ],
)
def test_functions_that_are_not_called_are_found(line: str, text: str) -> None:
    (suspect,) = {(one.kind, one.text) for one in look_through(f"import x\n{line}\n", "a.py")}
    assert suspect == ("uncalled", text)


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        "environ['CUDA_VISIBLE_DEVICES'] = ''",
        "os.environ.update(CUDA_VISIBLE_DEVICES='-1')",
        "os.environ.update({'CUDA_VISIBLE_DEVICES': '1'})",
        "os.putenv('CUDA_VISIBLE_DEVICES', '1')",
    ],
)
def test_a_choice_of_gpus_in_the_source_is_found(line: str) -> None:
    (suspect,) = look_through(f"import os\n{line}\n", "a.py")
    assert (suspect.kind, suspect.line, suspect.text) == ("chosen", 2, line)


def test_a_choice_of_gpus_over_several_lines_is_found() -> None:
    text = "os.environ.update({\n    'A': str(1),  # ours\n    'CUDA_VISIBLE_DEVICES': '1',\n})\n"
    (suspect,) = look_through(f"import os\n{text}", "a.py")
    assert suspect.line == 2
    assert suspect.text == "os.environ.update({'A': str(1), 'CUDA_VISIBLE_DEVICES': '1'})"


def test_a_choice_of_gpus_in_a_text_is_none() -> None:
    text = '"""os.environ[\'CUDA_VISIBLE_DEVICES\'] = \'0\' is wrong."""\n'
    assert look_through(text, "a.py") == []


@pytest.mark.parametrize(
    "line",
    [
        "print(torch.cuda.is_available())",
        "if torch.cuda.is_available():\n    pass",
        "check = torch.cuda.is_available",
        "skip = pytest.mark.skipif(no(torch.cuda.is_available), reason='')",
        "print(server.is_available)",
        "os.environ['CUDA_VISIBLE_DEVICES'] = str(args.gpu)",
        "gpus = os.environ['CUDA_VISIBLE_DEVICES']",
        "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')",
        "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'",
        "monkeypatch.setitem(table, 'CUDA_VISIBLE_DEVICES', '0')",
    ],
)
def test_ordinary_code_is_not_accused(line: str) -> None:
    assert look_through(f"import os\n{line}\n", "a.py") == []


def test_notebooks_are_read_without_the_lines_of_the_shell(tmp_path: Path) -> None:
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": "print(torch.cuda.is_available)"},
            {
                "cell_type": "code",
                "source": ["%matplotlib inline\n", "!pip list\n", "print(torch.cuda.is_available)"],
            },
        ]
    }
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    assert [one.line for one in survey_project(tmp_path).suspects] == [3]


def test_environments_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    bad = "import torch\nprint(torch.cuda.is_available)\n"
    for name in (
        ".git/a.py",
        "env/lib/a.py",
        "conda/a.py",
        "x/site-packages/a.py",
        "node_modules/a.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(bad)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "conda/conda-meta").mkdir()
    (tmp_path / "data.txt").write_text(bad)
    assert survey_project(tmp_path) == Survey(files=0, unread=(), suspects=())


def test_what_is_no_python_is_listed_and_not_judged(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print torch.cuda.is_available\n")
    (tmp_path / "null.py").write_text("a = 1\0\n")
    (tmp_path / "broken.ipynb").write_text("{")
    (tmp_path / "list.ipynb").write_text("[]")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    assert survey_project(tmp_path).unread == (
        "broken.ipynb",
        "deep.py",
        "list.ipynb",
        "null.py",
        "old.py",
    )


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_survey_fail(text: str) -> None:
    with contextlib.suppress(SyntaxError, ValueError):
        look_through(text, "a.py")


def check(tmp_path: Path, text: str) -> dict[str, str]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(text)
    tree = Tree(tmp_path / "image").install("tqdm", "4", {"tqdm.py": ""})
    return failures(tree.check(make_recipe("tqdm"), project=project))


def test_the_check_names_file_line_and_what_to_write(tmp_path: Path) -> None:
    assert check(tmp_path, "import tensorflow as tf\nprint(tf.test.is_gpu_available)\n") == {
        "sources": "train.py:2: tf.test.is_gpu_available is not called there, and a function always counts as true"
    }


def test_the_check_names_a_choice_in_the_source(tmp_path: Path) -> None:
    text = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "3"\nprint(torch.cuda.is_available)\n'
    assert check(tmp_path, text) == {
        "sources": "train.py:2: os.environ['CUDA_VISIBLE_DEVICES'] = '3': takes the choice of GPUs from the scheduler "
        "(and 1 more)"
    }


def test_a_project_that_asks_rightly_passes(tmp_path: Path) -> None:
    assert check(tmp_path, "import torch\nassert torch.cuda.is_available()\n") == {}
