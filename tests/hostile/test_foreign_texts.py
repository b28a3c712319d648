"""Texts of strangers that are short and take gigabytes, hours or the whole process: YAML, logs, batch scripts."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.base.facts import load_facts
from envbuild.check.checks.sources import survey_project
from envbuild.check.explain import explain_log, load_rules
from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.job.lint.lint import lint_script
from envbuild.project.conda.locked_lists import read_conda_list
from envbuild.project.gather import gather_findings
from envbuild.project.images.dockerfile import read_dockerfile
from envbuild.yaml import parse_yaml

BEGINS_WITH_A_RUN = re.compile(r'(?:^|\(\?P<\w+>|")(?:\(\?P<\w+>)?(?:\[[^\]]*\]|\\[SwW]|\.)[+*]')


def grow(step: str, levels: int, first: str = "[x, x]") -> str:
    """Return tables of which each names the one before several times."""
    lines = [f"a0: &a0 {first}"]
    lines += [
        f"a{level}: &a{level} {step.replace('@', f'*a{level - 1}')}" for level in range(1, levels)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        grow("[@, @, @, @, @, @, @, @, @]", 12),
        grow("{b: @, c: @, d: @}", 30),
        f"a: &a {'x' * 70_000}\nb: [{'*a, ' * 1000}]\n",
        "a: &a [*a]\n",
    ],
    ids=["lists", "tables", "one long text", "itself"],
)
def test_aliases_that_unfold_to_gigabytes(text: str) -> None:
    with pytest.raises(UsageError, match="aliases"):
        parse_yaml(text, "environment.yml")


def test_aliases_that_nest_without_end_in_the_text() -> None:
    lines = ["k: &a0 []", *(f"k: &a{n} [*a{n - 1}]" for n in range(1, 5000))]
    with pytest.raises(UsageError, match="100 lists in each other"):
        parse_yaml("\n".join(lines), "environment.yml")


def test_a_few_aliases_are_taken() -> None:
    data = parse_yaml("a: &a [six, idna]\nb: {c: *a, d: *a}\n", "environment.yml")
    assert data["b"] == {"c": ["six", "idna"], "d": ["six", "idna"]}


def test_merged_tables_are_not_merged() -> None:
    """Merging takes time that doubles with each level."""
    data = parse_yaml(grow("{<<: [@, @]}", 19, first="{x: 1}"), "environment.yml")
    assert list(data["a1"]) == ["<<"]


@pytest.mark.parametrize("number", ["1" + ":1" * 100_000, "9" * 100_000, "0x" + "f" * 9999, "3.10"])
def test_numbers_stay_texts(number: str) -> None:
    assert parse_yaml(f"a: {number}", "environment.yml") == {"a": number}


@pytest.mark.parametrize(
    "value",
    ["!!int 1:1", "!!bool x", "!!merge x", "!!python/object/apply:os.getcwd []", "!!set {a}"],
)
def test_other_types_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        parse_yaml(f"a: {value}", "environment.yml")


@pytest.mark.parametrize("sign", ["[", "- ", "{a: "])
def test_depth_does_not_end_the_process(sign: str) -> None:
    code = "import sys; from envbuild.yaml import parse_yaml; parse_yaml(sys.stdin.read(), 'a')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        input=sign * 100_000,
        capture_output=True,
        text=True,
    )
    # libyaml refuses some depths itself from 0.2.6 on
    assert ran.returncode == 1
    assert "envbuild.errors.UsageError: a" in ran.stderr


def test_a_pipe_in_the_place_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "pixi.lock").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="is no plain file"):
        read_conda_list(tmp_path / "pixi.lock", "linux-64")


def test_a_hash_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(
        "package:\n- platform: linux-64\n  manager: conda\n  hash: {sha256: [1], md5: {a: b}}\n"
        "  url: https://mirror.invalid/forge/linux-64/a-1-0.conda\n"
    )
    assert read_conda_list(path, "linux-64").archives[0].sha256 is None


def test_no_rule_is_tried_at_each_sign_of_a_long_word() -> None:
    """A log of 8 MB took a quarter of an hour: such a rule looks at the rest of a line from each sign of it."""
    rules = {rule.name: rule.pattern for rule in load_rules()}
    assert not [name for name, pattern in rules.items() if BEGINS_WITH_A_RUN.match(pattern)]
    assert not [name for name, pattern in rules.items() if pattern.startswith("(?:FATAL")]


def test_the_runtimes_failures_are_found_behind_any_word_of_error() -> None:
    line = 'ERROR  : FATAL ERROR: "tool": executable file not found in $PATH'
    found = explain_log([f"a\n{line}\nb\n"]).known
    assert [(known.text, known.line) for known in found] == [(line, 2)]


@pytest.mark.parametrize(
    "line", ["SBATCH --time=N", "SBATCH -n N", "SBATCH --mem=N", "PBS -l mem=N", "$ -l h_rt=N"]
)
def test_a_number_of_thousands_of_digits(line: str) -> None:
    lint_script(f"#!/bin/bash\n#{line.replace('N', '9' * 5000)}\nsrun python train.py\n")


def test_variables_of_a_dockerfile_that_double() -> None:
    lines = [f"ARG A{level}=$A{level - 1}$A{level - 1}" for level in range(1, 40)]
    with pytest.raises(IntegrityError, match="the variables of a Dockerfile"):
        read_dockerfile("\n".join(["ARG A0=aaaaaaaaaa", "FROM scratch", *lines]))


def test_stages_of_a_dockerfile_without_end() -> None:
    with pytest.raises(UsageError, match="stages"):
        read_dockerfile("FROM scratch AS a\n" * 100_000)


def test_brackets_of_a_requirement(tmp_path: Path) -> None:
    line = f"six; {'(' * 5000}python_version > '3'{')' * 5000}"
    (tmp_path / "requirements.txt").write_text(f"{line}\nidna\n")
    (found,) = gather_findings(tmp_path).all_findings
    assert [one.name for one in found.requirements] == ["idna"]


@pytest.mark.parametrize(
    "words",
    [
        "import pandas\n",
        "import pandas read_excel(",
        "transformers\n",
        "from torch import ",
        "from torch.utils import ",
        "torch.utils.cpp_extension import ",
        "\n",
    ],
)
def test_code_that_begins_a_rule_again_and_again(words: str, tmp_path: Path) -> None:
    """Rules that looked at the rest of the file from each of its beginnings took hours for 1 MB."""
    (tmp_path / "train.py").write_text(words * (1_000_000 // len(words)))
    gather_findings(tmp_path)
    survey_project(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", 'FROM scratch\nENV A="@'),
        ("a.def", "Bootstrap: docker\nFrom: x\n%post\n pip install @\n"),
        ("README.md", "```sh\npip install @\n```\n"),
    ],
)
def test_a_word_of_megabytes(name: str, text: str, tmp_path: Path) -> None:
    """Shlex copies a word for each of its letters: four million took hours."""
    (tmp_path / "train.py").write_text("import six\n")
    (tmp_path / name).write_text(text.replace("@", "a" * 3_000_000))
    gather_findings(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "endless", "large"])
def test_a_facts_file_that_is_none(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 36)
    with pytest.raises(UsageError, match=r"plain file|too large"):
        load_facts(path)


N = 1_000_000
LONG = {
    "blanks of a requirement": ("requirements.txt", "a" + " " * N + "b"),
    "empty lines of a list": ("requirements.txt", "\n" * N + "six==1"),
    "commas of pip-compile": ("requirements.txt", "a==1\n  # via " + "," * N),
    "hyphens of a word": ("requirements.txt", "a-" * (N // 2)),
    "addresses in one word": ("requirements.txt", "https://" * (N // 8)),
    "empty lines of a definition": ("Singularity.def", "\n" * N),
    "an option of FROM": ("Dockerfile", "FROM a\nFROM " + "-" * N),
    "commands that fetch": ("Dockerfile", "FROM a\nRUN " + "wget " * (N // 5)),
    "commands that remove": ("Dockerfile", "FROM a\nRUN " + "rm " * (N // 3)),
    "names that are fetched": (
        "Dockerfile",
        "FROM a\n" + "".join(f"RUN wget http://x/a{n}.tar\nRUN do {n}\n" for n in range(N // 40)),
    ),
    "brackets of a README": ("README.md", "[" * N),
    "blanks of a README": ("README.md", "- torch " + " " * N + "x"),
    "installing lines of a README": ("README.md", "```\n" + "pip install " * (N // 12) + "\n```\n"),
    "blanks of a script": ("install.sh", " " * N + "x"),
    "blanks of an environment": (
        "environment.yml",
        "dependencies:\n- pip: 'a" + " " * N + "1'\n",
    ),
}
"""Files of a project, a megabyte each, in which a rule begins again and again."""


@pytest.mark.parametrize("name", LONG)
def test_a_file_of_a_project_is_read_in_a_minute(name: str, tmp_path: Path) -> None:
    file, text = LONG[name]
    (tmp_path / file).write_text(text, "utf-8")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # the kernel ends what takes longer, a search of `re` as well
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            with contextlib.suppress(EnvbuildError):
                gather_findings(tmp_path)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
