"""The tables of data agree with each other, and the rules read off them are NVIDIA's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envbuild.check
from envbuild.base import gpu
from envbuild.base.model import Dist
from envbuild.data import lookup
from envbuild.data.tables import load_cuda, load_cuda_sources, load_frameworks
from envbuild.resolve.couplings import protected_names
from tests.resolve.conftest import base

PROBES = Path(envbuild.check.__path__[0]) / "probes"


def test_newer_toolkits_need_newer_drivers() -> None:
    toolkits = sorted(load_cuda().drivers, key=lookup.numbers)
    assert toolkits == list(load_cuda().drivers)
    for older, newer in pairwise(toolkits):
        assert lookup.numbers(load_cuda().drivers[older]) < lookup.numbers(
            load_cuda().drivers[newer]
        )


def test_every_build_names_a_known_toolkit_framework_and_gpus() -> None:
    known = {framework.name for framework in load_frameworks().framework}
    capabilities = {row.capability for row in load_cuda().gpu} | {50}
    for build in load_frameworks().build:
        assert build.framework in known
        assert ".".join(map(str, lookup.numbers(build.cuda)[:2])) in load_cuda().drivers
        assert {*build.sass, *build.ptx} <= capabilities, build


def test_builds_hold_no_code_that_their_toolkit_cannot_compile() -> None:
    rows = {row.capability: row for row in load_cuda().gpu}
    for build in load_frameworks().build:
        for capability in (*build.sass, *build.ptx):
            row = rows.get(capability)
            if row and row.since:
                assert lookup.numbers(row.since) <= lookup.numbers(build.cuda), (build, row)
            if row and row.until:
                assert lookup.numbers(build.cuda) < lookup.numbers(row.until), (build, row)


def test_no_release_line_is_listed_twice() -> None:
    rows = [(build.framework, build.version) for build in load_frameworks().build]
    assert len(rows) == len(set(rows))


def test_the_libraries_of_every_toolkit_are_found() -> None:
    for toolkit in load_cuda().drivers:
        names = lookup.cuda_libraries(toolkit)
        assert bool(names) == (lookup.numbers(toolkit) >= (9, 0))
    assert "libcusolver.so.10" in lookup.cuda_libraries("11.0")
    assert "libcusolver.so.11" in lookup.cuda_libraries("11.2")


@pytest.mark.parametrize(
    ("capability", "sass", "ptx", "how"),
    [
        (80, (70, 80), (), "sass"),
        (86, (80,), (), "sass"),  # same major version, higher minor
        (80, (86,), (), None),  # not downwards
        (90, (70, 80), (80,), "ptx"),  # H100 on TensorFlow 2.15
        (120, (75, 80, 86, 90, 100, 120), (), "sass"),
        (70, (75, 80, 86, 90, 100, 120), (), None),  # V100 on torch 2.11
        (37, (50,), (50,), None),
        (103, (100,), (), "sass"),
    ],
)
def test_machine_code_and_portable_code_rules(
    capability: int, sass: tuple[int, ...], ptx: tuple[int, ...], how: str | None
) -> None:
    assert lookup.runs_on(capability, sass, ptx) == how


@given(st.integers(30, 130), st.sets(st.integers(30, 130)), st.sets(st.integers(30, 130)))
def test_more_code_never_runs_on_fewer_gpus(
    capability: int, sass: set[int], more: set[int]
) -> None:
    before = lookup.runs_on(capability, tuple(sass), ())
    after = lookup.runs_on(capability, tuple(sass | more), tuple(more))
    assert before is None or after == "sass"


@pytest.mark.parametrize(
    ("framework", "version", "row"),
    [
        ("tensorflow", "2.15.1", "2.15"),
        ("tensorflow", "1.12.3", "1.12.3"),
        ("tensorflow", "1.12.0", "1.12"),
        ("torch", "2.5.1+cu124", "2.5"),
        ("torch", "9.9", None),
    ],
)
def test_a_release_is_found_by_itself_or_by_its_line(
    framework: str, version: str, row: str | None
) -> None:
    found = lookup.build_of(framework, version)
    assert (found.version if found else None) == row


def test_libraries_of_the_driver_are_told_from_those_of_the_image() -> None:
    assert lookup.from_driver("libcuda.so.1")
    assert lookup.from_driver("libnvidia-ml.so.1")
    assert not lookup.from_driver("libcudart.so.12")


def test_opengl_comes_with_its_debian_package_and_a_way_around() -> None:
    row = lookup.provider_of("libGL.so.1")
    assert row is not None
    assert row.debian == "libgl1"
    assert "headless" in (row.note or "")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("12.5.1", (12, 5, 1)), ("535.129.03", (535, 129, 3)), ("2.4.0a0+nv", (2, 4, 0)), ("x", ())],
)
def test_leading_numbers_of_a_version(text: str, numbers: tuple[int, ...]) -> None:
    assert lookup.numbers(text) == numbers


@pytest.mark.parametrize(
    ("driver", "toolkit"),
    [("535.129.03", "12.2"), ("450.80.02", "11.0"), ("600.1", "13.2"), ("300.1", None)],
)
def test_what_a_driver_supports(driver: str, toolkit: str | None) -> None:
    assert lookup.cuda_of_driver(driver) == toolkit


EVERY = [
    (row.name, pattern.replace("*", "112"))
    for row in load_frameworks().framework
    for pattern in row.dists
]


@pytest.mark.parametrize(("framework", "dist"), EVERY)
def test_what_is_a_framework_is_protected_held_by_bases_and_known_to_checks(
    framework: str, dist: str
) -> None:
    assert lookup.is_framework(dist)
    assert protected_names(base(f"{dist}==1.0")) == {dist}
    assert gpu.framework_of_dists([Dist(name=dist, version="1.0")]) == f"{dist} 1.0"
    known = lookup.framework_of(dist)
    assert known is not None
    assert known.name == framework


def test_whose_libraries_are_known_is_a_framework() -> None:
    for source in load_cuda_sources().framework:
        for pattern in source.dists:
            assert lookup.is_framework(pattern.replace("*", "112")), pattern


def test_a_framework_is_known_to_checks_by_its_probe_or_by_the_lack_of_one() -> None:
    tried = {row.name for row in load_frameworks().framework if row.probe is not None}
    assert tried == {"tensorflow", "torch", "jax", "cupy", "onnxruntime"}
    for row in load_frameworks().framework:
        if row.probe is not None:
            assert (PROBES / f"{row.probe}.py").is_file(), row.name
