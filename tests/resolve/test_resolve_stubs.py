from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.resolve.stubs import (
    is_stub,
    kept_stubs,
    lenient_version,
    plan_stubs,
    write_stubs,
    write_wheel,
)
from envbuild.store.layout import Store
from tests.resolve.conftest import base

RELEASES = st.lists(st.integers(0, 3000), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)
SUFFIXES = st.sampled_from(["", "a0", "b3", "rc1", ".dev3", "a1.dev2", ".post2", "rc1.post4"])
LOCALS = st.sampled_from(["", "+cu121", "+nv24.6", "+f70bd71a48.nv24.6"])


@pytest.mark.parametrize(
    ("real", "taken"),
    [
        ("2.4.0a0+f70bd71a48.nv24.6", "2.4.0+f70bd71a48.nv24.6.base"),
        ("2.1.0", "2.1.0+base"),
        ("2.15.1+nv23.11", "2.15.1+nv23.11.base"),
        ("1.0rc1", "1.0+base"),
        ("1.0.post2", "1.0.post2+base"),
        ("1.0.dev3+g1", "1.0+g1.base"),
        ("1!2.0", "1!2.0+base"),
    ],
)
def test_lenient_version(real: str, taken: str) -> None:
    assert lenient_version(real) == taken


def test_version_that_is_not_pep_440() -> None:
    with pytest.raises(InvalidVersion):
        lenient_version("1.0-ubuntu1~22")


@given(release=RELEASES, suffix=SUFFIXES, local=LOCALS)
def test_lenient_version_is_a_stub_of_the_final_release(
    release: str, suffix: str, local: str
) -> None:
    taken = Version(lenient_version(f"{release}{suffix}{local}"))
    assert is_stub(str(taken))
    assert not taken.is_prerelease
    assert taken.release == Version(release).release
    assert SpecifierSet(f">={release}").contains(str(taken))
    assert taken > Version(f"{release}{suffix if 'post' in suffix and 'rc' not in suffix else ''}")


@pytest.mark.parametrize("version", ["1.0", "1.0+cu121", "1.0+database", "1.0+base1", "2.0+base.1"])
def test_what_is_no_stub(version: str) -> None:
    assert not is_stub(version)


def plan(*pins: str, protected: tuple[str, ...] = (), **other: object) -> dict[str, object]:
    facts = base(*pins, requires=other.pop("requires", None), **other)  # type: ignore[arg-type]
    return dict(
        plan_stubs(facts, protected=protected, aliases={"tensorflow": ("tensorflow-gpu",)}).by_name
    )


def test_hard_stub_asks_for_nothing_that_the_base_lacks() -> None:
    requires = (
        "filelock",
        "nvidia-cublas-cu12==12.1.3.1; platform_system == 'Linux'",
        "sympy>=1.13",
        "networkx",
        "triton==3.0.0 ; python_version < '3.0'",
        "opt-einsum>=3.3 ; extra == 'opt-einsum'",
        "numpy @ https://mirror.invalid/numpy.whl",
        "pytz>dev",
    )
    found = plan(
        "torch==2.4.0",
        "filelock==3.13",
        "sympy==1.12",
        "triton==3.0.0",
        protected=("torch",),
        requires={"torch": requires},
    )
    assert found["torch"].requires == ("filelock", 'opt-einsum>=3.3; extra == "opt-einsum"')  # type: ignore[attr-defined]


def test_extra_for_cuda_wheels_is_dropped_where_the_base_has_its_own_cuda() -> None:
    requires = ("nvidia-cublas-cu12==12.2.5.6 ; extra == 'and-cuda'",)
    with_cuda = plan(
        "tensorflow==2.15.0",
        protected=("tensorflow",),
        cuda="12.3",
        requires={"tensorflow": requires},
    )
    without = plan(
        "tensorflow==2.15.0", protected=("tensorflow",), requires={"tensorflow": requires}
    )
    assert with_cuda["tensorflow"].requires == ()  # type: ignore[attr-defined]
    assert without["tensorflow"].requires == ('nvidia-cublas-cu12==12.2.5.6; extra == "and-cuda"',)  # type: ignore[attr-defined]


def test_soft_stub_keeps_all_its_requirements() -> None:
    found = plan(
        "rich==13.0",
        requires={"rich": ("pygments>=2.13", "absent", "ipywidgets ; extra == 'jupyter'")},
    )
    assert found["rich"].requires == ("pygments>=2.13", "absent", 'ipywidgets; extra == "jupyter"')  # type: ignore[attr-defined]


def test_alias_pins_the_real_distribution_and_protects_it() -> None:
    stubs = plan_stubs(
        base("tensorflow-gpu==2.1.0"), protected=(), aliases={"tensorflow": ("x", "tensorflow-gpu")}
    )
    alias = stubs.by_name["tensorflow"]
    assert (alias.alias_of, alias.requires, alias.real) == (
        "tensorflow-gpu",
        ("tensorflow-gpu==2.1.0+base",),
        "2.1.0",
    )
    assert stubs.hard("tensorflow-gpu")
    assert stubs.roots == ("tensorflow-gpu",)


def test_no_alias_for_what_the_base_has_itself() -> None:
    found = plan("tensorflow-gpu==2.1.0", "tensorflow==2.0.0")
    assert found["tensorflow"].alias_of is None  # type: ignore[attr-defined]


def test_first_of_two_installed_versions_counts_and_odd_versions_are_told() -> None:
    stubs = plan_stubs(
        base("PyYAML==6.0.1", "pyyaml==5.4.1", "python-apt==2.6.0ubuntu1~x"),
        protected=(),
        aliases={},
    )
    assert {name: stub.real for name, stub in stubs.by_name.items()} == {"pyyaml": "6.0.1"}
    assert stubs.notes == (
        "python-apt 2.6.0ubuntu1~x of the base is left out: its version is not PEP 440",
    )


def test_written_stubs_are_wheels_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    stubs = plan_stubs(
        base("tensorflow-gpu==2.1.0", "six==1.13.0"),
        protected=(),
        aliases={"tensorflow": ("tensorflow-gpu",)},
    )
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_stubs(stubs, tmp_path / folder)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.whl"))
    assert [str(file) for file in files] == [
        "hard/tensorflow-2.1.0+base-py3-none-any.whl",
        "hard/tensorflow_gpu-2.1.0+base-py3-none-any.whl",
        "soft/six-1.13.0+base-py3-none-any.whl",
    ]
    assert all(
        (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
        for file in files
    )
    assert all(parse_wheel_filename(file.name) for file in files)


def test_stub_metadata(tmp_path: Path) -> None:
    path = write_wheel(
        tmp_path, "jax", "0.4.31+base", ("jaxlib", 'jax-cuda12-plugin; extra == "cuda12"')
    )
    with zipfile.ZipFile(path) as archive:
        assert archive.read("jax-0.4.31+base.dist-info/METADATA").decode() == (
            "Metadata-Version: 2.1\nName: jax\nVersion: 0.4.31+base\nProvides-Extra: cuda12\n"
            'Requires-Dist: jaxlib\nRequires-Dist: jax-cuda12-plugin; extra == "cuda12"\n'
        )


def test_the_same_stubs_are_kept_in_the_same_place_for_everybody(tmp_path: Path) -> None:
    facts = base("torch==2.4.0", "six==1.16.0")
    stubs = plan_stubs(facts, protected={"torch"}, aliases={})
    store = Store(tmp_path / "store")
    before = os.umask(0o077)
    try:
        first = kept_stubs(stubs, store)
    finally:
        os.umask(before)
    files = {path.relative_to(first): path.stat() for path in first.rglob("*") if path.is_file()}
    assert {str(path) for path in files} == {
        "hard/torch-2.4.0+base-py3-none-any.whl",
        "soft/six-1.16.0+base-py3-none-any.whl",
    }
    assert {oct(stat.st_mode & 0o777) for stat in files.values()} == {"0o644"}
    assert first.stat().st_mode & 0o777 == 0o755
    assert kept_stubs(stubs, store) == first
    assert {
        path.relative_to(first): path.stat().st_mtime_ns
        for path in first.rglob("*")
        if path.is_file()
    } == {path: stat.st_mtime_ns for path, stat in files.items()}
    other = kept_stubs(plan_stubs(facts, protected={"six"}, aliases={}), store)
    assert other != first


def test_stubs_that_nobody_used_for_long_go_away(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    old = kept_stubs(plan_stubs(base("six==1.16.0"), protected=set(), aliases={}), store)
    os.utime(old, (0, 0))
    kept_stubs(plan_stubs(base("six==1.17.0"), protected=set(), aliases={}), store)
    assert not old.exists()
