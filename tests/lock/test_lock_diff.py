"""Two locks, and a lock beside an image."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from msgspec import structs

from envbuild.base.model import AptPackage, BaseFacts, Dist
from envbuild.lock.changes import Change
from envbuild.lock.diff import compare_inputs, input_of_image, input_of_lock
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.resolve.outcome import Provided
from tests.lock.strategies import locks

LOCKFILES = Path(__file__).parent.parent.parent / "lockfiles"
BERT = read_lock(LOCKFILES / "keras-bert.lock")
MNIST = read_lock(LOCKFILES / "torch-mnist.lock")


@given(locks())
def test_nothing_differs_from_itself(lock: Lock) -> None:
    side = input_of_lock("a", lock)
    assert compare_inputs(side, side).packages == ()


@given(locks(), locks())
def test_difference_backwards_is_the_difference(first: Lock, second: Lock) -> None:
    forth = compare_inputs(input_of_lock("a", first), input_of_lock("b", second))
    back = compare_inputs(input_of_lock("b", second), input_of_lock("a", first))
    turned = {structs_of(c) for c in back.packages}
    assert {(c.kind, c.name, c.before, c.after) for c in forth.packages} == turned


def structs_of(change: Change) -> tuple[str, str, str | None, str | None]:
    return change.kind, change.name, change.after, change.before


def test_framework_cuda_and_driver_of_two_locks() -> None:
    found = compare_inputs(input_of_lock("bert", BERT), input_of_lock("mnist", MNIST))
    about = {change.name: (change.before, change.after) for change in found.about}
    assert about["framework"] == ("tensorflow 2.15.1", "torch 2.5.1")
    assert about["CUDA"] == ("12.2", "12.4")
    assert "oldest driver" not in about  # both are CUDA 12
    assert Change(kind="python", name="tensorflow", before="2.15.1", after=None) in found.packages
    assert found.unknown is None


def test_older_driver_that_another_cuda_family_allows() -> None:
    old = structs.replace(
        MNIST, python=(), base=structs.replace(MNIST.base, cuda="11.8", framework="torch 2.0.1")
    )
    found = compare_inputs(input_of_lock("a", old), input_of_lock("b", MNIST))
    about = {change.name: (change.before, change.after) for change in found.about}
    assert about["oldest driver"] == ("450.80.02", "525.60.13")


def image_of(lock: Lock, *more: Dist) -> BaseFacts:
    dists = tuple(Dist(name=p.name, version=p.version) for p in lock.installed)
    debian_own = Dist(name="pip", version="23.0.1", location="/usr/lib/python3/dist-packages")
    return BaseFacts(
        image="x.sif",
        python=lock.base.python,
        machine="x86_64",
        glibc=lock.base.glibc,
        framework=lock.base.framework,
        dists=(*dists, debian_own, *more),
        apt=tuple(
            AptPackage(name=p.name, version=p.version, architecture=p.architecture)
            for p in lock.installed_debian
        ),
    )


def test_image_that_is_what_its_lock_says() -> None:
    found = compare_inputs(input_of_lock("mnist", MNIST), input_of_image(image_of(MNIST)))
    assert (found.about, found.packages) == ((), ())


def test_image_to_which_somebody_added_a_package() -> None:
    found = compare_inputs(
        input_of_lock("mnist", MNIST),
        input_of_image(image_of(MNIST, Dist(name="Rich", version="14.0"))),
    )
    assert [str(change) for change in found.packages] == ["+ rich 14.0"]


def test_what_the_base_below_a_lock_holds_is_not_taken_for_a_difference() -> None:
    on_image = structs.replace(MNIST, debian=(), provided=(Provided(name="xyz", version="1.16.0"),))
    image = image_of(MNIST, Dist(name="rich", version="14.0"), Dist(name="xyz", version="1.17.0"))
    found = compare_inputs(input_of_lock("mnist", on_image), input_of_image(image))
    assert [str(change) for change in found.packages] == ["~ xyz 1.16.0 -> 1.17.0"]
    assert found.unknown == "mnist"


def test_versions_that_are_only_written_differently_are_equal() -> None:
    one = BaseFacts(
        image="a",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        dists=(Dist(name="x", version="1.0"),),
    )
    two = structs.replace(one, dists=(Dist(name="X", version="1.0.0"),))
    assert compare_inputs(input_of_image(one), input_of_image(two)).packages == ()
