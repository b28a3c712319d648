"""A release without the extra that is asked for is no answer: one above it, one below it, or an error in words."""

from __future__ import annotations

import pytest

from envbuild.errors import NoSolutionError
from tests.resolve.conftest import SyntheticIndex, base, versions
from tests.resolve.test_resolve_uv import Resolve, error_of

TORCH = base("torch==2.5.1", "nvidia-cudnn-cu12==9.1.0.70")


@pytest.fixture
def flow(index: SyntheticIndex) -> SyntheticIndex:
    """As TensorFlow: the extra came with 2.14, and pins cuDNN."""
    index.wheel("flow", "2.12.0", "2.13.0")
    index.wheel(
        "flow", "2.14.0", requires=("nvidia-cudnn-cu12==9.1.0.70 ; extra == 'and-cuda'", "new>=2")
    )
    index.wheel("flow", "2.18.0", requires=("nvidia-cudnn-cu12==9.3.0.75 ; extra == 'and-cuda'",))
    index.wheel("new", "1.0", "2.0")
    return index


def test_the_newest_release_with_the_extra_is_taken(flow: SyntheticIndex, resolve: Resolve) -> None:
    assert versions(resolve(TORCH, "flow[and-cuda]"))["flow"] == "2.14.0"


def test_releases_before_the_extra_are_no_answer(flow: SyntheticIndex, resolve: Resolve) -> None:
    """Left to itself, uv takes 2.13.0 and adds nothing: no CUDA, exit code 0."""
    error = error_of(resolve, TORCH, "flow[and-cuda]", "new<2")
    assert (
        "- flow 2.13.0 has no extra named and-cuda, and that is the newest release that fits"
        in error.what
    )
    assert (
        "flow[and-cuda]>=2.18.0 needs nvidia-cudnn-cu12==9.3.0.75; the base holds nvidia-cudnn-cu12 9.1.0.70"
        in (error.what)
    )


def test_an_extra_that_newer_releases_dropped_takes_an_older_one(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("gym", "0.29.1", requires=("rom ; extra == 'accept'",))
    index.wheel("gym", "1.0.0", "1.1.0")
    index.wheel("rom", "1.0")
    answer = resolve(base(), "gym[accept]")
    assert versions(answer) == {"gym": "0.29.1", "rom": "1.0"}
    assert [row.reason for row in answer.held_back] == [
        "gym<1 goes with the extra accept, which 1.1.0 has not"
    ]


def test_an_extra_that_a_release_below_1_lacks_is_refused(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("jax", "0.4.1")
    error = error_of(resolve, base(), "jax[cuda12]==0.4.1")
    assert "- jax 0.4.1 has no extra named cuda12" in error.what


def test_an_extra_that_no_release_has_is_refused_with_those_there_are(
    flow: SyntheticIndex, resolve: Resolve
) -> None:
    error = error_of(resolve, base(), "flow[cuda]")
    assert error.what.endswith('- flow 2.18.0 has no extra named cuda; did you mean "and-cuda"?')
    assert error.hint == "leave [cuda] out of flow[cuda]"


def test_an_extra_that_came_after_the_date_says_so(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("ort", "1.20", day="2024-01-01")
    index.wheel("ort", "1.21", day="2025-01-01", requires=("x ; extra == 'cuda'",))
    with pytest.raises(NoSolutionError) as caught:
        resolve(base(), "ort[cuda]", as_of="2024-06-01")
    assert "it is of before 2024-06-01, and later ones are left out" in caught.value.what
    assert "to a later date: ort 1.21 has it" in (caught.value.hint or "")


def test_an_extra_for_another_cuda_that_the_base_lacks_is_refused(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """With CUDA 12 in its place the project would get what it does not ask for, told by a note at most."""
    held = base("jax==0.4.30", "jaxlib==0.4.30", "nvidia-cuda-runtime-cu12==12.5.82")
    error = error_of(resolve, held, "jax[cuda11_local]>=0.4")
    assert error.what.endswith(
        "- jax 0.4.30 has no extra named cuda11_local; the base holds CUDA 12"
    )
    assert error.hint == "write jax>=0.4 to keep CUDA 12\nor take a base with CUDA 11"
    chosen = {"framework": "jax[cuda12]==0.4.30", "protect": ("jax",)}
    error = error_of(resolve, base("jax==0.4.30"), "jax[cuda11_local]", **chosen)
    assert error.what.endswith("; the recipe's framework brings CUDA 12")
    assert resolve(held, "jax[cuda12_local]").notes == (
        "jax 0.4.30 (in the base) has no extra named cuda12-local: nothing is added for it",
    )


def test_an_extra_of_another_package_is_a_note(index: SyntheticIndex, resolve: Resolve) -> None:
    index.wheel("user", "1.0", requires=("flow[gone]",))
    index.wheel("flow", "3.0")
    answer = resolve(base(), "user")
    assert versions(answer) == {"user": "1.0", "flow": "3.0"}
    assert answer.notes == ("flow==3.0 has no extra named gone: nothing is added for it",)


def test_an_extra_that_nobody_asked_for_gives_lower_bounds_alone(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """AlphaFold pins dm-haiku 0.0.9 and jax 0.3.25; the extra [jax] of that release pins jax 0.3.16."""
    index.wheel("dm-haiku", "0.0.9", requires=("jax==0.3.16 ; extra == 'jax'",))
    index.wheel("dm-haiku", "0.0.12", requires=("jax>=0.4.24 ; extra == 'jax'",))
    answer = resolve(base("jax==0.3.25"), "dm-haiku==0.0.9")
    assert versions(answer) == {"dm-haiku": "0.0.9"}
    assert answer.notes == (
        "of dm-haiku[jax] the lower bounds alone are kept: what is asked for excludes the others",
    )
    error = error_of(resolve, base("jax==0.3.25"), "dm-haiku==0.0.12")
    assert "dm-haiku==0.0.12 needs jax>=0.4.24; the base holds jax 0.3.25" in error.what
