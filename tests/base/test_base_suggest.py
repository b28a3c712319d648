"""base suggest: the catalogue filtered by what a base must do, with reasons; rows with a known defect are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from envbuild.base.catalogue import catalogue_entries
from envbuild.base.gpu_names import capability_of
from envbuild.base.reference import parse_reference
from envbuild.base.suggest import (
    BaseMatch,
    BaseQuery,
    base_driver,
    framework_name,
    has_code_for,
    suggest_bases,
)
from envbuild.cli.base import command as base_command
from envbuild.cli.base import describe_matches
from envbuild.cli.context import make_context
from envbuild.context import Context
from envbuild.data.tables import load_catalogue
from envbuild.errors import NoSolutionError, UsageError
from tests.support import Golden


def best(**wish: Any) -> BaseMatch:
    choices, _ = suggest_bases(BaseQuery(**wish))
    return choices[0]


def test_every_base_of_the_catalogue_can_be_written_into_a_recipe() -> None:
    for entry in catalogue_entries():
        assert parse_reference(entry.reference).kind.is_portable
        assert entry.source
        if entry.is_bootstrap:
            assert entry.requirement, entry
    assert len({entry.reference for entry in catalogue_entries() if not entry.is_bootstrap}) == len(
        load_catalogue().image
    )


def test_every_distribution_has_a_glibc() -> None:
    for entry in catalogue_entries():
        assert entry.glibc, f"{entry.reference}: {entry.distro}"


def test_the_university_case() -> None:
    choice = best(framework="tensorflow-gpu==2.1.0")
    assert choice.entry.reference == "docker://tensorflow/tensorflow:2.1.0-gpu-py3"
    assert choice.entry.python == "3.6.9"
    assert choice.driver == "418.39"


def test_a_driver_of_the_time_of_cuda_11_gets_a_framework_built_for_11() -> None:
    choices, _ = suggest_bases(BaseQuery(framework="torch", gpu="A100", driver="450.80.02"))
    assert choices[0].entry.reference == "debian:bookworm"
    assert choices[0].framework == "torch==2.0.*"
    for choice in choices:
        assert (choice.entry.cuda or "").startswith("11")


def test_the_newest_cuda_is_proposed_only_for_a_driver_that_is_known_to_do() -> None:
    plain, newest = best(framework="torch"), best(framework="torch", driver="595.45.04")
    assert (plain.entry.cuda or "").partition(".")[0] == "12"
    assert (newest.entry.cuda or "").partition(".")[0] == "13"


def test_a_release_that_was_asked_for_is_written_exactly() -> None:
    assert best(framework="torch==2.5.1").framework == "torch==2.5.1"
    assert best(framework="torch>=2.4,<2.6").framework == "torch==2.5.*"
    assert best(framework="tensorflow==2.15").framework == "tensorflow[and-cuda]==2.15.*"


def test_a_known_defect_comes_last_and_is_told() -> None:
    choices, _ = suggest_bases(BaseQuery(framework="tensorflow==2.18.0"))
    broken = [choice for choice in choices if choice.entry.defect]
    assert broken
    assert choices[-len(broken) :] == tuple(broken)
    assert any("cuDNN 9.3" in caution for caution in broken[0].cautions)


def test_the_release_with_code_for_one_gpu_only() -> None:
    row = next(entry for entry in catalogue_entries() if "1.12.3-gpu-py3" in entry.reference)
    assert row.defect
    assert has_code_for(row, 37)
    assert row.build
    assert row.build.sass == (37,)
    assert not has_code_for(row, 70)


def test_portable_code_needs_the_driver_of_its_own_toolkit() -> None:
    """TensorFlow 2.4 to 2.10 have machine code up to 8.0; on an H100 only the driver of 11.2 or newer compiles it."""
    row = next(
        entry
        for entry in catalogue_entries()
        if entry.reference == "docker://tensorflow/tensorflow:2.10.0-gpu"
    )
    assert base_driver(row, 80) == "450.80.02"
    assert base_driver(row, 90) == "460.27.03"


def test_an_old_python_leads_to_an_image() -> None:
    choice = best(framework="torch>=1.8", python="3.7")
    assert (choice.entry.reference, choice.entry.python) == (
        "docker://pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime",
        "3.7",
    )


def test_glibc_and_cuda_are_filters() -> None:
    choices, refusals = suggest_bases(BaseQuery(framework="torch", glibc="2.36", cuda="12.4"))
    assert {choice.entry.glibc for choice in choices} <= {"2.36", "2.39", "2.41"}
    assert {(choice.entry.cuda or "")[:4] for choice in choices} == {"12.4"}
    assert "its glibc is older than 2.36" in dict(refusals.counts)


def test_everything_is_either_proposed_or_counted() -> None:
    choices, refusals = suggest_bases(BaseQuery(framework="tensorflow", gpu="T4"))
    assert len(choices) + sum(count for _, count in refusals.counts) == len(catalogue_entries())


@pytest.mark.parametrize(
    ("gpu", "capability"),
    [
        ("A100", 80),
        ("a100", 80),
        ("8.0", 80),
        ("86", 86),
        ("sm_90", 90),
        ("B200", 100),
        ("12.0", 120),
    ],
)
def test_gpus_by_name_and_number(gpu: str, capability: int) -> None:
    assert capability_of(gpu) == capability


def test_frameworks_by_the_names_people_use() -> None:
    assert framework_name("tensorflow-gpu==2.1") == "tensorflow"
    assert framework_name("PyTorch") == "torch"
    assert framework_name("numpy") is None


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"gpu": "A1001"}, 'the GPU "A1001" is not known; did you mean "A100"?'),
        ({"framework": "numpy"}, "the catalogue knows no framework 'numpy'"),
        (
            {"framework": "torch>>2"},
            "--framework torch>>2: write a name with bounds, such as torch>=2.1",
        ),
        ({"driver": "new"}, "--driver new: write a version such as 12.1"),
        (
            {"python": ">=x"},
            "--python >=x: write a version such as 3.10, or bounds such as >=3.8,<3.11",
        ),
    ],
)
def test_wrong_wishes(wish: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        suggest_bases(BaseQuery(**wish))
    assert caught.value.what == told


def test_the_table_for_people(golden: Golden) -> None:
    choices, refusals = suggest_bases(BaseQuery(framework="tensorflow==2.1.0"))
    golden("init/suggest.txt", describe_matches(choices, len(choices), refusals))


def _context() -> Context:
    return make_context(verbose=0, quiet=True, color="never")


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(
        base_command, ["suggest", "--framework", "torch", "--driver", "300"], obj=_context()
    )
    assert isinstance(run.exception, NoSolutionError)
    assert "needs a newer driver than 300 (" in run.exception.what


def test_list_shows_what_a_framework_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(base_command, ["list", "--framework", "jax", "--long"], obj=_context())
    lines = run.output.splitlines()
    assert lines[0].split() == ["base", "framework", "Python", "CUDA", "driver", "status", "beware"]
    assert len(lines) == 1 + sum(entry.framework == "jax" for entry in catalogue_entries())


def test_the_list_has_a_line_for_each_base_that_80_columns_hold() -> None:
    run = CliRunner().invoke(base_command, ["list"], obj=_context())
    lines = run.output.splitlines()
    bootstraps = {(e.reference, e.framework) for e in catalogue_entries() if e.is_bootstrap}
    images = [e for e in catalogue_entries() if not e.is_bootstrap]
    assert len(lines) == len(bootstraps) + len(images) + len(("head", "", "head", "mark"))
    assert max(map(len, lines)) <= 80
    assert any(
        " ".join(line.split()).endswith("tensorflow:2.18.0-gpu 2.18.0 ! 3.11 12.3")
        for line in lines
    )


def test_index_wheels_for_cuda_10_come_after_an_image_for_cuda_11() -> None:
    choice = best(framework="torch==1.11.0")
    assert choice.entry.reference == "docker://pytorch/pytorch:1.11.0-cuda11.3-cudnn8-runtime"
