"""``envbuild site`` from the command line, and a site's facts for ``check --for``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.app.job.remote import target_of_site
from envbuild.app.site import find_site
from envbuild.cli import run_cli
from envbuild.errors import UsageError
from envbuild.settings import Settings, load_settings
from tests.support import quiet_context


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path


def client(here: Path, name: str, text: str) -> None:
    (here / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (here / "bin" / name).chmod(0o755)


@pytest.mark.usefixtures("here")
def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["site", "list", "--json"]) == 0
    rows = {row["site"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["abci2"]["summary"].endswith("(closed 2024-10-31)")
    assert run_cli(["site", "show", "amane"]) == 0
    assert capsys.readouterr().out.startswith('[site]\nname = "amane"\n')
    assert run_cli(["site", "show", "nosuch"]) == 2


def test_one_broken_file_switches_off_no_other(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "sites").mkdir()
    (here / "sites/broken.toml").write_text("x = [")
    run_cli(["site", "show", "local"])
    (here / "sites/mine.toml").write_text(capsys.readouterr().out.replace('"local"', '"mine"', 1))
    assert run_cli(["site", "list"]) == 0
    told = capsys.readouterr()
    assert "site broken is left out: sites/broken.toml, at its end: is not valid TOML" in told.err
    assert "mine" in told.out
    assert "broken" not in told.out
    assert find_site(None, quiet_context(load_settings())).name == "mine", (
        "the only readable one is meant"
    )
    assert run_cli(["site", "show", "broken"]) == 2
    assert "envbuild: error: sites/broken.toml" in capsys.readouterr().err


def test_init_writes_what_the_scheduler_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client(here, "sbatch", "echo slurm 23.11.4")
    client(here, "sinfo", "echo 'gpu*|infinite|gpu:4|2'")
    assert run_cli(["site", "init", "mine"]) == 0
    assert (
        'gpu = "gres"\nmemory = "mem"\ngpus-per-node = 4' in (here / "sites/mine.toml").read_text()
    )
    assert "found slurm 23.11.4" in capsys.readouterr().err
    assert run_cli(["site", "init", "mine"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run_cli(["job", "x", "--", "true"]) == 2
    assert "which site" not in capsys.readouterr().err, "the only own site is meant"


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        (
            {
                "qstat": "echo SGE 8.1.9",
                "qconf": "echo 'error: commlib error: got select error' >&2; exit 1",
            },
            "qconf: SGE 8.1.9 is installed here, but does not answer: error: commlib error",
        ),
        (
            {"sbatch": "echo slurm 23.11.4", "sinfo": "echo 'sinfo: fatal: no server'; exit 1"},
            "sinfo: slurm 23.11.4 is installed here, but does not answer: sinfo: fatal: no server",
        ),
    ],
)
def test_init_where_a_client_has_no_server(
    programs: dict[str, str], told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in programs.items():
        client(here, name, text)
    assert run_cli(["site", "init", "mine"]) == 7
    assert told in capsys.readouterr().err
    assert not (here / "sites").exists()


SITE = """
[site]
name = "lab"
scheduler = "slurm"

[host]
driver = "525.60.13"
glibc = "2.38"

[[gpu]]
name = "NVIDIA H100 80GB HBM3"
capability = 90
"""


def test_bases_are_suggested_for_a_site(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["base", "suggest", "--framework", "torch", "--site", "amane"]) == 0
    told = capsys.readouterr()
    assert "amane: Tesla V100S-PCIE-32GB, driver 450.80.02" in told.err
    assert told.out.startswith('1. bootstrap = "debian:bookworm", framework = "torch==2.0.*"')
    assert "machine code for Tesla V100S-PCIE-32GB (compute capability 7.0)" in told.out
    (here / "sites").mkdir()
    (here / "sites" / "lab.toml").write_text(SITE)
    assert run_cli(["base", "suggest", "--framework", "torch", "--site", "lab", "--all"]) == 0
    told = capsys.readouterr()
    assert "CUDA 12" in told.out
    assert "needs a newer driver than 525.60.13" in told.out
    assert "glibc 2.36 is older than the node's 2.38: CUDA runs" in told.out
    assert (
        run_cli(
            ["base", "suggest", "--framework", "torch", "--site", "lab", "--driver", "450.80.02"]
        )
        == 0
    )
    assert "CUDA 11" in capsys.readouterr().out
    assert run_cli(["base", "suggest", "--site", "plai"]) == 2
    assert "its file has no facts about its nodes" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_init_without_a_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["site", "init", "mine"]) == 7
    assert "no scheduler answers here" in capsys.readouterr().err
    assert run_cli(["site", "init", "../mine"]) == 2


@pytest.mark.usefixtures("here")
def test_a_shipped_site_is_not_probed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["site", "probe", "--on", "amane"]) == 2
    assert "envbuild site show amane > sites/amane.toml" in capsys.readouterr().err


def test_a_site_as_the_target_of_a_check(user_settings: Settings) -> None:
    context = quiet_context(user_settings)
    assert str(target_of_site("amane", context)) == "Tesla V100S-PCIE-32GB, driver 450.80.02"
    assert target_of_site("alliance-cedar:p100", context).capability == 60
    for text, message in (
        ("alliance-cedar", "which GPU?"),
        ("amane:A100", 'no GPU of "A100" is known; known: Tesla V100S-PCIE-32GB'),
        ("plai", "its file has no facts about its nodes"),
    ):
        with pytest.raises(UsageError) as told:
            target_of_site(text, context)
        assert told.value.what == message
