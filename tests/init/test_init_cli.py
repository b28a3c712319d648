"""init on the command line: what is written, asked and refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from envbuild.cli.context import make_context
from envbuild.cli.init import command
from envbuild.errors import UsageError
from envbuild.recipe.read import read_recipe
from tests.init.projects import DUMP, TORCH, UNIVERSITY, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write(tmp_path / "course", UNIVERSITY)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    return folder


def run(*arguments: str, answers: str | None = None) -> Result:
    context = make_context(verbose=0, quiet=True, color="never")
    return CliRunner().invoke(command, arguments, obj=context, input=answers)


def test_writes_a_recipe_that_can_be_read(project: Path) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    recipe, text = read_recipe(project / "recipes/course.toml")
    assert recipe.base.image == "docker://tensorflow/tensorflow:2.1.0-gpu-py3"
    assert recipe.python.dependencies == (
        "keras", "keras-bert", "matplotlib", "pydot", "scikit-learn", "sentencepiece", "transformers",
    )  # fmt: skip
    assert text.startswith(
        "# Drafted by envbuild init from requirements.txt and the imports of 1 file."
    )
    assert "7 direct dependencies on docker://tensorflow/tensorflow:2.1.0-gpu-py3" in result.output
    assert result.output.endswith("next: look it over, then: envbuild lock course\n")


def test_overwrites_nothing_silently(project: Path) -> None:
    write(project, {"recipes/course.toml": "mine"})
    result = run()
    assert isinstance(result.exception, UsageError)
    assert result.exception.what == "already exists, and was not changed"
    assert (project / "recipes/course.toml").read_text() == "mine"
    result = run("--force")
    assert result.exit_code == 0
    assert "course.toml is replaced" in result.output
    assert (project / "recipes/course.toml").read_text() != "mine"


def test_dry_run_writes_nothing(project: Path) -> None:
    result = run("--dry-run", "--name", "other")
    assert 'name = "other"' in result.output
    assert "envbuild lock other" in result.output
    assert not (project / "recipes").exists()


def test_json_tells_what_was_drafted(project: Path) -> None:
    dry = json.loads(run("--offline", "--json", "--dry-run").stdout)
    assert not (project / "recipes").exists()
    told = json.loads(run("--offline", "--json").stdout)
    assert told == dry
    assert Path(told["file"]).read_text("utf-8") == told["text"]
    recipe, _ = read_recipe(Path(told["file"]))
    assert told["requirements"] == list(recipe.python.dependencies)
    assert told["framework"] == recipe.base.framework


def test_asks_only_on_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {**TORCH, "requirements.txt": "torch>=2.4,<2.6\nnumpy\n"})
    (project / "pyproject.toml").unlink()
    (project / "train.py").unlink()
    monkeypatch.setattr("envbuild.cli.init._is_terminal", lambda: True)
    result = run(answers="n\nn\nn\n")
    assert "start from debian:bookworm with torch==2.5.*? [Y/n]: n" in result.output
    assert (
        "add what the code imports and no list names: opencv-python-headless, pillow, pyyaml? [Y/n]: n"
        in result.output
    )
    recipe, text = read_recipe(project / "recipes/course.toml")
    assert (recipe.base.framework, recipe.base.cpu) == (None, False)
    assert "torch<2.6,>=2.4" in recipe.python.dependencies, (
        "refused by lock, not silently for the CPU"
    )
    assert "base suggest --framework torch; for the CPU: cpu = true" in text
    assert "pillow" not in recipe.python.dependencies
    assert run("--force", answers="n\nn\ny\n").exit_code == 0
    recipe, _ = read_recipe(project / "recipes/course.toml")
    assert (recipe.base.cpu, recipe.job.gpus) == (True, None)
    assert run("--yes", "--force").exit_code == 0
    recipe, _ = read_recipe(project / "recipes/course.toml")
    assert recipe.base.framework == "torch==2.5.*"
    assert "pillow" in recipe.python.dependencies


def test_an_index_that_does_not_answer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {"requirements.txt": DUMP, "train.py": "import keras_bert\n"})
    monkeypatch.setenv("ENVBUILD_INDEX", (project / "no-index").as_uri())
    result = run("--offline")
    assert result.exit_code == 0, result.output
    recipe, text = read_recipe(project / "recipes/course.toml")
    assert "keras-bert==0.80.0" in recipe.python.dependencies
    assert "by a list of packages that others usually bring; look it over" in text


def test_a_place_that_is_not_there(project: Path) -> None:
    result = run("nowhere")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"{project / 'nowhere'}: there is no such file or folder"


def test_a_name_that_leaves_the_folder(project: Path) -> None:
    result = run("--name", "../x")
    assert isinstance(result.exception, UsageError)
    assert "../x" in str(result.exception)
    assert not (project.parent / "x.toml").exists()


def test_keras_alone_gets_a_backend_and_compiled_code_its_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(
        tmp_path / "course", {"requirements.txt": "keras\n", "train.py": "import keras\n"}
    )
    monkeypatch.chdir(folder)
    assert run("--yes").exit_code == 0
    recipe, _ = read_recipe(folder / "recipes/course.toml")
    assert (recipe.base.framework or "").startswith("tensorflow[and-cuda]==")
    assert recipe.job.gpus == 1
    assert recipe.system.packages == ()
    write(
        folder,
        {
            "requirements.txt": "torch\n",
            "train.py": "import torch\n\n@torch.compile\ndef f(x): ...\n",
        },
    )
    assert run("--yes", "--force").exit_code == 0
    recipe, _ = read_recipe(folder / "recipes/course.toml")
    assert recipe.system.packages == ("gcc", "g++", "python3-dev")
    write(folder, {"requirements.txt": "numpy\n", "train.py": "# torch.compile\nimport numpy\n"})
    assert run("--yes", "--force").exit_code == 0
    recipe, _ = read_recipe(folder / "recipes/course.toml")
    assert (recipe.job.gpus, recipe.system.packages) == (None, ())


def test_a_base_for_the_driver_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "course", {"requirements.txt": "tensorflow\n"})
    monkeypatch.chdir(folder)
    assert run("--yes", "--offline", "--for", "amane").exit_code == 0
    recipe, _ = read_recipe(folder / "recipes/course.toml")
    assert recipe.target.sites == ("amane",)
    assert recipe.base.framework == "tensorflow[and-cuda]==2.14.*", (
        "the last for CUDA 11, which driver 450 runs"
    )
    write(folder, {"requirements.txt": "tensorflow==2.15.1\n"})
    assert run("--yes", "--offline", "--force", "--site", "amane").exit_code == 0
    recipe, _ = read_recipe(folder / "recipes/course.toml")
    assert recipe.base.framework == "tensorflow[and-cuda]==2.14.*"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.parents[1] / "x")])
def test_only_a_plain_gitignore_is_changed(make: Callable[[Path], None], project: Path) -> None:
    """A copied project may have a link there, to a file of the user's, or a pipe that nobody reads."""
    (project.parent / "x").write_text("mine")
    (project / ".git").mkdir()
    make(project / ".gitignore")
    assert ".gitignore is no plain file" in run("--yes").output
    assert (project.parent / "x").read_text() == "mine"


def test_git_is_told_to_leave_out_images_and_logs(project: Path) -> None:
    assert run("--yes").exit_code == 0
    assert not (project / ".gitignore").exists(), "no repository"
    (project.parent / ".git").mkdir()
    (project / ".gitignore").write_text("data/\n*.sif")
    assert (
        ".gitignore: added *.dev.json, *.dev-*.sqfs, *.sandbox/" in run("--yes", "--force").output
    )
    assert (
        project / ".gitignore"
    ).read_text() == "data/\n*.sif\n*.dev.json\n*.dev-*.sqfs\n*.sandbox/\n/logs/\n"
    assert ".gitignore" not in run("--yes", "--force").output


def test_what_only_conda_has_is_kept_as_conda(tmp_path: Path) -> None:
    packages = "dependencies:\n  - samtools\n  - bioconductor-deseq2\n"
    folder = write(tmp_path / "rna", {"environment.yml": f"channels: [bioconda]\n{packages}"})
    asked = (str(folder), "--offline", "--dry-run")
    kept = run(*asked).output
    assert 'dependencies = ["samtools", "bioconductor-deseq2"]' in kept
    assert "only conda has bioconductor-deseq2; --no-conda takes it apart" in kept
    assert "[conda]" not in run(*asked, "--no-conda").output
    # another list says what the project needs
    write(folder, {"requirements.txt": "numpy\n"})
    assert "[conda]" not in run(*asked).output
