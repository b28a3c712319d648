"""``envbuild check`` from the command line, with the container runtime replaced by a local Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuild.check import report as reports
from envbuild.cli.check import command
from envbuild.cli.context import Context
from envbuild.errors import CheckFailedError, UsageError
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import Settings
from tests.base.siffiles import partition, write_sif
from tests.check.tree import DIGEST, Tree


@pytest.fixture
def context(user_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Return a context whose images are all one healthy tree."""
    tree = Tree(tmp_path / "tree").install("tqdm", "4", {"tqdm.py": ""})
    monkeypatch.setattr("envbuild.runtime.find_runtime", lambda *_: tree)
    monkeypatch.setattr("envbuild.base.siffile.image_digest", lambda _: DIGEST)
    monkeypatch.setattr("envbuild.check.perform.gpu_present", lambda: False)
    write_sif(tmp_path / "thing.sif", [partition()])
    (tmp_path / "recipes").mkdir()
    text = '[recipe]\nname = "thing"\n[base]\nbootstrap = "debian:bookworm"\n[python]\ndependencies = ["%s"]\n'
    (tmp_path / "recipes/thing.toml").write_text(text % "tqdm")
    (tmp_path / "recipes/broken.toml").write_text(text.replace("thing", "broken") % "nobody-has-this")
    write_sif(tmp_path / "broken.sif", [partition()])
    return Context(settings=user_settings, runner=LocalRunner(), report=Silent())


def run(context: Context, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, obj=context, catch_exceptions=False, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.stdout


def test_a_healthy_image_prints_its_table_and_keeps_the_verdict(context: Context) -> None:
    assert run(context, "thing").splitlines()[-1].endswith("thing.sif: passed (7 passed, 0 failed, 11 skipped)")
    kept = reports.last(DIGEST, context.store)
    assert kept is not None
    assert kept.verdict == "passed"


def test_an_image_on_its_own_needs_no_recipe(context: Context) -> None:
    data = json.loads(run(context, "./thing.sif", "--json"))
    assert "locked-versions" not in [finding["check"] for finding in data["findings"]]
    assert data["verdict"] == "passed"


def test_a_failed_check_prints_its_report_and_is_an_error(context: Context, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckFailedError) as told:
        command.main(["broken"], obj=context, standalone_mode=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "X FAILED direct dependencies import nobody-has-this is not installed" in lines
    assert told.value.what == "the check failed: direct-imports"
    assert told.value.code == 1


def test_a_gpu_can_be_required(context: Context) -> None:
    with pytest.raises(CheckFailedError) as told:
        run(context, "thing", "--require-gpu")
    assert told.value.what == "the check failed: driver, devices, architecture, compute"


def test_a_deeper_level_makes_more_checks(context: Context) -> None:
    data = json.loads(run(context, "thing", "--level", "full", "--json"))
    assert data["level"] == "full"
    assert "training" in [finding["check"] for finding in data["findings"]]


def test_the_page_is_written_beside_the_table(context: Context) -> None:
    run(context, "thing", "--html", "report.html")
    text = (context.settings.cwd / "report.html").read_text()
    assert '<h1>thing.sif: <span class="word">passed</span></h1>' in text
    with pytest.raises(UsageError) as told:
        run(context, "thing", "--html", "nowhere/report.html")
    assert told.value.what == "there is no such folder"


def test_an_unknown_card_is_told_before_anything_runs(context: Context) -> None:
    with pytest.raises(UsageError) as told:
        run(context, "thing", "--gpu", "Voodoo 2")
    assert str(told.value).startswith('--gpu: the GPU "Voodoo 2" is not known')
