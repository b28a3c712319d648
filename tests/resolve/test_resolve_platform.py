from __future__ import annotations

import pytest
from packaging.utils import parse_wheel_filename

from envbuild.errors import UsageError
from envbuild.resolve.platform import best_wheel, marker_environment, tag_order, uv_platform
from tests.resolve.conftest import base


@pytest.mark.parametrize(
    ("glibc", "value"),
    [
        ("2.17", "2_17"),
        ("2.27", "2_17"),
        ("2.28", "2_28"),
        ("2.30", "2_28"),
        ("2.31", "2_31"),
        ("2.34", "2_34"),
        ("2.36", "2_36"),
        ("2.39", "2_39"),
        ("2.41", "2_40"),
    ],
)
def test_platform_is_the_highest_that_uv_knows_below_the_base(glibc: str, value: str) -> None:
    assert uv_platform(base(glibc=glibc)) == f"x86_64-manylinux_{value}"
    assert uv_platform(base(glibc=glibc, machine="aarch64")) == f"aarch64-manylinux_{value}"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"glibc": "musl 1.2"}, "example/base:1: glibc 'musl 1.2' is not a version such as 2.36"),
        (
            {"glibc": "2.5"},
            "example/base:1: glibc 2.5 is older than 2.17, the oldest that today's wheels are made for",
        ),
        ({"machine": "ppc64le"}, "example/base:1: machine 'ppc64le' is not one of x86_64, aarch64"),
    ],
)
def test_bases_that_no_wheel_fits(facts: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        uv_platform(base(**facts))
    assert str(caught.value) == text


def test_python_that_is_no_version() -> None:
    with pytest.raises(UsageError, match=r"python '3' is not a version such as 3\.11\.2"):
        marker_environment(base(python="3"))


def best(*files: str, **facts: str) -> str | None:
    return best_wheel(files, tag_order(base(**facts)))


def test_most_specific_wheel_wins() -> None:
    files = (
        "wrapt-1.16.0-py3-none-any.whl",
        "wrapt-1.16.0-cp311-cp311-manylinux_2_5_x86_64.manylinux1_x86_64.manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "wrapt-1.16.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "wrapt-1.16.0-cp311-cp311-manylinux_2_17_aarch64.whl",
    )
    assert best(*files) == files[1]
    assert best(*files, machine="aarch64") == files[3]
    assert best(*files, python="3.9.2") == files[0]


def test_the_base_itself_sets_the_ceiling_not_uvs_platform() -> None:
    files = (
        "a-1-cp311-cp311-manylinux_2_27_x86_64.whl",
        "a-1-cp311-cp311-manylinux_2_17_x86_64.whl",
    )
    assert best(*files, glibc="2.27") == files[0]
    assert best(*files, glibc="2.26") == files[1]
    assert best(files[0], glibc="2.26") is None


def test_old_tag_names_count() -> None:
    for tag in ("manylinux1", "manylinux2010"):
        wheel = f"a-1-cp36-cp36m-{tag}_x86_64.whl"
        assert best(wheel, python="3.6.9", glibc="2.27") == wheel


def test_a_wheel_for_any_linux_fits_after_those_that_name_a_glibc() -> None:
    files = ("a-1-cp311-cp311-linux_x86_64.whl", "a-1-cp311-cp311-manylinux_2_17_x86_64.whl")
    assert best(*files) == files[1]
    assert best(files[0]) == files[0]


def test_a_pure_wheel_for_this_python_fits_before_one_for_every_python() -> None:
    files = ("a-1-py3-none-any.whl", "a-1-cp311-none-any.whl", "a-1-cp312-none-any.whl")
    assert best(*files) == files[1]
    assert best(files[2]) is None


def test_every_marker_of_pep_508_has_its_value() -> None:
    assert marker_environment(base(python="3.11.2")) == {
        "python_version": "3.11",
        "python_full_version": "3.11.2",
        "implementation_name": "cpython",
        "implementation_version": "3.11.2",
        "platform_python_implementation": "CPython",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "platform_release": "",
        "platform_version": "",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }


def test_a_file_with_another_name_does_not_end_the_search() -> None:
    assert best("nonsense.whl", "a-1-py3-none-any.whl") == "a-1-py3-none-any.whl"


def test_higher_build_number_wins_and_nonsense_is_passed_over() -> None:
    assert (
        best("a-1-py3-none-any.whl", "a-1-2-py3-none-any.whl", "nonsense.whl")
        == "a-1-2-py3-none-any.whl"
    )
    assert parse_wheel_filename("a-1-2-py3-none-any.whl")[2] == (2, "")


def test_order_begins_with_the_base() -> None:
    assert str(next(iter(tag_order(base())))) == "cp311-cp311-manylinux_2_36_x86_64"


def test_markers_are_of_the_base() -> None:
    found = marker_environment(base(python="3.6.9", machine="aarch64"))
    assert (found["python_version"], found["platform_machine"], found["sys_platform"]) == (
        "3.6",
        "aarch64",
        "linux",
    )
