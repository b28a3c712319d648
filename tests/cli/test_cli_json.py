"""``--json``: standard output holds JSON alone, whatever comes of the verb; keys and numbers are of one style."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.forty import make_place
from envbuild.cli import VERBS, main_group, run_cli

ROOT = Path(__file__).parents[2]
BEGIN = "<!-- keys: written by tests/cli/test_cli_json.py --update-golden -->\n"
END = "<!-- end of keys -->\n"
PAGES = {
    "docs/json.md": "| command | answer | keys |\n",
    "docs/ja/json.md": "| コマンド | 答え | キー |\n",
}
TYPES: dict[type, str] = {list: ": []", dict: ": {}"}
KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MEASURED = {"size", "image-size", "seconds", "count", "days", "jobs", "tasks", "gpus", "files"}
"""Keys whose values are numbers wherever they are a single value."""
ANSWERS = """\
list
status
show torch-mnist
diff lockfiles/torch-mnist.lock torch-mnist
lock torch-mnist --check
make torch-mnist --dry-run
dev torch-mnist
dev torch-mnist --clear
base list --framework jax
base suggest --framework torch
site list
site show tsubame4
shelf list
store path
store du
store gc --dry-run
store verify
explain job.log
job lint job.sh
init --name draft --offline --force
init --name draft --offline --dry-run"""


def verbs_with_json() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main_group)
    waiting = [(name, main_group.get_command(context, name)) for name in VERBS]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{name} {sub.name}", sub) for sub in command.commands.values()]
        elif command and any("--json" in option.opts for option in command.params):
            yield name, command


def missing_names(command: click.Command) -> list[str]:
    """Return a command line on which everything that must be named is named, and does not exist."""
    words = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words.append("no-such")
        elif parameter.required:
            words += [parameter.opts[0], "1"]
    return words


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_place("image", tmp_path)
    (folder / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH --gres=gpu:1\napptainer exec x.sif python train.py\n"
    )
    (folder / "job.log").write_text("CUDA out of memory\n")
    monkeypatch.chdir(folder)
    for name in ("ENVBUILD_SITE", "ENVBUILD_STORE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def faults_of(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if not KEY.fullmatch(name):
                yield f"key {name!r} in {key!r}"
            yield from faults_of(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from faults_of(item, key)
    elif key in MEASURED and isinstance(value, str):
        yield f"{key} = {value!r}"


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("line", ANSWERS.splitlines())
def test_an_answer_is_json_alone(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run_cli([*shlex.split(line), "--json"])
    told = capfd.readouterr()
    assert code == line.startswith("job lint"), told.err  # it finds something
    assert list(faults_of(json.loads(told.out))) == []


@pytest.mark.usefixtures("place")
def test_a_dry_run_counts_the_parts_and_names_them_when_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_cli(["make", "torch-mnist", "--dry-run", "--json"])
    parts = json.loads(capfd.readouterr().out)["parts"]
    run_cli(["make", "torch-mnist", "--dry-run"])
    short = capfd.readouterr()
    head, *rows = short.out.splitlines()
    assert head.split() == ["layer", "kind", "state", "parts"]
    assert len(rows) < 10 < len(parts) == sum(int(row.split()[-1]) for row in rows)
    assert parts[-1]["what"] not in short.err
    run_cli(["make", "torch-mnist", "--dry-run", "-v"])
    told = capfd.readouterr().err
    assert [part["what"] for part in parts if part["what"] not in told] == []


def keys_row(line: str, answer: Any) -> str:
    """Return the row of a command: each key and the JSON type of its value."""
    first = answer[0] if isinstance(answer, list) and answer else answer
    keys = first if isinstance(first, dict) else {}
    signs = [f"`{key}{TYPES.get(type(value), '')}`" for key, value in keys.items()]
    kind = "`[…]`" if isinstance(answer, list) else "`{…}`"
    return f"| `{line}` | {kind} | {', '.join(signs)} |\n"


@pytest.mark.usefixtures("place")
def test_the_pages_name_the_keys(
    capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    rows = []
    for line in ANSWERS.splitlines():
        run_cli([*shlex.split(line), "--json"])
        answer = json.loads(capfd.readouterr().out)
        if answer:
            rows.append(keys_row(line, answer))
    for name, head in PAGES.items():
        page = ROOT / name
        before, rest = page.read_text("utf-8").split(BEGIN)
        table, after = rest.split(END)
        written = "".join([head, "|---|---|---|\n", *rows])
        if request.config.getoption("--update-golden"):
            page.write_text(before + BEGIN + written + END + after, "utf-8")
            continue
        assert table == written, "run pytest tests/cli --update-golden and read the diff"


def test_a_fault_of_style_is_seen() -> None:
    assert list(faults_of({"run_on": [{"size": "3 MB"}]})) == [
        "key 'run_on' in ''",
        "size = '3 MB'",
    ]


NEEDS_NETWORK = {"doctor"}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("name", "command"), [row for row in verbs_with_json() if row[0] not in NEEDS_NETWORK]
)
def test_a_failure_prints_nothing_but_json(
    name: str, command: click.Command, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run_cli([*name.split(), *missing_names(command), "--json"])
    told = capfd.readouterr()
    if told.out:
        assert list(faults_of(json.loads(told.out))) == []
    else:
        assert code in range(1, 9)
        assert told.err.startswith("envbuild: error: ")
