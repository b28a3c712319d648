"""``envbuild check`` from the command line, with the container runtime replaced by a local Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from envbuild.check.reports import report as reports
from envbuild.cli.check import command
from envbuild.cli.list_ import command as list_command
from envbuild.context import Context
from envbuild.errors import CheckFailedError, UsageError
from envbuild.settings import Settings
from tests.base.siffiles import Object, partition, write_sif
from tests.check.tree import DIGEST, Tree
from tests.support import quiet_context


@pytest.fixture
def context(user_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Return a context whose images are all one healthy tree."""
    tree = Tree(tmp_path / "tree").install("tqdm", "4", {"tqdm.py": ""})
    monkeypatch.setattr("envbuild.runtime_search.find_runtime", lambda *_: tree)
    monkeypatch.setattr("envbuild.formats.sif_reader.image_digest", lambda *_, **__: DIGEST)
    monkeypatch.setattr("envbuild.check.perform.gpu_present", lambda: False)
    write_sif(tmp_path / "thing.sif", [partition()])
    (tmp_path / "recipes").mkdir()
    text = '[recipe]\nname = "thing"\n[base]\nbootstrap = "debian:bookworm"\n[python]\ndependencies = ["%s"]\n'
    (tmp_path / "recipes/thing.toml").write_text(text % "tqdm")
    (tmp_path / "recipes/broken.toml").write_text(
        text.replace("thing", "broken") % "nobody-has-this"
    )
    write_sif(tmp_path / "broken.sif", [partition()])
    return quiet_context(user_settings)


def run(context: Context, *arguments: str) -> str:
    result = CliRunner().invoke(
        command, arguments, obj=context, catch_exceptions=False, standalone_mode=False
    )
    if result.exception:
        raise result.exception
    return result.stdout


def test_a_healthy_image_prints_its_table_and_keeps_the_verdict(context: Context) -> None:
    assert (
        run(context, "thing")
        .splitlines()[-1]
        .endswith("thing.sif: passed (9 passed, 0 failed, 13 skipped)")
    )
    kept = reports.find_last_report(DIGEST, context.store)
    assert kept is not None
    assert kept.verdict == "passed"


def test_an_image_on_its_own_needs_no_recipe(context: Context) -> None:
    data = json.loads(run(context, "./thing.sif", "--json"))
    assert "locked-versions" not in [finding["check"] for finding in data["findings"]]
    assert data["verdict"] == "passed"


def test_a_failed_check_prints_its_report_and_is_an_error(
    context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckFailedError) as told:
        command.main(["broken"], obj=context, standalone_mode=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "X FAILED direct dependencies import nobody-has-this is not installed" in lines
    assert told.value.what == "the check failed: direct-imports"
    assert told.value.code == 1


def test_a_gpu_can_be_required(context: Context) -> None:
    run(context, "thing")
    with pytest.raises(
        CheckFailedError, match="no GPU was checked: this machine has no NVIDIA driver"
    ) as told:
        run(context, "thing", "--require-gpu")
    assert (
        told.value.hint
        == "check it on a node with a GPU: envbuild check NAME --require-gpu --on SITE"
    )
    kept = reports.find_last_report(DIGEST, context.store)
    assert kept is not None
    assert kept.verdict == "passed"


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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([partition(file_system=5)], "is encrypted"),
        ([partition(arch=b"04\0")], "is for aarch64, but this machine is x86_64"),
        ([], "has no root file system (no primary partition)"),
    ],
    ids=["encrypted", "another architecture", "no root"],
)
def test_an_image_that_cannot_run_here_is_refused_before_anything_runs(
    content: list[Object], told: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    arch = b"04\0" if "aarch64" in told else b"02\0"
    path = write_sif(context.settings.cwd / "odd.sif", content, arch=arch)
    with pytest.raises(UsageError) as caught:
        run(context, "./odd.sif")
    assert caught.value.what == told
    assert caught.value.where == str(path)
    assert reports.find_last_report(DIGEST, context.store) is None


def test_a_file_that_is_no_image(context: Context) -> None:
    (context.settings.cwd / "odd.sif").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"odd\.sif"):
        run(context, "./odd.sif")


def listed(context: Context) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(list_command, ["--json"], obj=context, catch_exceptions=False)
    return {row["recipe"]: row for row in json.loads(result.stdout)}


def test_an_image_without_a_recipe_is_listed(context: Context) -> None:
    """As an image of a shelf is, made in a folder of its own."""
    (context.settings.cwd / "thing.sif").rename(context.settings.cwd / "taken.sif")
    row = listed(context)["taken"]
    assert (row["lock"], row["summary"]) == ("-", "no recipe here")
    assert row["image-size"] > 0


def test_the_last_verdict_is_listed_by_what_the_image_holds(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict belongs to the image digest: another file under the name has none, the same one elsewhere has it."""
    assert listed(context)["thing"]["verdict"] is None
    assert listed(context)["thing"]["lock"] == "none"
    run(context, "thing")
    assert listed(context)["thing"]["verdict"] == "passed"
    with pytest.raises(CheckFailedError, match="direct-imports"):
        run(context, "broken")
    assert listed(context)["broken"]["verdict"] == "failed"
    monkeypatch.setattr(
        "envbuild.formats.sif_reader.image_digest", lambda *_, **__: DIGEST[:-1] + "1"
    )
    write_sif(context.settings.cwd / "thing.sif", [partition(b"hsqs another root")])
    assert listed(context)["thing"]["verdict"] is None
    (context.settings.cwd / "thing.sif").unlink()
    assert listed(context)["thing"]["image"] == "none"
    assert listed(context)["thing"]["image-size"] is None
