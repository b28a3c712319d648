"""Sick trees are found by the right checks and rightly named; healthy ones are not accused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.check.model import Report
from tests.check.tree import (
    Tree,
    failures,
    install_cuda,
    make_recipe,
    tensorflow_files,
)
from tests.sick.faults import HINTS, SICK, user_packages_come_in
from tests.sick.healthy import (
    HEALTHY,
    names_that_differ_from_modules,
    needs_the_driver_to_be_imported,
    tensorflow_with_its_cuda_wheels,
    torch_with_plugins_that_it_preloads,
)

PAGE = Path(__file__).parents[2] / "docs/check-faults.md"


@pytest.mark.parametrize(("make", "expected"), SICK, ids=[make.__name__ for make, _ in SICK])
def test_each_fault_is_found_by_the_right_checks_and_named(
    make: Callable[[Path], Report], expected: dict[str, str], tmp_path: Path
) -> None:
    report = make(tmp_path / "image")
    found = {
        check: reason.replace(str(tmp_path / "image"), "ROOT").replace(f"{tmp_path}/", "")
        for check, reason in failures(report).items()
    }
    assert found == expected
    assert report.verdict == "failed"
    hints = [finding.hint for finding in report.findings if finding.outcome == "failed"]
    assert all(hints)
    assert make not in HINTS or hints == [HINTS[make]]


def test_packages_of_the_user_are_told(tmp_path: Path) -> None:
    report = user_packages_come_in(tmp_path / "image")
    assert failures(report)["user-site-off"].startswith(
        "Python would read packages from the user's own folder ("
    )
    assert failures(report)["plain-exec"] == (
        "under a plain apptainer exec, packages of the user's ~/.local are imported (tried with a made-up home)"
    )


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_no_healthy_tree_is_accused(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path / "image")
    assert failures(report) == {}
    assert report.verdict == "passed"


def reasons(report: Report) -> dict[str, str]:
    return {finding.check: finding.reason for finding in report.findings}


def test_a_healthy_report_says_what_was_proved(tmp_path: Path) -> None:
    found = reasons(tensorflow_with_its_cuda_wheels(tmp_path / "image"))
    assert found["framework-version"] == "tensorflow 2.15.1 as locked"
    assert found["one-framework"] == "only tensorflow provides tensorflow"
    assert found["locked-versions"] == "9 locked packages: all there, with the locked versions"
    assert found["base-files"] == (
        "31 files of 7 distributions are as installed: 17 by hash, 14 by size (--level full hashes all)"
    )
    assert found["cuda-match"] == "tensorflow 2.15.1 finds CUDA 12.2 and cuDNN 8.9"
    assert found["script"].endswith("its last line: def f(): pass")
    assert found["driver"] == "this machine has no NVIDIA driver"


def test_a_framework_whose_libraries_are_linked_is_not_said_to_have_found_them(
    tmp_path: Path,
) -> None:
    found = reasons(torch_with_plugins_that_it_preloads(tmp_path / "image"))
    assert found["cuda-match"] == (
        "torch 2.5.1 is a build for CUDA 12.4; its CUDA libraries are linked, so the shared libraries above tell "
        "whether they are there"
    )


def test_modules_are_found_by_the_distributions_own_files(tmp_path: Path) -> None:
    report = names_that_differ_from_modules(tmp_path / "image")
    (finding,) = [finding for finding in report.findings if finding.check == "direct-imports"]
    assert sorted(finding.evidence["seconds"]) == [
        "PIL",
        "dateutil",
        "google.protobuf",
        "ruamel.yaml",
        "yaml",
    ]


def test_a_package_that_needs_the_driver_is_skipped_not_failed(tmp_path: Path) -> None:
    report = needs_the_driver_to_be_imported(tmp_path / "image")
    (finding,) = [finding for finding in report.findings if finding.check == "direct-imports"]
    assert finding.outcome == "skipped"
    assert (
        finding.reason
        == "gpuonly can only be imported where an NVIDIA driver is; the others import"
    )


def test_a_larger_file_is_compared_by_size_and_that_is_said(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    files = tensorflow_files() | {"tensorflow/big.bin": b"0" * (4 * 1024 * 1024 + 1)}
    tree.install("tensorflow", "2.15.1", files)
    install_cuda(tree)
    recipe = make_recipe(framework="tensorflow==2.15.*")
    assert reasons(tree.check(recipe))["base-files"] == (
        "32 files of 7 distributions are as installed: 17 by hash, 15 by size (--level full hashes all)"
    )
    tree.write("tensorflow/big.bin", b"0" * (4 * 1024 * 1024 + 2))
    assert (
        "tensorflow: 1 changed of 7 files (for one, tensorflow/big.bin)"
        in reasons(tree.check(recipe))["base-files"]
    )


def faults_page() -> str:
    """Write the table of faults for docs."""
    rows = [
        f"| {make.__name__.replace('_', ' ')} | `{check}` | {reason.replace('|', '&#124;')} |"
        for make, expected in SICK
        for check, reason in expected.items()
    ]
    healthy = ", ".join(make.__name__.replace("_", " ") for make in HEALTHY)
    return (
        "# Faults that the check finds\n\n([日本語](ja/check-faults.md))\n\n"
        f"A tree is a folder laid out like an image, and is what a check gets here. {len(SICK)} trees are sick (`tests/sick/faults.py`), each with one\n"
        "fault. Every fault is found: only the checks of its rows fail, with these words.\n"
        f"{len(HEALTHY)} trees are healthy (`tests/sick/healthy.py`), and no check fails on them. `tests/sick/test_sick_trees.py --update-golden` writes this page.\n"
        "Other tests are about the GPU and its driver: a stub that is loaded first, codes of cuInit, hidden devices, MIG, the CPU in the GPU's place,\n"
        "wrong results. They use drivers and frameworks that stand in for real ones (`tests/check/test_check_gpu.py`, `test_check_deep.py`).\n\n"
        "| fault | check | says |\n|---|---|---|\n" + "\n".join(rows) + f"\n\nHealthy: {healthy}.\n"
    )


def test_the_page_of_faults_is_what_is_tested(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(faults_page())
    assert PAGE.read_text() == faults_page()
    assert len(SICK) >= 24
    assert len(HEALTHY) >= 24
