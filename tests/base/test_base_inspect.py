"""``envbuild base inspect`` for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuild.base.facts import keep_facts, load_facts
from envbuild.base.model import AptPackage, BaseFacts, Dist
from envbuild.base.sources import SOURCES
from envbuild.cli.base import command, describe_facts
from envbuild.context import Context, open_context
from envbuild.errors import UsageError
from envbuild.formats.sif_reader import image_digest
from envbuild.names import BASE_KINDS
from envbuild.progress import Silent
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.base.siffiles import partition, write_sif
from tests.support import ScriptedRunner

FACTS = BaseFacts(
    image="base.sif",
    python="3.11.2",
    machine="x86_64",
    glibc="2.36",
    digest="sha256:" + "1" * 64,
    created="2026-07-11",
    size=84197376,
    distro="debian 12",
    python_path="/usr/bin/python3",
    abi="cp311",
    externally_managed=True,
    cuda="12.2",
    cudnn="8.9.4.25",
    framework="tensorflow 2.15.1",
    built_for={"cudnn": "8", "cuda": "12.2"},
    apt=(AptPackage(name="libc6", version="2.36-9", architecture="amd64"),),
    constraints="numpy<2\nkeras==2.15\n",
    stubs=("/usr/local/cuda/lib64/stubs/libcuda.so",),
    dists=(
        Dist(name="numpy", version="1.26.4"),
        Dist(name="odd\x1b[31m", version="1", note="no RECORD"),
    ),
)
TABLE = f"""\
base:            base.sif
digest:          sha256:{"1" * 64}
created:         2026-07-11
size:            84.2 MB
system:          debian 12, x86_64, glibc 2.36
Python:          3.11.2 cp311 /usr/bin/python3 (externally managed, PEP 668)
framework:       tensorflow 2.15.1
built for:       cuda 12.2, cudnn 8
CUDA:            12.2
cuDNN:           8.9.4.25
NCCL:            none
libcuda stub:    /usr/local/cuda/lib64/stubs/libcuda.so
Debian packages: 1
pip constraints: 2 lines

distributions (2):
  numpy     1.26.4
  odd?[31m  1  (no RECORD)
"""


def test_the_table_for_people() -> None:
    assert describe_facts(FACTS) == TABLE


def test_a_table_of_the_least_facts() -> None:
    assert describe_facts(
        BaseFacts(image="x", python="3.8.10", machine="x86_64", glibc="2.31")
    ) == (
        "base:            x\n"
        "system:          unknown, x86_64, glibc 2.31\n"
        "Python:          3.8.10\n"
        "framework:       none\n"
        "CUDA:            none\n"
        "cuDNN:           none\n"
        "NCCL:            none\n"
    )


@pytest.fixture
def context(user_settings: Settings, tmp_path: Path) -> Context:
    image = write_sif(tmp_path / "base.sif", [partition()])
    keep_facts(FACTS, image_digest(image), Store(user_settings.store))
    return open_context(user_settings, ScriptedRunner({}), Silent())


def test_the_json_is_a_facts_file(context: Context, tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        command, ["inspect", "base.sif", "--json"], obj=context, catch_exceptions=False
    )
    assert answer.exit_code == 0
    (tmp_path / "facts.json").write_text(answer.output)
    assert load_facts(tmp_path / "facts.json") == FACTS
    assert list(json.loads(answer.output)) == sorted(json.loads(answer.output))


def test_the_verb_prints_the_table(context: Context) -> None:
    answer = CliRunner().invoke(
        command, ["inspect", "base.sif"], obj=context, catch_exceptions=False
    )
    assert answer.output == TABLE


def test_a_bad_reference_is_raised_for_the_command_line_to_tell(context: Context) -> None:
    with pytest.raises(UsageError, match="is not the name of an image"):
        CliRunner().invoke(
            command, ["inspect", "docker://X/y"], obj=context, catch_exceptions=False
        )


def test_every_kind_of_reference_has_a_source() -> None:
    assert set(SOURCES) == set(BASE_KINDS)
