"""Which versions are taken where not everything that is asked for can be at its newest release."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import pytest

from envbuild.data.package_tables import MajorRelease, load_majors
from envbuild.errors import NoSolutionError
from envbuild.resolve.model import Resolution
from tests.resolve.conftest import SyntheticIndex, base, versions

Resolve = Callable[..., Resolution]
TORCH21 = base("torch==2.1.2", "fsspec==2023.12")
NUMPY1 = base("tensorflow==2.17.0", "numpy==1.26.4", requires={"tensorflow": ("numpy<2.0.0",)})


def test_preview_is_not_taken_where_the_newest_release_is_refused(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("reader", "3.8.2", requires=("numpy>=2",))
    index.wheel("reader", "3.7.5", "4.0.0.dev3", requires=("numpy<2",))
    answer = resolve(NUMPY1, "reader")
    assert versions(answer) == {"reader": "3.7.5"}
    assert answer.held_back[0].reason == "reader==3.8.2 needs numpy>=2; the base holds numpy 1.26.4"


def test_project_that_has_only_previews_is_taken_as_it_is(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("jraph", "0.0.5.dev0", "0.0.6.dev0")
    index.wheel("vllm", "0.9", requires=("numpy>=2",))
    index.wheel("vllm", "0.8")
    assert versions(resolve(NUMPY1, "jraph", "vllm")) == {"jraph": "0.0.6.dev0", "vllm": "0.8"}


def test_coupling_limits_what_the_newest_release_is(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("transformers", "5.20.2", requires=("hub>=1",))
    index.wheel("transformers", "4.55.4", requires=("hub<1",))
    index.wheel("datasets", "5.2.0", requires=("hub>=1",))
    index.wheel("datasets", "5.0.1", requires=("hub", "fsspec<2025"))
    index.wheel("datasets", "2.14.4", requires=("hub",))
    index.wheel("hub", "0.36", "1.30")
    index.wheel("fsspec", "2026.9")
    answer = resolve(TORCH21, "transformers", "datasets")
    assert versions(answer) == {"transformers": "4.55.4", "datasets": "5.0.1", "hub": "0.36"}
    assert {(row.name, row.newest) for row in answer.held_back} == {
        ("transformers", "5.20.2"),
        ("datasets", "5.2.0"),
    }
    assert all(
        row.reason.startswith("transformers<4.56 goes with torch 2.1.2 (")
        for row in answer.held_back
    )


def test_upgrade_of_one_keeps_all_others(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("rich", "13.0", "14.0")
    index.wheel("click", "8.0", "8.1", requires=("colors",))
    index.wheel("colors", "1.0", "1.1")
    kept = (("rich", "13.0"), ("click", "8.0"), ("colors", "1.0"))
    answer = resolve(TORCH21, "rich", "click", keep=kept, upgrade=("click",))
    assert versions(answer) == {"rich": "13.0", "click": "8.1", "colors": "1.0"}


def test_wheel_for_another_build_of_the_framework_is_told(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    vendor = base("torch==2.4.0a0+f70bd71a48.nv24.6")
    index.wheel(
        "xformers", "0.0.27", requires=("torch==2.4.0",), tag="cp311-cp311-manylinux_2_17_x86_64"
    )
    index.wheel("lightning", "2.4", requires=("torch==2.4.0",))
    (note,) = resolve(vendor, "xformers", "lightning").notes
    assert note.startswith(
        "xformers 0.0.27 was compiled for torch==2.4.0 as published, the base holds its vendor's own "
    )
    assert resolve(base("torch==2.4.0"), "xformers").notes == ()


def test_date_moves_to_the_first_release_with_a_wheel_for_the_base(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("triton", "1.1", tag="cp39-cp39-manylinux_2_17_x86_64", day="2022-01-01")
    index.wheel("triton", "2.0", tag="cp311-cp311-manylinux_2_17_x86_64", day="2023-03-16")
    answer = resolve(base("torch==1.13.1"), "triton", as_of="2023-01-01", latest="2026-11-21")
    assert versions(answer) == {"triton": "2.0"}
    assert answer.notes == (
        "resolved as of 2023-06-14, not 2023-01-01: triton has no release before 2023-03-16",
    )


def test_older_wheel_is_better_than_compiling_what_has_wheels(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    here = "cp311-cp311-manylinux_2_17_x86_64"
    index.wheel("opencv", "4.6", tag=here, day="2022-01-01")
    index.wheel("opencv", "5.0", tag="cp312-cp312-manylinux_2_17_x86_64")
    index.sdist(
        "opencv", "5.0", files={"PKG-INFO": "Metadata-Version: 2.1\nName: opencv\nVersion: 5.0\n"}
    )
    index.sdist(
        "sacremoses",
        "0.1",
        files={"PKG-INFO": "Metadata-Version: 2.1\nName: sacremoses\nVersion: 0.1\n"},
    )
    index.wheel("setuptools", "70")
    index.wheel("wheel", "0.43")
    answer = resolve(TORCH21, "opencv", "sacremoses")
    assert versions(answer) == {"opencv": "4.6", "sacremoses": "0.1"}
    (held,) = answer.held_back
    assert (
        held.reason == "opencv 5.0 has no wheel for this base, and would have to be compiled in it"
    )
    pinned = resolve(TORCH21, "opencv==5.0")
    assert pinned.packages[0].is_sdist


def test_the_release_before_is_better_where_the_newest_came_without_wheels(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """PyAV 11.0.0 is source only, and its build wants FFmpeg; 10.0.0 has wheels."""
    here = "cp311-cp311-manylinux_2_17_x86_64"
    information = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
    index.wheel("setuptools", "70")
    index.wheel("wheel", "0.43")
    index.wheel("av", "10.0.0", tag=here)
    index.wheel("never", "1.0", tag=here)
    for name, version in (("av", "11.0.0"), ("never", "2.0"), ("never", "3.0")):
        files = {"PKG-INFO": information.format(name, version)}
        index.sdist(name, version, files=files)
    assert versions(resolve(TORCH21, "av", "never")) == {"av": "10.0.0", "never": "3.0"}
    pinned = resolve(TORCH21, "av==11.0.0")
    assert pinned.packages[0].is_sdist
    assert not [note for note in pinned.notes if "no wheel for Python" in note]


def test_what_was_uploaded_again_after_the_date_is_taken_all_the_same(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """One of a few releases without its module is not: tests/hostile/test_index_traps.py."""
    index.wheel("vllm", "0.6", requires=("outlines",))
    index.wheel("outlines", "0.0.46", requires=("airports",))
    index.wheel("airports", "0.0.1", "0.0.2", "0.0.3", "0.0.4", day="2025-03-01")
    answer = resolve(TORCH21, "vllm", as_of="2024-09-12")
    assert versions(answer) == {"airports": "0.0.4", "outlines": "0.0.46", "vllm": "0.6"}
    assert answer.notes == ("airports 0.0.4: there is none from before the date",)


def test_what_others_require_is_not_ancient_to_keep_the_base(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """An early release without bounds fits everything, and would keep absl-py where it is."""
    index.wheel("datasets", "4.9", requires=("metadata",), day="2024-06-01")
    index.wheel("metadata", "0.5", day="2017-01-01")
    index.wheel("metadata", "1.13", requires=("absl-py<2",), day="2023-01-01")
    index.wheel("absl-py", "1.4", "2.1", day="2022-01-01")
    index.wheel("toml", "0.10", day="2015-01-01")
    index.wheel("old", "1.0", day="2015-01-01")
    index.wheel("old", "2.0", requires=("torch>=2.5",), day="2024-01-01")
    index.wheel("app", "1.0", requires=("toml", "old"), day="2024-06-01")
    answer = resolve(base("torch==2.1.2", "absl-py==2.1"), "datasets", "app")
    assert versions(answer) == {
        "absl-py": "1.4",
        "app": "1.0",
        "datasets": "4.9",
        "metadata": "1.13",
        "old": "1.0",
        "toml": "0.10",
    }
    assert [move.reason for move in answer.moved] == ["metadata needs absl-py<2"]


def test_ancient_release_gives_way_to_a_newer_one(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("datasets", "4.9", requires=("absl-py", "metadata"), day="2024-06-01")
    index.wheel("metadata", "0.5", day="2017-01-01")
    index.wheel("metadata", "1.13", requires=("absl-py<2",), day="2023-01-01")
    index.wheel("absl-py", "1.4", day="2022-01-01")
    assert versions(resolve(base("torch==2.1.2", "absl-py==2.1"), "datasets"))["metadata"] == "1.13"


def test_newer_dependency_is_no_reason_for_a_preview_or_an_older_request(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """grammar could be newer only beside config 2.4.0.dev3, or an older tool."""
    index.wheel("grammar", "4.9", day="2019-01-01")
    index.wheel("grammar", "5.0", day="2024-03-01")
    index.wheel("config", "2.3.0", requires=("grammar==4.9",), day="2024-01-01")
    index.wheel("config", "2.4.0.dev3", requires=("grammar>=5",), day="2024-04-01")
    index.wheel("tool", "2.0", requires=("config>=2.4.0.dev0,<3",), day="2024-02-01")
    index.wheel("tool", "1.0", requires=("config",), day="2023-02-01")
    index.wheel("maker", "1.0", requires=("config>=2",), day="2024-05-01")
    assert versions(resolve(base(), "maker"))["config"] == "2.3.0"


@pytest.mark.parametrize(
    ("day", "taken"),
    [
        ("2024-12-01", {"numpy": "2.1", "whisper": "2.0"}),  # two years for a month
        ("2023-03-01", {"numpy": "2.2", "whisper": "1.0"}),  # two months for a month
    ],
)
def test_what_is_asked_for_is_not_years_old_to_keep_the_newest_of_another(
    index: SyntheticIndex, resolve: Resolve, day: str, taken: dict[str, str]
) -> None:
    index.wheel("numpy", "2.1", day="2024-11-01")
    index.wheel("numpy", "2.2", day="2024-12-01")
    index.wheel("whisper", "1.0", day="2023-01-01")
    index.wheel("whisper", "2.0", requires=("numpy<2.2",), day=day)
    index.wheel("rich", "1.0", "2.0")
    answer = resolve(base("torch==2.5.1"), "numpy", "whisper", "rich")
    assert versions(answer) == {**taken, "rich": "2.0"}
    # of an old lock nothing is traded
    held = resolve(
        base("torch==2.5.1"), "numpy", "whisper", keep=(("numpy", "2.2"), ("whisper", "1.0"))
    )
    assert versions(held) == {"numpy": "2.2", "whisper": "1.0"}


@pytest.mark.parametrize(("older", "taken"), [("2023-12-01", "2.0"), ("2023-09-01", "1.0")])
def test_half_a_year_is_worth_what_costs_a_month(
    index: SyntheticIndex, resolve: Resolve, older: str, taken: str
) -> None:
    """neuraloperator 1.0.2 pins the torch-harmonics of a month before the newest."""
    index.wheel("harmonics", "0.7.3", day=older)
    index.wheel("harmonics", "0.7.4", day="2024-01-01")
    index.wheel("operators", "1.0", day="2023-05-01")
    index.wheel("operators", "2.0", requires=("harmonics==0.7.3",), day="2023-12-20")
    assert versions(resolve(TORCH21, "harmonics", "operators"))["operators"] == taken


def test_preview_that_is_turned_down_leaves_no_trace(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """agents could be newer only as a preview: what is asked after that must not ask for the preview."""
    index.wheel("clock", "1.0", "2.0")
    index.wheel("agents", "1.5", requires=("clock", "old==1.0"), day="2024-01-01")
    index.wheel("agents", "1.8rc0", requires=("clock>=2", "old==2.0"), day="2024-02-01")
    index.wheel("agents", "1.9", requires=("clock<2",), day="2024-03-01")
    index.wheel("other", "1.0", requires=("clock>=2",), day="2024-03-01")
    index.wheel("old", "1.0", day="2019-01-01")
    index.wheel("old", "2.0", day="2024-03-01")
    found = versions(resolve(base(), "other", "agents"))
    assert (found["other"], found["agents"]) == ("1.0", "1.5")


def test_what_was_compiled_before_numpy_2_takes_numpy_1(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    compiled = "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
    index.wheel("numpy", "1.26.4", "2.1.0")
    index.wheel("rdkit", "2023.9.5", requires=("numpy",), tag=compiled, day="2024-02-01")
    index.wheel("rdkit", "2024.3.1", requires=("numpy",), tag=compiled, day="2024-06-01")
    index.wheel("plain", "1.0", requires=("numpy",), day="2020-01-01")
    index.wheel("torch", "2.5.1")
    held = base("torch==2.5.1", python="3.11.9")
    assert versions(resolve(held, "rdkit==2023.9.5", "plain"))["numpy"] == "1.26.4"
    assert versions(resolve(held, "rdkit", "plain"))["numpy"] == "2.1.0"
    answer = resolve(held, "rdkit==2023.9.5", "numpy>=2")
    assert versions(answer)["numpy"] == "2.1.0"
    told = "rdkit 2023.9.5, made before numpy 2 came out, may not import beside numpy 2"
    assert told in answer.notes


def test_what_a_new_framework_needs_beside_what_is_asked_for_comes_along(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """TensorFlow Probability does not import beside Keras 3 without tf-keras; here jax is the base's framework."""
    index.wheel("tensorflow", "2.16.1")
    index.wheel("tensorflow-probability", "0.24.0", "0.25.0")
    index.wheel("tf-keras", "2.16.0")
    asked = resolve(base("jax==0.4.30"), "tensorflow", "tensorflow-probability")
    assert versions(asked) == {
        "tensorflow": "2.16.1",
        "tensorflow-probability": "0.24.0",
        "tf-keras": "2.16.0",
    }


@pytest.mark.parametrize(
    ("held", "asked", "partner"),
    [
        ("torch==2.4.1", ("tensorflow", "transformers<5"), True),
        ("torch==2.4.1", ("tensorflow", "sentence-transformers<3"), True),
        ("tensorflow==2.16.1", ("transformers",), True),
        ("torch==2.4.1", ("tensorflow", "transformers"), False),
    ],
)
def test_transformers_4_beside_keras_3_needs_tf_keras_where_torch_is_too(
    index: SyntheticIndex, resolve: Resolve, held: str, asked: tuple[str, ...], *, partner: bool
) -> None:
    index.wheel("tensorflow", "2.16.1")
    index.wheel("transformers", "4.46.3", "5.14.1")
    index.wheel("sentence-transformers", "2.7.0", requires=("transformers<5",))
    index.wheel("tf-keras", "2.16.0")
    assert ("tf-keras" in versions(resolve(base(held), *asked))) is partner


OLD_CODE = {
    "package/core.py": ("dtype = np.int  # of old\n", "1.23.5"),
    "package/core.pyx": ("cimport numpy as np\n", "1.26.4"),
    "package/core.c": ('#include "numpy/arrayobject.h"\n', "1.26.4"),
    "package/limits.py": ("largest = np.Inf\n", "1.26.4"),
    "package/newer.py": ("dtype = np.int64\nold = 'np.inf'\n", "2.1.0"),
    "package/tests/core.py": ("dtype = np.int\n", "2.1.0"),
    "package/guarded.py": (
        "try:\n    kind = np.int\nexcept AttributeError:\n    kind = int\n",
        "2.1.0",
    ),
    "package/asked.py": ('if hasattr(np, "int"):\n    kind = np.int\n', "2.1.0"),
    "package/named.py": ("kinds = ['np.int', f'np.float', b'np.bool']\n", "2.1.0"),
    "package/told.py": ('"""Return np.int."""\n', "2.1.0"),
    "package/on_a_gpu.py": ("if torch.cuda.is_available():\n    kind = np.int\n", "1.23.5"),
}


@pytest.mark.parametrize("file", OLD_CODE)
def test_a_source_archive_takes_the_releases_that_its_code_was_written_for(
    index: SyntheticIndex, resolve: Resolve, file: str
) -> None:
    """GPy of 2019 declares no bound: beside numpy 2 it cannot be compiled, and np.int is gone."""
    index.wheel("numpy", "1.23.5", "1.26.4", "2.1.0")
    index.wheel("scipy", "1.14.0", requires=("numpy>=1.20",))
    setup = 'from setuptools import setup\nsetup(name="gpy", install_requires=["numpy"])\n'
    text, wanted = OLD_CODE[file]
    index.wheel("setuptools", "68.0")
    index.wheel("wheel", "0.40")
    index.sdist("gpy", "1.9.9", files={"setup.py": setup, file: text}, day="2019-06-01")
    assert versions(resolve(base(), "gpy", "scipy"))["numpy"] == wanted
    index.wheel("pandas", "3.0", requires=("numpy>=2",))
    # a newer release of its own comes first, and nothing that is asked for gives way
    told = any(
        "may not import beside numpy" in note for note in resolve(base(), "gpy", "pandas").notes
    )
    assert told == (wanted != "2.1.0")


def test_what_is_older_than_a_release_that_broke_it_takes_the_one_before(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("protobuf", "3.20.3", "4.22.0", day="2022-01-01")
    index.wheel("onnx", "1.11.0", requires=("protobuf>=3.12.2",), day="2022-02-18")
    index.wheel("onnx", "1.13.0", requires=("protobuf>=3.20.2",), day="2022-12-12")
    index.wheel("exporter", "1.0", requires=("onnx==1.11.0",))
    index.wheel("client", "1.0", requires=("protobuf<4",), day="2022-03-01")
    index.wheel("client", "2.0", requires=("protobuf>=4",), day="2023-03-01")
    assert versions(resolve(base(), "onnx==1.11.0"))["protobuf"] == "3.20.3"
    assert versions(resolve(base(), "onnx"))["protobuf"] == "4.22.0"
    # what is asked for does not become older for it
    answer = resolve(base(), "exporter", "client")
    assert (versions(answer)["client"], versions(answer)["protobuf"]) == ("2.0", "4.22.0")
    told = "onnx 1.11.0, generated before protobuf 4 came out, may not import beside protobuf 4"
    assert told in answer.notes


def test_what_an_older_package_requires_for_an_extra_breaks_only_with_that_extra(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("pydantic", "1.10.13", "2.4.0", day="2022-01-01")
    of_extra = 'pydantic>=1; extra == "serving"'
    index.wheel("trainer", "4.30.2", requires=(of_extra,), day="2023-06-13")
    index.wheel("server", "4.0", requires=("pydantic>=1",), day="2024-01-01")
    plain = resolve(base(), "trainer", "server")
    assert (versions(plain)["pydantic"], plain.notes) == ("2.4.0", ())
    assert versions(resolve(base(), "trainer[serving]", "server"))["pydantic"] == "1.10.13"


@pytest.mark.parametrize(
    ("package", "older", "came_out"),
    [("pydantic", "1.10.13", date(2023, 6, 30)), ("sqlalchemy", "1.4.46", date(2023, 1, 26))],
)
def test_what_was_written_before_a_major_release_came_out_takes_the_one_before(
    index: SyntheticIndex, resolve: Resolve, package: str, older: str, came_out: date
) -> None:
    day_before, newer = (came_out - timedelta(days=1)).isoformat(), "2.0.5"
    index.wheel(package, older, newer, day="2022-01-01")
    index.wheel("tracker", "1.0", requires=(f"{package}>=1",), day=day_before)
    index.wheel("tracker", "2.0", requires=(f"{package}>=1",), day=came_out.isoformat())
    assert versions(resolve(base(), "tracker==1.0"))[package] == older
    assert versions(resolve(base(), "tracker"))[package] == newer
    # what the user asks for stands, and is told
    answer = resolve(base(), "tracker==1.0", f"{package}>=2")
    assert versions(answer)[package] == newer
    assert any(f"may not import beside {package} 2" in note for note in answer.notes)


@pytest.mark.parametrize("major", [one for one in load_majors().major if not one.compiled])
def test_each_release_that_broke_others_is_taken_from_its_first_day_on(
    index: SyntheticIndex, resolve: Resolve, major: MajorRelease
) -> None:
    index.wheel(major.package, "0.0.1", day="2015-01-01")
    index.wheel(major.package, major.before, day=f"{major.since}")
    index.wheel("older", "1.0", requires=(major.package,), day=f"{major.since - timedelta(1)}")
    index.wheel("newer", "1.0", requires=(major.package,), day=f"{major.since}")
    assert versions(resolve(base(), "older"))[major.package] == "0.0.1"
    assert versions(resolve(base(), "newer"))[major.package] == major.before


def test_an_extra_that_only_its_makers_server_has_is_the_one_of_the_index(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    local = 'jaxlib==0.4.26+cuda12.cudnn89; extra == "cuda12-pip"'
    index.wheel("jax", "0.4.26", requires=(local, 'jax-cuda12-plugin==0.4.26; extra == "cuda12"'))
    index.wheel("jax-cuda12-plugin", "0.4.26")
    index.wheel("optax", "0.2.2", requires=("jax",))
    held = base(
        "jax==0.4.26",
        "jax-cuda12-plugin==0.4.26",
        requires={"jax": (local, 'jax-cuda12-plugin==0.4.26; extra == "cuda12"')},
    )
    assert versions(resolve(held, "jax[cuda12_pip]", "optax")) == {"optax": "0.2.2"}


def test_numpy_of_the_base_gives_way_to_a_pin_that_goes_with_an_older_one(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """matplotlib 3.7 does not import beside numpy 2, and nothing in the base needs that."""
    index.wheel("numpy", "1.26.4", "2.0.1")
    index.wheel("matplotlib", "3.7.5", "3.9.0", requires=("numpy",))
    answer = resolve(base("numpy==2.0.1"), "matplotlib~=3.7.4")
    assert versions(answer) == {"matplotlib": "3.7.5", "numpy": "1.26.4"}
    assert [(one.name, one.before, one.after) for one in answer.moved] == [
        ("numpy", "2.0.1", "1.26.4")
    ]
    assert versions(resolve(base("numpy==2.0.1"), "matplotlib")) == {"matplotlib": "3.9.0"}


def test_old_code_is_no_reason_for_a_preview_of_its_project(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("numpy", "1.23.5", "2.1.0")
    index.wheel("setuptools", "68.0")
    index.wheel("wheel", "0.40")
    setup = 'from setuptools import setup\nsetup(name="cells", install_requires=["numpy"])\n'
    index.sdist("cells", "0.1.3", files={"setup.py": setup, "cells/core.py": "kind = np.int\n"})
    index.wheel("cells", "0.6a0", requires=("numpy",))
    assert versions(resolve(base(), "cells")) == {"cells": "0.1.3", "numpy": "1.23.5"}


@pytest.mark.parametrize("also", ["", "imgaug==0.4.0"])
def test_what_is_coupled_gives_way_before_what_is_asked_for(
    index: SyntheticIndex, resolve: Resolve, also: str
) -> None:
    """PyTables before 3.10 has no wheel for numpy 2, and imgaug takes numpy 1 in any case."""
    index.wheel("numpy", "1.26.4", "2.1.3")
    index.wheel("tables", "3.8.0", "3.10.2", requires=("numpy",))
    index.wheel("imgaug", "0.4.0", requires=("numpy",))
    pinned = ("tables==3.8.0", "numpy", *filter(None, [also]))
    index.wheel("study", "2.0", requires=pinned)
    index.wheel("study", "1.0", requires=("tables", "numpy"))
    found = versions(resolve(base(), "study"))
    assert (found["study"], found["tables"], found["numpy"]) == ("2.0", "3.8.0", "1.26.4")


def test_an_older_torchao_that_another_package_pins_is_taken(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """Beside a newer torch an older torchao goes on without its kernels; a newer one fails."""
    index.wheel("torchao", "0.9.0", "0.14.1", "0.17.0")
    index.wheel("sglang", "0.5.10", requires=("torchao==0.9.0",))
    index.wheel("sglang", "0.5.2")
    held = base("torch==2.9.1")
    assert versions(resolve(held, "torchao")) == {"torchao": "0.14.1"}
    assert versions(resolve(held, "sglang")) == {"sglang": "0.5.10", "torchao": "0.9.0"}


def test_a_setup_py_counts_where_its_list_was_empty_on_its_authors_machine(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """PKG-INFO then says nothing of requirements, and that it says so for every build (PEP 643)."""
    information = "Metadata-Version: 2.4\nName: quantizer\nVersion: 2.2.0\n"
    setup = (
        "import os\nfrom setuptools import setup\nneeds = []\n"
        "if not os.getenv('CI'):\n    needs = ['six']\n"
        "setup(name='quantizer', install_requires=needs)\n"
    )
    for name, version in (("six", "1.17.0"), ("setuptools", "68.0"), ("wheel", "0.40")):
        index.wheel(name, version)
    index.sdist("quantizer", "2.2.0", files={"PKG-INFO": information, "setup.py": setup})
    assert versions(resolve(base(), "quantizer")) == {"quantizer": "2.2.0", "six": "1.17.0"}


def test_an_archive_whose_files_pip_downloads_from_elsewhere_is_no_release(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    setup = (
        "import subprocess, sys\nfrom setuptools import setup\n"
        "from setuptools.command.install import install\n\n"
        "class Install(install):\n    def run(self):\n"
        "        subprocess.check_call([sys.executable, '-m', 'pip', 'install',\n"
        "            '--extra-index-url', 'https://elsewhere.invalid', 'tensors-libs'])\n\n"
        "setup(name='tensors', cmdclass={'install': Install})\n"
    )
    index.sdist("tensors", "10.8.0", files={"setup.py": setup})
    with pytest.raises(NoSolutionError, match=r"placeholder whose setup\.py lets pip download"):
        resolve(base(), "tensors")
