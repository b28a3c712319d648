"""A megabyte of a stranger's text in which a rule begins again and again is read in a minute.

The table has what was found by texts made from what each pattern of the package matches.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.base.probe.distributions import requires_of_egg
from envbuild.build.image.origin import LABEL
from envbuild.check.checks.cures.releases import cure_of_version
from envbuild.check.checks.gpu.devices import _arches
from envbuild.check.checks.sources import survey_project
from envbuild.check.explain import explain_log
from envbuild.conda.choose import denied_license
from envbuild.data.lookup import toolkit_of_library
from envbuild.errors import EnvbuildError
from envbuild.failures import explain_failure
from envbuild.net.index import _require_url
from envbuild.net.simple import PageError, links_of_html
from envbuild.project.conda.environment import conda_cuda
from envbuild.project.conda.locked_lists import is_conda_list
from envbuild.project.draft.propose import _next_pythons
from envbuild.project.gather import gather_findings
from envbuild.recipe.read import read_recipe
from envbuild.recipe.trees import GIT
from envbuild.resolve.setup_py.read import read_setup
from envbuild.resolve.sources.declared import egg_requires, poetry_bounds
from envbuild.run import Result

N = 1_000_000
PAGE = "http://127.0.0.1/simple/a/"


def lines_of(word: str) -> str:
    """Repeat a word in lines as long as are looked at."""
    return (word * (3990 // len(word)) + "\n") * (N // 4000)


def read_page(text: str) -> None:
    with contextlib.suppress(PageError):
        links_of_html(text, PAGE)


def explain(text: str) -> None:
    explain_log([text])


def explain_runtime(text: str) -> None:
    explain_failure(Result(argv=("apptainer",), code=1, stdout="", stderr=text, seconds=1.0))


def survey(text: str) -> None:
    Path("train.py").write_text(text, "utf-8")
    survey_project(Path())


def read_list(text: str) -> None:
    Path("list.txt").write_text(text, "utf-8")
    is_conda_list(Path("list.txt"))


def read_own(text: str) -> None:
    Path("thing.toml").write_text(text, "utf-8")
    read_recipe(Path("thing.toml"))


def gather(name: str) -> Callable[[str], object]:
    def read(text: str) -> None:
        Path(name).write_text(text, "utf-8")
        gather_findings(Path())

    return read


READ: dict[str, tuple[Callable[[str], object], str]] = {
    "tags without end": (read_page, "<a " * (N // 3)),
    "comments without end": (read_page, "<!--" * (N // 4)),
    "quotes without end": (read_page, '<a x="' * (N // 6)),
    "hashes of an address": (read_page, f'<a href="{"#&sh" * 12_000}">x</a>' * (N // 48_000)),
    "calls in code": (survey, "open_dataset(" * (N // 13)),
    "imports in code": (survey, "from numba import " * (N // 18)),
    "blank lines in code": (survey, "(providers=['CUDAExecutionProvider'" + "\n" * N + "x"),
    "shared memory of a log": (explain, lines_of("/dev/shm/.a.a")),
    "networks of a log": (explain, lines_of("NCCL WARN connect")),
    "conda's parts in a log": (explain, lines_of("__cuda ")),
    "mounts of a runtime": (explain_runtime, "mount source " * (N // 13)),
    "releases in an import's error": (cure_of_version, "_a" * (N // 2)),
    "an extra of an egg": (egg_requires, "[" + "/" * N),
    "an extra of an installed egg": (requires_of_egg, "[" + "/" * N),
    "blanks of Poetry's bounds": (poetry_bounds, ">1" + " " * N + "x"),
    "digits of Poetry's bounds": (poetry_bounds, "^1" + ".1" * (N // 2) + "\nx"),
    "blanks of a license": (lambda text: denied_license(text, ("GPL*",)), "MIT" + " " * N + "x"),
    "blank lines of a label": (LABEL.search, "\n" * N + "x"),
    "blanks of a requirement of git": (GIT.fullmatch, "a" + " " * N + "x"),
    "the name of an index's host": (lambda text: _require_url(text, "recipe"), f"https://{'a' * N} x"),
    "blank lines of a conda list": (read_list, "\n" * N + "x"),
    "blank lines of R": (gather("a.R"), "library(x)\n" + "\n" * N + "x"),
    "blanks of a cell": (
        gather("a.ipynb"),
        '{"cells": [{"cell_type": "code", "source": "import six\\n' + " " * N + 'x"}]}',
    ),
    "digits of CUDA's release": (
        gather("environment.yml"),
        "dependencies:\n- six\n- cudatoolkit=" + "1" * N + "\n",
    ),
    "requirements of a recipe": (
        read_own,
        '[recipe]\nname = "thing"\n[base]\nbootstrap = "debian:bookworm"\n[python]\ndependencies = ['
        + ",".join(f'"p{number}"' for number in range(N // 10)) + "]",
    ),
}  # fmt: skip
"""What reads a text, and the text."""


@pytest.mark.parametrize("name", READ)
def test_a_megabyte_is_read_in_a_minute(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, text = READ[name]
    monkeypatch.chdir(tmp_path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # the kernel ends what takes longer, a search of `re` as well
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            with contextlib.suppress(EnvbuildError):
                read(text)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


DIGITS = "1" * 5000
SETUP = f"from setuptools import setup\nn = 0x{'f' * 5000}\nsetup(name='a', install_requires=[f'a=={{n}}'])"
NUMBERS: dict[str, Callable[[], object]] = {
    "Poetry's bounds": lambda: poetry_bounds(f"^{DIGITS}"),
    "a capability": lambda: _arches((f"sm_{DIGITS}",), "sm"),
    "a library": lambda: toolkit_of_library(f"libcudart.so.{DIGITS}"),
    "an import's error": lambda: cure_of_version(f"NumPy {DIGITS}.1 or less"),
    "a Python of a project": lambda: _next_pythons(f"==3.{DIGITS}"),
    "a setup.py": lambda: read_setup(SETUP, {}),
    "CUDA in conda": lambda: conda_cuda("cudatoolkit", f"={DIGITS}.1"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_longer_than_int_reads(name: str) -> None:
    """``int`` raises ValueError over more than 4300 digits, which nobody expects."""
    NUMBERS[name]()
