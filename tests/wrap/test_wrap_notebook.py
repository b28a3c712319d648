"""``envbuild notebook``: what runs here, what is refused, and what is believed of a server's file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.app.wrap.notebook import _read_server
from tests.wrap.conftest import envbuild, envbuild_apart


def test_here_it_takes_the_place_of_envbuild(project: Path) -> None:
    result = envbuild_apart(project, "notebook", "tiny", "--bind", "/var/log:/logs:ro")
    assert result.code == 7, result.stderr
    words = re.findall(r"^<(.*)>$", result.stdout, re.MULTILINE)
    assert words[words.index("python3") :][:3] == ["python3", "-m", "jupyterlab"]
    assert "--ip=127.0.0.1" in words
    assert "/var/log:/logs:ro" in words
    assert "token" not in result.stdout, "Jupyter makes one by itself, and prints it"


def test_a_dry_run_prints_and_writes_nothing(project: Path) -> None:
    def list_files() -> set[str]:
        return {str(path) for path in project.parent.rglob("*")}

    before = list_files()
    result = envbuild(project, "notebook", "tiny", "--dry-run", "--with", "six")
    assert result.code == 0, result.stderr
    assert "jupyterlab" in result.stdout
    assert {path for path in list_files() - before if "/tmp/envbuild-run" not in path} == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "1"), "job options need --on SITE"),
        (("--jump",), "--json and --jump need --on SITE"),
        (("--json",), "--json and --jump need --on SITE"),
        (("--on", "nowhere"), "there is no site"),
    ],
)
def test_what_does_not_go_together_is_refused(
    project: Path, words: tuple[str, ...], said: str
) -> None:
    result = envbuild(project, "notebook", "tiny", *words)
    assert (result.code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("text", ["", "{", '{"port": "x"}', "[]", "\udcff", "[" * 100_000])
def test_a_server_that_is_not_whole_is_waited_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "runtime").mkdir()
    assert _read_server(tmp_path) is None
    path = tmp_path / "runtime/jpserver-1.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert _read_server(tmp_path) is None
    path.write_text('{"port": 8889, "token": "x", "pid": 1}')
    assert _read_server(tmp_path) is None, "the node's name is not there yet"
    (tmp_path / "node").write_text("node1\n")
    assert _read_server(tmp_path) == ("node1", 8889)
