"""The uv backend on a synthetic index: nothing here needs a network."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from envbuild.base.model import BaseFacts
from envbuild.errors import HostError, NetworkError, NoSolutionError, UsageError
from envbuild.progress import SilentStage
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.outcome import HeldBack, Moved, Provided
from envbuild.resolve.stubs import Stubs, write_wheel
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.resolve.uv.session import Session
from envbuild.settings import Settings, load_settings
from tests.resolve.conftest import SyntheticIndex, base, versions
from tests.resolve.loopback import Server
from tests.support import quiet_context

Resolve = Callable[..., Resolution]
Resolver = Callable[..., UvResolver]
NGC = base("torch==2.4.0a0+f70bd71a48.nv24.6", "numpy==1.24.4", requires={"torch": ("numpy",)})
NEEDS = {"messages": "protobuf", "settings": "pydantic"}
TF21 = base("tensorflow-gpu==2.1.0", created="2020-01-08")


class PageCounter(SilentStage):
    """A stage that adds up what is counted on it."""

    count = 0

    def advance(self, count: int = 1) -> None:
        """Add to what is done."""
        self.count += count


def error_of(
    resolve: Resolve, facts: BaseFacts, *requirements: str, **other: object
) -> NoSolutionError:
    with pytest.raises(NoSolutionError) as caught:
        resolve(facts, *requirements, **other)
    return caught.value


# ------------------------------------------------------------------ the base's own packages


@pytest.mark.parametrize(
    "wanted",
    [
        "torch>=2.4",
        "torch==2.4.0",
        "torch==2.4.*",
        "torch~=2.4.0",
        "torch<=2.4",
        "torch>2.3",
        "torch",
    ],
)
def test_vendor_build_satisfies_what_people_mean(
    wanted: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.3.1", "2.4.0", "2.5.1")
    answer = resolve(NGC, wanted)
    assert answer.packages == ()
    assert Provided(name="torch", version="2.4.0a0+f70bd71a48.nv24.6") in answer.provided


@pytest.mark.parametrize("wanted", ["torch<2.4", "torch>2.4", "torch==2.4.0+cu121"])
def test_another_build_of_the_framework_is_refused(
    wanted: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.3.1", "2.4.0", "2.5.1", "2.4.0+cu121")
    error = error_of(resolve, NGC, wanted)
    assert (
        f"you ask for {wanted}; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
        in error.what
    )
    first, *others = (error.hint or "").splitlines()
    assert first == f"loosen {wanted}: the base's 2.4.0 is then taken"
    assert all(line.startswith(f"or take a base that holds {wanted}: ") for line in others)
    assert bool(others) == ("+" not in wanted), "no base of the catalogue is known to hold a build"


@pytest.mark.parametrize(
    "wanted", ["numpy", "numpy==1.24.4", "numpy<=1.24.4", "numpy~=1.24.0", "numpy>=1.24.4,<1.25"]
)
def test_fitting_package_of_the_base_stays(
    wanted: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("numpy", "1.24.3", "1.24.4", "1.26.4", "2.2.6")
    assert resolve(NGC, wanted).packages == ()


@pytest.mark.parametrize("wanted", ["numpy!=1.24.4", "numpy>1.24.4"])
def test_other_package_of_the_base_moves_within_its_major(
    wanted: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("numpy", "1.24.3", "1.24.4", "1.26.4", "2.2.6")
    answer = resolve(NGC, wanted)
    assert versions(answer) == {"numpy": "1.26.4"}
    assert answer.moved == (
        Moved(name="numpy", before="1.24.4", after="1.26.4", reason=f"you ask for {wanted}"),
    )


def test_numpy_major_is_frozen(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("numpy", "1.26.4", "2.2.6")
    error = error_of(resolve, NGC, "numpy>=2")
    assert (
        "numpy<2 goes with numpy 1.24.4 of the base: what it holds was compiled against that"
        in error.what
    )


def test_string_equality_of_the_same_version_installs_nothing(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("numpy", "1.24.4", "1.26.4")
    answer = resolve(NGC, "numpy===1.24.4")
    assert answer.packages == ()
    assert Provided(name="numpy", version="1.24.4") in answer.provided


def test_string_equality_on_the_framework_is_refused(resolve: Resolve) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(NGC, "torch===2.4.0a0+f70bd71a48.nv24.6")
    assert str(caught.value) == (
        "requirement 'torch===2.4.0a0+f70bd71a48.nv24.6': asks by === for one exact build, but the base holds "
        "torch 2.4.0a0+f70bd71a48.nv24.6, which is never replaced"
    )
    assert caught.value.hint == "write torch==2.4.0, or only torch, to take the base's"


def test_direct_requirement_that_the_base_meets_is_not_upgraded(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("pandas", "1.5.3", "2.2.2")
    answer = resolve(base("pandas==1.5.3"), "pandas")
    assert answer.packages == ()
    assert answer.held_back == ()


def test_protected_by_the_caller(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("requests", "2.32.3")
    facts = base("requests==2.31.0")
    assert versions(resolve(facts, "requests>=2.32")) == {"requests": "2.32.3"}
    assert (
        "the base holds requests 2.31.0"
        in error_of(resolve, facts, "requests>=2.32", protect=("requests",)).what
    )


def test_what_the_framework_pins_is_protected(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("gast", "0.2.2", "0.3.3")
    facts = base("tensorflow==2.1.0", "gast==0.2.2", requires={"tensorflow": ("gast==0.2.2",)})
    assert "the base holds gast 0.2.2" in error_of(resolve, facts, "gast>=0.3").what


def test_what_the_framework_bounds_widely_moves_within_the_bounds(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("numpy", "1.17.5", "1.19.0", "1.22.4", "1.26.4")
    requires = {"cupy-cuda114": ("numpy<1.25,>=1.18",)}
    facts = base("cupy-cuda114==10.6.0", "numpy==1.22.4", requires=requires)
    assert versions(resolve(facts, "numpy")) == {}
    assert versions(resolve(facts, "numpy==1.19")) == {"numpy": "1.19.0"}
    for outside in ("numpy<1.18", "numpy>=1.25"):
        assert "cupy-cuda114" in error_of(resolve, facts, outside).what


# ------------------------------------------------------------------ breaking releases


def test_a_bound_for_what_another_bound_took_away_is_not_added(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """Below protobuf 4 there is an older tool, which does not need what pydantic 2 breaks."""
    for name in ("messages", "settings"):
        index.wheel(name, "1.0", requires=(NEEDS[name],), day="2022-01-01")
    for name, old, new in (("protobuf", "3.20.3", "4.25.3"), ("pydantic", "1.10.15", "2.7.4")):
        index.wheel(name, old, day="2021-01-01")
        index.wheel(name, new)
    index.wheel("tool", "1.0")
    index.wheel("tool", "2.0", requires=("settings", "protobuf>=4"))
    index.wheel("app", "1.0", requires=("tool", "messages", "pydantic"))
    alone = versions(resolve(base(), "app", "settings"))
    assert (alone["protobuf"], alone["pydantic"]) == ("3.20.3", "1.10.15")
    assert versions(resolve(base(), "app")) == {
        "app": "1.0",
        "messages": "1.0",
        "protobuf": "3.20.3",
        "pydantic": "2.7.4",
        "tool": "1.0",
    }


# ------------------------------------------------------------------ aliases


@pytest.mark.parametrize(
    ("held", "wanted", "provided"),
    [
        ("tensorflow-gpu==2.1.0", ("tensorflow>=2.0,<2.2",), {"tensorflow": "tensorflow-gpu"}),
        (
            "opencv==4.7.0",
            ("opencv-python>=4.5", "opencv-python-headless"),
            {"opencv-python": "opencv", "opencv-python-headless": "opencv"},
        ),
        ("cupy-cuda114==10.6.0", ("cupy>=9",), {"cupy": "cupy-cuda114"}),
        ("onnxruntime-gpu==1.18.0", ("onnxruntime",), {"onnxruntime": "onnxruntime-gpu"}),
    ],
)
def test_alias_stands_for_the_real_distribution(
    held: str,
    wanted: tuple[str, ...],
    provided: dict[str, str],
    index: SyntheticIndex,
    resolve: Resolve,
) -> None:
    for name in provided:
        index.wheel(name, "99.0")
    answer = resolve(base(held), *wanted)
    assert answer.packages == ()
    assert {item.name: item.alias_of for item in answer.provided if item.alias_of} == provided


def test_alias_keeps_version_bounds(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("tensorflow", "2.1.4", "2.4.1")
    error = error_of(resolve, TF21, "tensorflow>=2.2")
    assert (
        "you ask for tensorflow>=2.2; the base holds tensorflow-gpu 2.1.0 as tensorflow"
        in error.what
    )


def test_one_of_two_distributions_of_one_module_stands_for_the_other(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("opencv-python", "4.9")
    index.wheel("opencv-python-headless", "4.9", "4.10")
    index.wheel("albumentations", "1.0", requires=("opencv-python-headless>=4.8",))
    answer = resolve(base(), "opencv-python", "albumentations")
    assert versions(answer) == {"albumentations": "1.0", "opencv-python": "4.9"}
    assert answer.held_back == ()
    assert answer.provided == (
        Provided(name="opencv-python-headless", version="4.9", alias_of="opencv-python"),
    )
    assert answer.notes == (
        (
            "opencv-python stands for opencv-python-headless: both hold the same modules, and one would overwrite the "
            "other's files"
        ),
    )
    assert {package.name: package.via for package in answer.packages}["opencv-python"] == (
        "(direct)",
        "opencv-python-headless",
    )


def test_two_distributions_of_one_module_whose_bounds_exclude_each_other_become_one(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("opencv-python", "4.9")
    index.wheel("opencv-python-headless", "4.9", "4.10")
    answer = resolve(base(), "opencv-python==4.9", "opencv-python-headless==4.10")
    assert versions(answer) == {"opencv-python": "4.9"}
    assert answer.provided == (
        Provided(name="opencv-python-headless", version="4.10", alias_of="opencv-python"),
    )
    assert answer.notes[0] == (
        "opencv-python-headless 4.10 would overwrite files of opencv-python 4.9, which has the same modules: "
        "only opencv-python is taken"
    )


def test_what_is_asked_of_a_package_holds_for_what_stands_for_it(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("opencv-python", "4.8", "4.10")
    index.wheel("opencv-contrib-python", "4.8", "4.10")
    index.wheel("paddleocr", "2.9", requires=("opencv-python", "opencv-contrib-python"))
    answer = resolve(base(), "paddleocr", "opencv-python<4.9")
    assert versions(answer) == {"opencv-contrib-python": "4.8", "paddleocr": "2.9"}
    assert not any("is taken" in note for note in answer.notes)


def test_stand_in_for_another_cuda_is_told(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("cupy-cuda11x", "13.0")
    answer = resolve(base("cupy-cuda12x==13.2.0"), "cupy-cuda11x")
    assert answer.packages == ()
    assert answer.notes == (
        "cupy-cuda12x stands for cupy-cuda11x: the same modules, built for another CUDA",
    )


# ------------------------------------------------------------------ passes


def test_no_silent_step_back_to_a_release_that_names_no_framework(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("accelerate", "0.0.1", day="2021-03-05")
    index.wheel("accelerate", "0.30.0", requires=("torch>=2.4",))
    index.wheel("torch", "2.4.0", "2.5.1")
    assert versions(resolve(NGC, "accelerate", "torch>=2.4")) == {"accelerate": "0.30.0"}


def test_step_back_is_reported_and_its_age_told(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("accelerate", "0.0.1", day="2021-03-05")
    index.wheel("accelerate", "9.0.0", requires=("torch>=3",))
    answer = resolve(NGC, "accelerate")
    reason = "accelerate>=9.0.0 needs torch>=3; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
    assert answer.held_back == (
        HeldBack(name="accelerate", version="0.0.1", newest="9.0.0", reason=reason),
    )
    assert answer.notes == (
        (
            "accelerate 0.0.1 is of 2021-03-05, more than two years before the base: it hardly fits; 9.0.0 is held back "
            f"because {reason}"
        ),
    )


def test_direct_requirement_that_another_one_holds_back(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """Not silently: either of the two could be the newest, not both."""
    index.wheel("tiktoken", "0.3.1", "0.4.0")
    index.wheel("whisper", "1.0", requires=("tiktoken",))
    index.wheel("whisper", "2.0", requires=("tiktoken==0.3.1",))
    answer = resolve(base(), "whisper", "tiktoken")
    found = versions(answer)
    (held,) = answer.held_back
    assert (held.version, held.newest) in {("1.0", "2.0"), ("0.3.1", "0.4.0")}
    assert found[held.name] == held.version
    assert held.reason == (
        "whisper>=2.0 needs tiktoken==0.3.1, and you ask for tiktoken, which is there in a newer release"
    )


def test_marker_in_a_derivation_does_not_hide_the_reason(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("lightning", "1.0", requires=("torch",))
    index.wheel("lightning", "2.0", requires=("torch>=2.6 ; sys_platform != 'win32'",))
    (held,) = resolve(NGC, "lightning").held_back
    assert held.reason == (
        "lightning>=2.0 needs torch>=2.6; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
    )


def test_direct_requirement_is_newest_and_the_rest_of_the_base_stays(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("faiss-cpu", "1.8.0", requires=("numpy<1.25", "packaging"))
    index.wheel("faiss-cpu", "1.15.1", requires=("numpy>=1.25", "packaging"))
    index.wheel("numpy", "1.24.4", "1.26.4", "2.2.6")
    index.wheel("packaging", "23.2", "26.0")
    answer = resolve(base("numpy==1.24.4", "packaging==23.2"), "faiss-cpu")
    assert versions(answer) == {"faiss-cpu": "1.15.1", "numpy": "1.26.4"}
    assert answer.moved == (
        Moved(name="numpy", before="1.24.4", after="1.26.4", reason="faiss-cpu needs numpy>=1.25"),
    )
    assert answer.provided == (Provided(name="packaging", version="23.2"),)


def test_what_a_move_would_break_moves_too(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("numpy", "1.24.4", "1.27.0")
    index.wheel("llvmlite", "0.42.0", "0.43.0")
    index.wheel("numba", "0.60.0", requires=("numpy<1.28", "llvmlite==0.43.0"))
    facts = base(
        "numpy==1.24.4",
        "numba==0.59.1",
        "llvmlite==0.42.0",
        requires={"numba": ("numpy<1.27", "llvmlite<0.43,>=0.42")},
    )
    answer = resolve(facts, "numpy>=1.27")
    assert versions(answer) == {"llvmlite": "0.43.0", "numba": "0.60.0", "numpy": "1.27.0"}


def test_what_cannot_move_along_is_told(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("numpy", "1.24.4", "1.27.0")
    facts = base("numpy==1.24.4", "numba==0.59.1", requires={"numba": ("numpy<1.27",)})
    answer = resolve(facts, "numpy>=1.27")
    assert versions(answer) == {"numpy": "1.27.0"}
    assert (
        answer.notes[-1]
        == "numba 0.59.1 of the base needs numpy<1.27, which this resolution replaces"
    )


def test_old_lock_is_kept_but_for_what_is_upgraded(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("rich", "13.0", "14.0", requires=("pygments",))
    index.wheel("pygments", "2.17", "2.18")
    keep = (("rich", "13.0"), ("pygments", "2.17"))
    assert versions(resolve(base(), "rich", keep=keep)) == dict(keep)
    assert versions(resolve(base(), "rich", keep=keep, upgrade=("rich",))) == {
        "pygments": "2.17",
        "rich": "14.0",
    }
    assert versions(resolve(base(), "rich")) == {"pygments": "2.18", "rich": "14.0"}


def test_same_question_gives_the_same_answer(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("rich", "13.0", "14.0", requires=("pygments",))
    index.wheel("pygments", "2.18")
    first = resolve(NGC, "rich", "numpy")
    kept = tuple((package.name, package.version) for package in first.packages)
    assert resolve(NGC, "numpy", "rich") == first == resolve(NGC, "rich", "numpy", keep=kept)


# ------------------------------------------------------------------ the date


def test_date_limits_everything_but_not_the_base(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("flax", "0.8.5", day="2024-07-01")
    index.wheel("flax", "0.10.0", day="2024-12-01")
    index.wheel("setuptools", "70.0", day="2024-05-01")
    index.wheel("setuptools", "82.0", day="2026-01-01")
    answer = resolve(base("jax==0.4.31"), "flax", "jax", "setuptools", as_of="2024-09-12")
    assert versions(answer) == {"flax": "0.8.5", "setuptools": "70.0"}
    assert {package.file.uploaded for package in answer.packages} == {"2024-07-01", "2024-05-01"}
    assert answer.held_back == ()


def test_build_tools_of_the_base_set_the_limit_where_they_are_newer(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("setuptools", "70.0", day="2024-05-01")
    index.wheel("setuptools", "80.0", "82.0", day="2026-01-01")
    assert resolve(base("setuptools==80.0"), "setuptools", as_of="2024-09-12").packages == ()
    answer = resolve(base("setuptools==60.0"), "setuptools>=65", as_of="2024-09-12")
    assert versions(answer) == {"setuptools": "70.0"}
    # the date of a base is no reason to refuse what is asked for by number
    asked = resolve(base("setuptools==60.0"), "setuptools>=80,<81", as_of="2024-09-12")
    assert versions(asked) == {"setuptools": "80.0"}


def test_build_tool_that_the_framework_pins_keeps_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("wheel", "0.35.1", day="2020-08-01")
    index.wheel("wheel", "0.45.0", day="2026-01-01")
    index.wheel("setuptools", "51.0", day="2020-12-01")
    index.wheel("setuptools", "82.0", day="2026-01-01")
    facts = base(
        "tensorflow==2.4.1",
        "wheel==0.35.1",
        requires={"tensorflow": ("wheel~=0.35",)},
        created="2021-01-21",
    )
    assert versions(resolve(facts, "setuptools", "wheel", as_of="2021-04-21")) == {
        "setuptools": "51.0"
    }


def test_date_that_nobody_chose_moves_to_what_is_asked_for(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("rich", "12.0", day="2024-01-01")
    index.wheel("rich", "13.0", day="2024-11-20")
    index.wheel("rich", "14.0", day="2026-01-01")
    index.wheel("flax", "0.8.5", day="2024-07-01")
    index.wheel("flax", "0.10.0", day="2024-10-01")
    index.wheel("flax", "0.10.1", day="2024-11-01", requires=("rich>=12.1",))
    answer = resolve(base(), "flax>=0.9", "rich", as_of="2024-09-12", latest="2026-06-01")
    assert versions(answer) == {"flax": "0.10.1", "rich": "13.0"}
    assert answer.as_of == "2024-12-30"
    assert answer.notes == (
        "resolved as of 2024-12-30, not 2024-09-12: flax>=0.9 has no release before 2024-10-01",
    )
    with pytest.raises(
        NoSolutionError,
        match="newer releases of flax are left out: the resolution is as of 2024-09-12",
    ):
        resolve(base(), "flax>=0.9", as_of="2024-09-12")


def test_date_that_nobody_chose_moves_where_a_later_one_has_a_solution(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As unsloth, whose releases of the base's time exclude the protobuf that is asked for."""
    index.wheel("unsloth", "2024.10", requires=("protobuf<4",), day="2024-10-01")
    index.wheel("unsloth", "2025.9", requires=("protobuf>=4", "torch<3"), day="2025-09-25")
    index.wheel("unsloth", "2026.3", requires=("protobuf>=4",), day="2026-03-01")
    index.wheel("protobuf", "3.20.3", "4.25.0", day="2024-05-01")
    index.wheel("torch", "2.6.0", "2.7.0", day="2024-05-01")
    asked = ("unsloth>=2024.10", "protobuf>=4.25")
    facts = base("torch==2.6.0")
    answer = resolve(facts, *asked, as_of="2025-04-29", latest="2026-11-26")
    assert versions(answer) == {"protobuf": "4.25.0", "unsloth": "2025.9"}
    assert answer.as_of == "2025-10-26"  # two times ninety days
    assert answer.notes == (
        "resolved as of 2025-10-26, not 2025-04-29: the requirements have no solution then",
    )
    error_of(resolve, facts, *asked, as_of="2025-04-29", latest="2025-09-01")
    error_of(resolve, facts, *asked, as_of="2025-04-29", latest="2026-11-26", later=False)


def test_date_that_nobody_chose_moves_away_from_an_ancient_release(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As tsai: 0.3.9 excludes torch 2.5, and 0.2.17 of 2021 names no bound at all."""
    index.wheel("tsai", "0.2.17", day="2021-04-12")
    index.wheel("tsai", "0.3.9", requires=("torch<2.3",), day="2024-02-19")
    index.wheel("tsai", "0.4.0", requires=("torch<2.6",), day="2025-03-01")
    index.wheel("torch", "2.2.0", "2.5.1", day="2024-05-01")
    facts = base("torch==2.5.1", created="2025-01-27")
    answer = resolve(facts, "tsai", as_of="2025-01-27", latest="2026-11-26")
    assert versions(answer) == {"tsai": "0.4.0"}
    assert answer.notes == (
        "resolved as of 2025-04-27, not 2025-01-27: then tsai 0.2.17 is the newest that fits",
    )
    for fixed in ({"later": False, "latest": "2026-11-26"}, {"latest": "2025-02-20"}):
        answer = resolve(facts, "tsai", as_of="2025-01-27", **fixed)
        assert versions(answer) == {"tsai": "0.2.17"}
        assert [row.name for row in answer.ancient] == ["tsai"]


def test_ancient_preview_is_no_answer(index: SyntheticIndex, resolve: Resolve) -> None:
    """As allennlp-models, of which uv goes back to a preview: every release bounds torch."""
    index.wheel("allennlp", "1.0.0rc1", "1.0.0", "2.10.1", day="2020-04-16")
    index.wheel("models", "1.0.0rc1", day="2020-04-16")
    # only a bound that names a preview lets previews in (PEP 440)
    index.wheel("models", "1.0.0", requires=("torch<1.6", "allennlp>=1.0.0rc1"), day="2020-06-16")
    index.wheel("models", "2.10.1", requires=("torch<1.13",), day="2022-10-18")
    index.wheel("torch", "1.13.1", day="2022-12-15")
    facts = base("torch==1.13.1", created="2023-03-15")
    error = error_of(resolve, facts, "models>=1.0.0rc1", as_of="2023-03-15", latest="2026-11-26")
    assert "models>=2.10.1 needs torch<1.13" in error.what


def test_date_moves_to_a_release_that_needs_no_coupling(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """pytorch-lightning<1.9 goes with lightning-bolts before 0.7."""
    index.wheel("pytorch-lightning", "1.8.6", "1.9.5", day="2023-01-01")
    index.wheel("lightning-bolts", "0.6.0", day="2022-11-01")
    index.wheel("lightning-bolts", "0.7.0", day="2023-06-29")
    asked = ("pytorch-lightning==1.9.*", "lightning-bolts")
    answer = resolve(base(), *asked, as_of="2023-03-15", latest="2026-11-26")
    assert versions(answer) == {"lightning-bolts": "0.7.0", "pytorch-lightning": "1.9.5"}
    assert answer.as_of == "2023-09-11"


def test_refusal_tells_what_the_newest_release_needs(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As deepcell: uv's words are of each release, and what an old one needs helps nobody."""
    index.wheel("deepcell", "0.8.5", requires=("tensorflow-cpu==2.3.1",))
    index.wheel("deepcell", "0.8.8", requires=("tensorflow==2.3.1",))
    index.wheel("deepcell", "0.10.0", "0.11.1", requires=("tensorflow==2.5.1",))
    index.wheel("deepcell", "0.12.0", "0.12.10", requires=("tensorflow==2.8.0",))
    index.wheel("tensorflow", "2.3.1", "2.5.1", "2.8.0", "2.15.1")
    index.wheel("tensorflow-cpu", "2.3.1", "2.15.1")
    error = error_of(resolve, base("tensorflow==2.15.1"), "deepcell")
    _heading, reason, *_ = error.what.splitlines()
    assert reason == "- deepcell>=0.12.0 needs tensorflow==2.8.0; the base holds tensorflow 2.15.1"


def test_date_does_not_move_to_what_has_wheels_for_other_pythons_alone(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As numba 0.56.4 of GPT-SoVITS on Python 3.11, which it does not compile on."""
    index.wheel("user", "1.0", requires=("numba", "rich<2"), day="2024-01-01")
    index.wheel("user", "1.1", requires=("numba",), day="2024-12-01")
    index.wheel("rich", "1.0", "2.0", day="2024-01-01")
    setup = "from setuptools import setup\nsetup(name='numba', version='0.56.4')\n"
    index.sdist("numba", "0.56.4", files={"setup.py": setup}, day="2022-11-01")
    index.wheel("numba", "0.56.4", tag="cp310-cp310-manylinux2014_x86_64", day="2022-11-01")
    for tool in ("setuptools", "wheel"):
        index.wheel(tool, "70.0", day="2022-01-01")
    error = error_of(resolve, base(), "user", "rich>=2", as_of="2024-04-29", latest="2026-11-26")
    assert "user needs rich<2" in error.what


def test_date_moves_to_the_latest_of_several_and_never_into_the_future(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("flax", "0.10.0", day="2024-10-01")
    index.wheel("optax", "0.3.0", day="2025-03-01")
    answer = resolve(base(), "flax", "optax", as_of="2024-09-12", latest="2025-04-01")
    assert versions(answer) == {"flax": "0.10.0", "optax": "0.3.0"}
    assert answer.as_of == "2025-04-01"


def test_requirement_after_the_date_names_the_date(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("flax", "0.8.5", day="2024-07-01")
    index.wheel("flax", "0.10.0", day="2024-12-01")
    error = error_of(resolve, base(), "flax>=0.10", as_of="2024-09-12")
    assert error.what == (
        "the requirements have no solution on this base\n"
        "- newer releases of flax are left out: the resolution is as of 2024-09-12\n"
        "the resolver's reasoning: Because only flax==0.8.5 is available and you require flax>=0.10, we can conclude "
        "that your requirements are unsatisfiable."
    )
    assert error.hint == (
        "loosen flax>=0.10: flax 0.8.5 of 2024-07-01 fits this base\n"
        'or set as-of under [python] to a later date, or to "none"'
    )


def test_what_a_coupling_asks_for_may_be_younger_than_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """numpy 1.21 and later goes with numba 0.55: of that, the release that allows the pin came out months after it."""
    index.wheel("numpy", "1.20.0", day="2021-02-01")
    index.wheel("numpy", "1.22.0", day="2021-12-31")
    index.wheel("numba", "0.53.1", day="2021-03-01", requires=("numpy>=1.15",))
    index.wheel("numba", "0.55.0", day="2022-01-13", requires=("numpy<1.22,>=1.18",))
    index.wheel("numba", "0.55.2", day="2022-05-26", requires=("numpy<1.23", "llvmlite>=0.38"))
    index.wheel("numba", "0.56.0", day="2022-07-25", requires=("numpy<1.23", "llvmlite>=0.38"))
    index.wheel("llvmlite", "0.38.0", day="2022-01-13")
    index.wheel("pymatting", "1.1.1", day="2020-01-01", requires=("numba", "numpy"))
    index.wheel("other", "1.0", day="2021-01-01")
    index.wheel("other", "2.0", day="2022-02-01")
    asked = ("numpy==1.22.0", "pymatting==1.1.1", "other")
    answer = resolve(base(), *asked, as_of="2021-12-19", latest="2026-06-01")
    found = versions(answer)
    assert (found["numba"], found["llvmlite"], found["other"]) == ("0.55.2", "0.38.0", "1.0")
    assert answer.as_of == "2022-01-01"
    assert answer.notes == (
        "resolved as of 2022-01-01, not 2021-12-19: numpy==1.22.0 has no release before 2021-12-31",
        "llvmlite 0.38.0, numba 0.55.2: the first that goes with numpy==1.22.0, pymatting==1.1.1, younger than 2022-01-01",
    )
    index.wheel("pymatting", "1.1.2", day="2020-02-01", requires=("numba<0.55", "numpy"))
    with pytest.raises(NoSolutionError):
        resolve(
            base(), "numpy==1.22.0", "pymatting==1.1.2", as_of="2021-12-19", latest="2026-06-01"
        )


def test_a_pin_moves_the_date_to_its_own_day(index: SyntheticIndex, resolve: Resolve) -> None:
    """Nothing months younger than the pin comes along: flask 1.1 fails beside a jinja2 of the next spring."""
    index.wheel("tool", "1.1.0", day="2024-11-21", requires=("other",))
    index.wheel("other", "1.0", day="2024-06-01")
    index.wheel("other", "2.0", day="2025-01-15")
    answer = resolve(base(), "tool==1.1.0", as_of="2024-09-12", latest="2026-06-01")
    assert (answer.as_of, versions(answer)["other"]) == ("2024-11-22", "1.0")
    index.wheel("late", "1.0", day="2024-12-24")
    index.wheel("user", "1.0", day="2024-11-21", requires=("late", "other"))
    index.wheel("late", "0.1", day="2024-01-01", requires=("missing",))
    patient = resolve(base(), "user==1.0", as_of="2024-09-12", latest="2026-06-01")
    assert (patient.as_of, versions(patient)["late"]) == ("2025-02-19", "1.0")


def test_builds_of_every_night_do_not_move_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """An index keeps the last months of them: grain-nightly began in 2023, its oldest build is of 2025."""
    index.wheel("grain-nightly", "0.2.11.dev20250623", day="2025-06-23", requires=("flax",))
    index.wheel("grain-nightly", "0.2.16.dev20260112", day="2026-01-12", requires=("flax",))
    index.wheel("flax", "0.8.3", day="2024-04-01")
    index.wheel("flax", "0.10.0", day="2025-01-15")
    answer = resolve(base(), "grain-nightly", "flax", as_of="2024-09-12", latest="2026-06-01")
    assert versions(answer) == {"grain-nightly": "0.2.11.dev20250623", "flax": "0.8.3"}
    assert answer.as_of == "2024-09-12"
    assert (
        "grain-nightly 0.2.11.dev20250623: the oldest build that the index still has, younger than 2024-09-12"
        in answer.notes
    )


def test_a_pin_whose_day_the_index_does_not_tell_is_free_of_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("install", "1.3.5", day="2021-05-01")
    page = index.simple / "install" / "index.html"
    page.write_text(page.read_text().replace(' data-upload-time="2021-05-01T00:00:00Z"', ""))
    index.wheel("rich", "13.0", day="2024-01-01")
    index.wheel("rich", "14.0", day="2025-06-01")
    answer = resolve(base(), "install==1.3.5", "rich", as_of="2024-09-12", latest="2026-06-01")
    assert versions(answer) == {"install": "1.3.5", "rich": "13.0"}
    assert (
        "the index does not tell the day of install==1.3.5: the date does not count for it"
        in answer.notes
    )


@pytest.mark.parametrize(
    ("chosen", "most"), [("1.0", 3), ("0.1", 9)], ids=["a wheel fits", "an archive alone"]
)
def test_old_source_archives_are_not_read_one_by_one(
    chosen: str,
    most: int,
    index: SyntheticIndex,
    resolve: Resolve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index.wheel("other", "1.0", "2.0")
    index.wheel("user", "1.0", requires=("old",))
    for minor in range(1, 8):
        newer = f"[project]\nname = 'old'\nversion = '1.{minor}'\ndependencies = ['other>=2']\n"
        index.sdist("old", f"1.{minor}", files={"pyproject.toml": newer})
    if chosen == "1.0":
        index.wheel("old", "1.0")
    index.wheel("setuptools", "80.0")
    index.wheel("wheel", "0.45")
    plain = "[project]\nname = 'old'\nversion = '0.1'\ndependencies = []\n"
    index.sdist("old", "0.1", files={"pyproject.toml": plain})
    read: list[str] = []
    own = Session._read_statically

    def count(session: Session, pin: tuple[str, str], as_of: str | None) -> None:
        read.append(pin[1])
        own(session, pin, as_of)

    monkeypatch.setattr(Session, "_read_statically", count)
    answer = resolve(base(), "user", "other==1.0")
    assert versions(answer)["old"] == chosen
    assert len(set(read)) <= most


def test_cudnn_is_no_package_that_gives_way(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("ctranslate2", "4.4.0", "4.5.0")
    facts = base("torch==2.5.1", "nvidia-cudnn-cu12==9.1.0.70")
    error = error_of(resolve, facts, "ctranslate2<4.5")
    assert "ctranslate2>=4.5 goes with cudnn 9.1.0.70" in error.what


# ------------------------------------------------------------------ conflicts in the user's words


def test_conflict_names_who_wants_what_and_what_the_base_holds(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.4.0", "2.6.0")
    index.wheel("torchvision", "0.21.0", requires=("torch==2.6.0",))
    index.wheel("vllm", "0.8.5", requires=("torchvision==0.21.0", "torch==2.6.0"))
    facts = base("torch==2.4.0a0+f70bd71a48.nv24.6", "torchvision==0.19.0a0")
    error = error_of(resolve, facts, "vllm==0.8.5")
    head, derivation = error.what.rsplit("\n", 1)
    assert head == (
        "the requirements have no solution on this base\n"
        "- vllm==0.8.5 needs torch==2.6.0; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0\n"
        "- vllm==0.8.5 needs torchvision==0.21.0; the base holds torchvision 0.19.0a0, taken as 0.19.0"
    )
    assert derivation.startswith("the resolver's reasoning: Because ")
    assert "+base" not in error.what.replace(derivation, "")
    hint = error.hint or ""
    assert hint.startswith("take a base that holds torch==2.6.0: docker://pytorch/pytorch:2.6.0")
    assert 'bootstrap = "debian:bookworm" with framework = "torch==2.6.*"' in hint
    assert "loosen" not in hint, "no other release of vllm is there"


def test_nothing_is_proposed_that_was_not_tried(index: SyntheticIndex, resolve: Resolve) -> None:
    """A base with the right torch does not help where something else is in the way as well."""
    index.wheel("torch", "2.4.0", "2.6.0")
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0", "other>=2"))
    index.wheel("other", "1.0")
    error = error_of(resolve, base("torch==2.4.0"), "vllm==0.8.5", "other")
    assert error.hint is not None
    assert error.hint == "leave out vllm==0.8.5: the rest fits"


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (("vllm==0.8.5", "other>=2"), "vllm==0.8.5"),  # what the image's framework requires
        (("torch==2.2.0", "numpy==2.1.0"), "torch==2.2.0"),  # what is coupled with it
    ],
)
def test_another_base_keeps_to_what_its_own_framework_needs(
    wanted: tuple[str, ...], named: str, index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.2.0", "2.4.0")
    index.wheel("torch", "2.6.0", requires=("other<2",))
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0",))
    index.wheel("other", "1.0", "2.0")
    index.wheel("numpy", "1.26.4", "2.1.0")
    error = error_of(resolve, base("torch==2.4.0"), *wanted)
    assert named in error.what
    assert "take a base" not in (error.hint or "")


def test_pin_that_is_in_the_way_is_told_with_what_would_fit(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.4.0", "2.6.0")
    index.wheel("vllm", "0.6.3", requires=("torch==2.4.0",), day="2024-10-17")
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0",))
    error = error_of(resolve, NGC, "vllm==0.8.5")
    assert error.hint == (
        "loosen vllm==0.8.5: vllm 0.6.3 of 2024-10-17 fits this base\n"
        "or take a base that holds torch==2.6.0: docker://pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
        " (torch==2.6.0, Python 3.11.11)"
        ' or bootstrap = "debian:bookworm" with framework = "torch==2.6.*" (Python 3.11)'
    )


def test_a_later_date_is_proposed_where_each_requirement_has_an_older_release(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("unsloth", "2024.10", requires=("protobuf<4",), day="2024-10-01")
    index.wheel("unsloth", "2025.9", requires=("protobuf>=4",), day="2025-09-25")
    index.wheel("protobuf", "3.20.3", "4.25.0")
    error = error_of(resolve, base(), "unsloth>=2024.10", "protobuf>=4.25", as_of="2025-04-29")
    assert 'set as-of under [python] to a later date, or to "none"' in (error.hint or "")


def test_a_framework_whose_extra_lacks_this_python_is_on_another_base(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """The release that fits is no release candidate, though uv answers with one above the last."""
    extra = "tensorrt==8.5.3.1 ; extra == 'and-cuda'"
    index.wheel("tensorflow", "2.14.0", requires=(extra,))
    later = "nvidia-cudnn-cu12 ; extra == 'and-cuda'"
    index.wheel("tensorflow", "2.15.1", "2.16.0rc0", requires=(later,), day="2024-03-08")
    index.wheel("nvidia-cudnn-cu12", "8.9.4.25")
    index.wheel("tensorrt", "8.5.3.1", tag="cp39-none-any")
    wanted = "tensorflow[and-cuda]==2.14.0"
    error = error_of(resolve, base(), wanted, framework=wanted)
    assert error.hint == (
        f"loosen {wanted}: tensorflow 2.15.1 of 2024-03-08 fits this base\n"
        f'or take a base that holds {wanted}: bootstrap = "debian:bullseye" with framework = '
        '"tensorflow[and-cuda]==2.14.*" (Python 3.9)'
    )


def test_bound_on_a_part_of_a_framework_names_a_base_with_that_framework(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As jax-md 0.2.26, which bounds jaxlib."""
    for version in ("0.4.30", "0.10.2"):
        plugin = "jax-cuda12-plugin ; extra == 'cuda12'"
        index.wheel("jax", version, requires=(f"jaxlib=={version}", plugin))
        index.wheel("jaxlib", version)
    index.wheel("jax-cuda12-plugin", "0.10.2")
    index.wheel("jax-md", "0.2.26", requires=("jaxlib>=0.5.0",))
    error = error_of(resolve, base("jax==0.4.30", "jaxlib==0.4.30"), "jax-md")
    assert (error.hint or "").startswith("take a base that holds jax>=0.5.0: ")


def test_a_coupling_in_the_way_names_the_framework_that_it_does_not_hold_for(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """No torchtext goes with torch 2.4, and ESM requires one: with torch 2.3 there is an answer."""
    index.wheel("torch", "2.3.1", "2.4.1")
    index.wheel("torchtext", "0.18.0", requires=("torch>=2.3.0",))
    index.wheel("esm", "3.1.2", requires=("torch", "torchtext"))
    error = error_of(resolve, base("torch==2.4.1"), "esm")
    assert (error.hint or "").startswith("take a base that holds torch<2.4: ")
    assert 'framework = "torch==2.3.*"' in (error.hint or "")


def test_no_date_is_a_hint_that_brings_no_asked_extra(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """fair-esm 1.0.3 has no extra esmfold, and the one that has it wants a triton of 2021."""
    index.wheel("fair-esm", "1.0.3", day="2022-01-01")
    wanted = ("triton==1.0.0 ; extra == 'esmfold'",)
    index.wheel("fair-esm", "2.0.0", requires=wanted, day="2022-11-01")
    index.wheel("triton", "1.0.0", "2.1.0")
    index.wheel("rich", "13.0", "14.0", day="2024-06-01")
    held = base("torch==2.1.2", "triton==2.1.0", requires={"torch": ("triton==2.1.0",)})
    error = error_of(resolve, held, "fair-esm[esmfold]", "rich", as_of="2024-03-13")
    assert "as-of" not in (error.hint or "")


def test_a_refusal_that_nobody_reads_has_the_same_reasons_and_no_hint(
    index: SyntheticIndex, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.wheel("torch", "2.4.0", "2.6.0")
    index.wheel("vllm", "0.6.3", requires=("torch==2.4.0",))
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0",))
    whole = error_of(resolve, NGC, "vllm==0.8.5")
    monkeypatch.setattr("envbuild.resolve.uv.refusal.suggest_changes", None)
    error = error_of(resolve, NGC, "vllm==0.8.5", hints=False)
    assert (error.what, error.hint) == (whole.what, None)


def test_requirements_that_exclude_each_other(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("numpy", "1.13.3", "1.18.2", day="2020-03-17")
    index.wheel("tensorflow", "1.15.2", requires=("numpy>=1.16",))
    index.wheel("tensorflow", "1.14.0", requires=("numpy",), day="2019-06-01")
    error = error_of(resolve, base(), "tensorflow==1.15.2", "numpy==1.13.3")
    assert (
        error.what.splitlines()[1]
        == "- tensorflow>=1.15.2 needs numpy>=1.16; you ask for numpy==1.13.3"
    )
    assert error.hint == (
        "loosen tensorflow==1.15.2, though only tensorflow 1.14.0 of 2019-06-01 fits then, years older than this base\n"
        "or loosen numpy==1.13.3: numpy 1.18.2 of 2020-03-17 fits this base"
    )


def test_extra_that_nobody_asked_for_is_explained(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("transformers", "4.99.0", requires=("torch>=2.6 ; extra == 'torch'",))
    error = error_of(resolve, NGC, "transformers==4.99.0")
    assert error.what.splitlines()[1] == (
        "- transformers==4.99.0 needs torch>=2.6; the base holds torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0"
    )


def test_date_is_not_what_is_in_the_way_of_a_release_for_another_python(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("transformers", "4.40.0", day="2024-04-18", python=">=3.8")
    facts = base("tensorflow-gpu==2.4.1", python="3.6.9", glibc="2.27", created="2021-01-21")
    error = error_of(
        resolve, facts, "transformers==4.40.0", as_of="2021-04-21", latest="2026-11-21"
    )
    assert (
        error.what.splitlines()[1]
        == "- transformers==4.40.0 needs Python >=3.8; the base has 3.6.9"
    )
    assert "take another base: docker://" in (error.hint or "")


def test_package_without_a_file_for_the_base(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("open3d", "0.19.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    error = error_of(resolve, base(), "open3d")
    assert (
        error.what.splitlines()[1]
        == "- open3d==0.19.0 has no wheels for Python 3.11.2, and no source"
    )
    assert error.hint == "take a base with Python 3.12"


def test_package_that_does_not_exist(index: SyntheticIndex, resolve: Resolve) -> None:
    error = error_of(resolve, base(), "nunpy")
    assert error.what.splitlines()[1] == "- nunpy is not on the index"
    assert error.hint == (
        "check the spelling of nunpy; packages of another index need its name under [python] indexes"
    )


def test_a_release_that_the_index_lacks_is_named(index: SyntheticIndex, resolve: Resolve) -> None:
    """As jax[tpu] 0.4.38, whose libtpu-nightly lies elsewhere, and torch==2.3.1+cpu."""
    index.wheel("libtpu", "0.1")
    index.wheel("jax", "0.4.38", requires=("libtpu==0.0.5+nightly",))
    said = error_of(resolve, base(), "jax").what.splitlines()
    assert said[1] == "- the index has no libtpu==0.0.5+nightly"
    assert (
        error_of(resolve, base(), "jax==0.5+cpu").what.splitlines()[1]
        == "- the index has no jax==0.5+cpu"
    )


def test_package_for_a_newer_python(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("numpy", "2.2.0", python=">=3.10")
    error = error_of(resolve, base(python="3.8.10", glibc="2.31"), "numpy==2.2.0")
    assert error.what.splitlines()[1] == "- numpy==2.2.0 needs Python >=3.10; the base has 3.8.10"


def test_companion_rule_is_named_with_its_source(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("keras", "2.3.1", "2.10.0", "3.5.0")
    assert versions(resolve(TF21, "keras")) == {"keras": "2.3.1"}
    assert (
        "keras>=2.3,<2.4 goes with tensorflow 2.1.0 (CODE keras 2.3.1"
        in error_of(resolve, TF21, "keras>=2.10").what
    )


def test_companion_of_a_framework_that_is_new_itself(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("jax", "0.4.26")
    index.wheel("jaxlib", "0.4.25", "0.4.26", "0.4.38")
    index.wheel("dm-haiku", "0.0.12", requires=("jax", "jaxlib>=0.4.20"))
    assert versions(resolve(base(), "jax==0.4.26", "dm-haiku"))["jaxlib"] == "0.4.26"


def test_companion_of_a_new_framework_that_cannot_be_had_is_refused(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("jax", "0.4.26")
    index.wheel("jaxlib", "0.4.38")
    error = error_of(resolve, base(), "jax==0.4.26", "jaxlib==0.4.38")
    assert "jaxlib<=0.4.26 goes with jax 0.4.26 (META extra [cpu]" in error.what


def test_couplings_are_followed_to_the_end(index: SyntheticIndex, resolve: Resolve) -> None:
    """What one coupling brings may be coupled itself: torch holds numpy below 2, that holds nothing; keras holds back."""
    index.wheel("tensorflow-cpu", "2.15.1", requires=("numpy",))
    index.wheel("numpy", "1.26.4", "2.2.0")
    index.wheel("keras", "2.15.0", requires=("h5py",))
    index.wheel("keras", "3.5.0", requires=("h5py",))
    index.wheel("h5py", "3.10.0", "3.12.0", requires=("numpy",))
    found = versions(resolve(base(), "tensorflow-cpu", "keras"))
    assert (found["keras"], found["numpy"]) == ("2.15.0", "1.26.4")


def test_companion_of_a_new_framework_under_another_name(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("tensorflow-cpu", "2.10.1")
    index.wheel("keras", "2.10.0", "3.5.0")
    assert versions(resolve(base(), "tensorflow-cpu", "keras"))["keras"] == "2.10.0"


def test_extra_that_carries_the_bound_is_asked_for(index: SyntheticIndex, resolve: Resolve) -> None:
    for version, bound in (("4.40.0", "2.0"), ("4.99.0", "2.6")):
        index.wheel(
            "transformers",
            version,
            requires=(f"torch>={bound} ; extra == 'torch'", "accelerate ; extra == 'torch'"),
        )
    index.wheel("accelerate", "1.0.0")
    answer = resolve(NGC, "transformers")
    assert versions(answer) == {"accelerate": "1.0.0", "transformers": "4.40.0"}
    assert {package.name: package.via for package in answer.packages} == {
        "accelerate": ("transformers",),
        "transformers": ("(direct)",),
    }
    assert [row.newest for row in answer.held_back] == ["4.99.0"]
    assert versions(resolve(base(), "transformers")) == {"transformers": "4.99.0"}


def test_unreachable_index(resolver_at: Resolver) -> None:
    resolver = resolver_at("http://127.0.0.1:9")
    with pytest.raises(NetworkError) as caught:
        resolver(Request(facts=base(), requirements=("rich",)))
    assert str(caught.value) == (
        "http://127.0.0.1:9/simple/rich/: the package index did not answer: Connection refused (os error 111)"
    )


def test_an_upgrade_asks_for_pages_that_were_just_read(
    server: Server, resolver_at: Resolver, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, "six", "1.16.0", ())
    server.page("six", server.put(wheel.name, wheel.read_bytes()))
    resolver = resolver_at(server.url)
    asked = Request(facts=base(), requirements=("six",))
    first = resolver(asked)
    server.status["simple/six/"] = 503
    assert resolver(asked) == first
    with pytest.raises(NetworkError, match=r"simple/six/.*503"):
        resolver(dataclasses.replace(asked, refresh=True))


# ------------------------------------------------------------------ source packages

SETUP = "import setuptools, somewhere\nsetuptools.setup(**somewhere.told())\n"


def test_sdist_that_does_not_build_here_is_read(
    index: SyntheticIndex, resolve: Resolve, tmp_path: Path
) -> None:
    files = {
        "setup.py": SETUP,
        "old.egg-info/requires.txt": "six>=1.10\n\n[gpu]\ncupy\n",
        "PKG-INFO": "Name: old\n",
    }
    index.sdist("old", "0.9.0", files=files)
    index.wheel("six", "1.16.0")
    index.wheel("setuptools", "70.0", requires=())
    index.wheel("wheel", "0.43.0")
    index.wheel("cupy", "13.0")
    assert versions(resolve(base(), "old[gpu]==0.9.0")) == {
        "cupy": "13.0",
        "old": "0.9.0",
        "six": "1.16.0",
    }
    answer = resolve(base(), "old")
    assert versions(answer) == {"old": "0.9.0", "six": "1.16.0"}
    assert answer.packages[0].is_sdist
    assert answer.packages[0].requires == ("six>=1.10", 'cupy; extra == "gpu"')
    assert [(item.name, item.version, item.via) for item in answer.build] == [
        ("setuptools", "70.0", ("old",)),
        ("wheel", "0.43.0", ("old",)),
    ]
    assert answer.notes == (
        (
            "old 0.9.0 computes its requirements in setup.py, which is not run: taken are those of its author's machine"
        ),
    )
    assert (tmp_path / "store/v1/artifacts").is_dir()
    assert resolve(base(), "old") == answer


def test_the_seconds_of_a_question_are_for_all_archives_that_it_reads(
    index: SyntheticIndex, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        index.sdist(name, "1.0", files={"setup.py": SETUP, "PKG-INFO": f"Name: {name}\n"})
    question = Question(requirements=("first", "second"))

    def open_session(name: str) -> Session:
        (tmp_path / name).mkdir()
        own = dataclasses.replace(settings, store=tmp_path / name / "store")
        context = quiet_context(own)
        indexes = {"default": index.url}
        return Session(
            folder=tmp_path / name,
            facts=base(),
            stubs=Stubs({}),
            indexes=indexes,
            context=context,
        )

    assert set(open_session("quick").ask(question)) == {"first", "second"}
    session = open_session("slow")
    slow = itertools.count(0, 10)
    monkeypatch.setattr(
        "envbuild.resolve.uv.session.time", SimpleNamespace(monotonic=lambda: next(slow))
    )
    with pytest.raises(HostError, match="uv did not finish within 15 s"):
        session.ask(dataclasses.replace(question, seconds=15.0))


def test_build_requirements_leave_the_protected_ones_to_the_base(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    pyproject = '[build-system]\nrequires = ["hatchling", "torch", "numpy"]\nbuild-backend = "hatchling.build"\n'
    index.sdist("ext", "1.0", files={"pyproject.toml": pyproject, "PKG-INFO": "Name: ext\n"})
    index.wheel("hatchling", "1.24.0", requires=("pluggy",))
    index.wheel("pluggy", "1.5.0")
    index.wheel("torch", "2.5.1")
    index.wheel("numpy", "1.24.4", "1.26.4")
    answer = resolve(NGC, "ext")
    assert [(item.name, item.version, item.via) for item in answer.build] == [
        ("hatchling", "1.24.0", ("ext",)),
        ("numpy", "1.24.4", ("ext",)),
        ("pluggy", "1.5.0", ("hatchling",)),
    ]


BACKEND = """\
from importlib.metadata import version


def get_requires_for_build_wheel(settings):
    return ["cython>=" + version("tool"), "torch"]
"""


EXT = {
    "pyproject.toml": '[build-system]\nrequires = ["tool"]\nbuild-backend = "own"\nbackend-path = ["conf"]\n',
    "PKG-INFO": "Metadata-Version: 2.2\nName: ext\nVersion: 1.0\n",
}


def test_a_build_backend_is_asked_what_else_it_needs_where_the_user_allows_it(
    index: SyntheticIndex, resolver_with: Resolver
) -> None:
    index.sdist("ext", "1.0", files={**EXT, "conf/own.py": BACKEND})
    index.wheel("tool", "3.0")
    index.wheel("cython", "3.0.11")
    index.wheel("torch", "2.5.1")
    here = f"{sys.version_info.major}.{sys.version_info.minor}.1"
    asked = Request(facts=msgspec.structs.replace(NGC, python=here), requirements=("ext",))
    for _ in range(2):  # the second answer is remembered
        answer = resolver_with(host_builds=True)(asked)
        assert [(item.name, item.version, item.via) for item in answer.build] == [
            ("cython", "3.0.11", ("ext",)),
            ("tool", "3.0", ("ext",)),
        ]
    assert [item.name for item in resolver_with()(asked).build] == ["tool"]


def test_a_backend_that_fails_here_adds_nothing(
    index: SyntheticIndex, resolver_with: Resolver
) -> None:
    index.sdist(
        "ext", "1.0", files={**EXT, "conf/own.py": "raise OSError('only on the cluster')\n"}
    )
    index.wheel("tool", "3.0")
    answer = resolver_with(host_builds=True)(Request(facts=base(), requirements=("ext",)))
    assert [item.name for item in (*answer.packages, *answer.build)] == ["ext", "tool"]


def test_what_known_backends_ask_for_is_data(index: SyntheticIndex, resolve: Resolve) -> None:
    pyproject = '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'
    index.sdist("ext", "1.0", files={**EXT, "pyproject.toml": pyproject})
    for name in ("scikit-build-core", "cmake", "ninja"):
        index.wheel(name, "3.30")
    assert [item.name for item in resolve(base(), "ext").build] == [
        "cmake",
        "ninja",
        "scikit-build-core",
    ]


def test_a_package_is_built_where_that_is_asked_for(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """Its wheels do not count, those of others do; a release without a source archive is no answer."""
    index.wheel("mpi4py", "4.1.2", "4.2.0")
    index.sdist("mpi4py", "4.1.2", files={"setup.py": SETUP, "PKG-INFO": "Name: mpi4py\n"})
    for name in ("numpy", "setuptools", "wheel"):
        index.wheel(name, "1.26.4")
    answer = resolve(base(), "mpi4py", "numpy", from_source=("mpi4py",))
    assert {item.name: item.file.file for item in answer.packages} == {
        "mpi4py": "mpi4py-4.1.2.tar.gz",
        "numpy": "numpy-1.26.4-py3-none-any.whl",
    }


def test_a_row_that_leaves_no_wheel_holds_for_nothing_that_is_compiled(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.sdist("torchopt", "0.7.3", files={"setup.py": SETUP, "PKG-INFO": "Name: torchopt\n"})
    index.wheel("torchopt", "0.7.3")
    for name in ("setuptools", "wheel"):
        index.wheel(name, "70.0")
    facts = base("torch==2.7.1")
    assert "torchopt<0 goes with torch 2.7.1" in error_of(resolve, facts, "torchopt").what
    answer = resolve(facts, "torchopt", from_source=("TorchOpt",))
    assert versions(answer) == {"torchopt": "0.7.3"}


def test_build_requirements_give_up_the_date_before_they_give_up(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    pyproject = (
        '[build-system]\nrequires = ["flit-core>=4"]\nbuild-backend = "flit_core.buildapi"\n'
    )
    index.sdist("ext", "1.0", files={"pyproject.toml": pyproject, "PKG-INFO": "Name: ext\n"})
    index.wheel("flit-core", "4.0", day="2025-01-01")
    answer = resolve(base(), "ext", as_of="2024-09-12")
    assert [(item.name, item.version) for item in answer.build] == [("flit-core", "4.0")]


def test_build_requirements_without_a_solution(index: SyntheticIndex, resolve: Resolve) -> None:
    pyproject = (
        '[build-system]\nrequires = ["flit-core>=4"]\nbuild-backend = "flit_core.buildapi"\n'
    )
    index.sdist("ext", "1.0", files={"pyproject.toml": pyproject, "PKG-INFO": "Name: ext\n"})
    error = error_of(resolve, base(), "ext")
    assert error.what == (
        "the build requirements of ext have no solution: Because flit-core was not found in the package"
        " registry and you require flit-core>=4, we can conclude that your requirements are unsatisfiable."
    )


# ------------------------------------------------------------------ indexes, files, nothing at all


def test_named_index_is_asked_first_and_remembered(
    index: SyntheticIndex, resolver_with: Resolver, tmp_path: Path
) -> None:
    other = SyntheticIndex(tmp_path / "other")
    index.wheel("torch", "2.6.0")
    index.wheel("rich", "14.0")
    other.wheel("torch", "2.5.1+cu121")
    resolver = resolver_with(indexes={"default": index.url, "cu121": other.url})
    answer = resolver(Request(facts=base(), requirements=("torch", "rich"), indexes=("cu121",)))
    assert versions(answer) == {"rich": "14.0", "torch": "2.5.1+cu121"}
    assert {package.name: package.file.index for package in answer.packages} == {
        "rich": None,
        "torch": "cu121",
    }
    again = resolver(
        Request(facts=base("rich==13.0"), requirements=("torch", "rich>=14"), indexes=("cu121",))
    )
    assert versions(again) == versions(answer)


def test_unknown_and_reserved_index_names(resolve: Resolve) -> None:
    with pytest.raises(UsageError, match="no index is called 'cu121' on this machine"):
        resolve(base(), "rich", indexes=("cu121",))
    with pytest.raises(UsageError, match='"default" and "base" are not names of extra indexes'):
        resolve(base(), "rich", indexes=("base",))


def test_nothing_asked_on_an_empty_base(resolve: Resolve) -> None:
    answer = resolve(base())
    assert (answer.packages, answer.provided, answer.notes) == ((), (), ())


def test_requirement_that_does_not_apply_is_told(index: SyntheticIndex, resolve: Resolve) -> None:
    answer = resolve(base(), "pywin32 ; sys_platform == 'win32'")
    assert answer.packages == ()
    assert answer.notes == (
        "pywin32 ; sys_platform == 'win32' does not apply to this base: its marker is false there",
    )


def test_best_wheel_for_the_base_is_taken_with_size_and_hash(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel(
        "rich", "14.0", requires=("pygments>=2.13", "typing-extensions ; python_version < '3.11'")
    )
    index.wheel("pygments", "2.18")
    found = resolve(base(), "rich").packages[1]
    path = index.simple / "rich" / found.file.file
    assert found.file.size == path.stat().st_size
    assert found.file.url == f"file://{path}"
    assert found.requires == ("pygments>=2.13", 'typing-extensions; python_version < "3.11"')


def test_nothing_is_left_behind(index: SyntheticIndex, resolve: Resolve, tmp_path: Path) -> None:
    index.wheel("rich", "14.0")
    resolve(base(), "rich")
    error_of(resolve, base(), "nunpy")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("envbuild")] == []


def test_withdrawn_release_and_missing_extra_are_told(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("rich", "13.0", "14.0")
    page = index.simple / "rich" / "index.html"
    page.write_text(page.read_text().replace('">rich-13', '" data-yanked="broken build">rich-13'))
    answer = resolve(NGC, "rich==13.0", "torch[opt]")
    assert versions(answer) == {"rich": "13.0"}
    assert sorted(answer.notes) == [
        "rich 13.0 was withdrawn by its authors: broken build",
        "torch 2.4.0a0+f70bd71a48.nv24.6, taken as 2.4.0 (in the base) has no extra named opt: nothing is added for it",
    ]


def test_date_that_is_none(resolve: Resolve) -> None:
    with pytest.raises(UsageError, match="as-of: '2024-13-01' is not a date such as 2024-06-10"):
        resolve(base(), "rich", as_of="2024-13-01")


def test_hostile_facts_stay_in_their_place(
    index: SyntheticIndex, resolve: Resolve, tmp_path: Path
) -> None:
    index.wheel("rich", "14.0")
    facts = base(
        "../../../escaped==1.0", "rich\n[[index]]==1.0", "six==1.0\nevil", "ok==1.0", cuda="12; rm"
    )
    answer = resolve(facts, "rich", "ok")
    assert versions(answer) == {"rich": "14.0"}
    assert answer.notes == (
        "'../../../escaped' of the base is left out: no distribution has such a name",
        "'rich\\n[[index]]' of the base is left out: no distribution has such a name",
        "six 1.0\\nevil of the base is left out: its version is not PEP 440",
    )
    assert list(tmp_path.rglob("*escaped*")) == []


@pytest.mark.parametrize("python", ["3", "three", "3.11 --index-url x", "-3.11", "3.11.2\n"])
def test_hostile_python_version(python: str, resolve: Resolve) -> None:
    with pytest.raises(UsageError, match="is not a version such as"):
        resolve(base(python=python), "rich")


def withdraw(index: SyntheticIndex, name: str, version: str) -> None:
    page = index.simple / name / "index.html"
    page.write_text(
        page.read_text().replace(f'">{name}-{version}', f'" data-yanked="">{name}-{version}')
    )


def test_release_that_was_withdrawn_is_none_before_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("whisperx", "3.0", day="2024-01-01")
    index.wheel("whisperx", "3.1", day="2024-12-01")
    index.wheel("rich", "13.0", day="2024-01-01")
    withdraw(index, "whisperx", "3.0")
    answer = resolve(base(), "whisperx", "rich", as_of="2024-09-12", latest="2026-06-01")
    assert versions(answer) == {"whisperx": "3.1", "rich": "13.0"}
    assert answer.notes == (
        "resolved as of 2025-03-01, not 2024-09-12: whisperx has no release before 2024-12-01",
    )


def test_what_others_require_is_younger_where_all_before_the_date_was_withdrawn(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("tifffile", "2020.2", requires=("imagecodecs>=2020.1",), day="2020-02-16")
    index.wheel("imagecodecs", "2020.1", day="2020-01-31")
    index.wheel("imagecodecs", "2020.5", day="2020-05-30")
    withdraw(index, "imagecodecs", "2020.1")
    answer = resolve(base(), "tifffile==2020.2", as_of="2020-04-07", latest="2026-06-01")
    assert versions(answer) == {"tifffile": "2020.2", "imagecodecs": "2020.5"}


def test_one_withdrawn_release_of_several_frees_no_name_from_the_date(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """As tensorboard 2.11.1, whose neighbours want an older google-auth-oauthlib."""
    index.wheel("board", "2.10", "2.11", "2.12", requires=("auth<0.5",))
    page = index.simple / "board" / "index.html"
    page.write_text(page.read_text().replace('">board-2.11', '" data-yanked="a bug">board-2.11'))
    index.wheel("board", "3.0", day="2025-09-01")
    index.wheel("light", "1.0", requires=("board>2",))
    index.wheel("auth", "0.4", "1.0")
    answer = resolve(base(), "light", "auth", as_of="2024-09-12")
    assert versions(answer) == {"light": "1.0", "auth": "0.4", "board": "2.12"}


def test_all_releases_withdrawn_and_no_date(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("whisperx", "3.0", day="2024-01-01")
    withdraw(index, "whisperx", "3.0")
    for dated in ({}, {"as_of": "2024-09-12", "latest": "2026-06-01"}):
        with pytest.raises(
            NoSolutionError, match="whisperx has no release that its authors have not withdrawn"
        ):
            resolve(base(), "whisperx", **dated)


def test_a_build_that_only_its_makers_index_has(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("torch", "2.0.1")
    error = error_of(resolve, base(), "torch==2.0.1+cu118")
    assert error.hint is not None
    assert error.hint.splitlines()[0] == (
        'name the index of the builds "+cu118": indexes = ["cu118"] under [python], '
        "and its address on this machine: export ENVBUILD_INDEX_CU118=https://…"
    )


def test_builds_of_a_named_index_as_pytorch_serves_them(
    index: SyntheticIndex, server: Server, settings: Settings, tmp_path: Path
) -> None:
    """Over HTTP: an escaped plus in the address, links from the server's root, many builds on one page."""
    builds = SyntheticIndex(tmp_path / "builds")
    names = [f"torch-2.0.1+{build}" for build in ("cpu", "cu117", "cu118")] + ["torch-2.1.0+cu118"]
    links = []
    for name in names:
        builds.wheel("torch", name.removeprefix("torch-"), tag="cp311-cp311-linux_x86_64")
        file = f"{name}-cp311-cp311-linux_x86_64.whl"
        data = next(builds.simple.rglob(file)).read_bytes()
        address = f"whl/cu118/{file.replace('+', '%2B')}"
        server.files[address] = data
        links.append(f'<a href="/{address}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>')
    server.files["whl/cu118/torch/"] = f"<!DOCTYPE html><body>{''.join(links)}</body>".encode()
    index.wheel("torch", "2.0.1", "2.1.0")
    index.wheel("rich", "13.0")
    environment = {**settings.environment, "ENVBUILD_INDEX_CU118": f"{server.url}/whl/cu118"}
    context = quiet_context(load_settings(environment, tmp_path))
    asked = Request(facts=base(), requirements=("torch==2.0.1+cu118", "rich"), indexes=("cu118",))
    stage = PageCounter()
    answer = UvResolver(context, stage)(asked)
    assert versions(answer) == {"rich": "13.0", "torch": "2.0.1+cu118"}
    assert stage.count > 0
    torch = next(package for package in answer.packages if package.name == "torch")
    assert torch.file.file == "torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl"
    assert {package.name: package.file.index for package in answer.packages} == {
        "rich": None,
        "torch": "cu118",
    }
