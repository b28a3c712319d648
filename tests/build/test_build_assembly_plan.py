"""The plan of an image: pure, whole texts for a shipped lock, and what it says of a base that is not packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from envbuild.build.assembly_plan import (
    AssemblyPlan,
    AssemblySpec,
    PlannedBase,
    PlannedPart,
    plan_assembly,
    plan_base,
)
from envbuild.build.image.base_config import NO_CONFIG, BaseConfig
from envbuild.build.in_base.install_scheme import bootstrap_scheme
from envbuild.build.stored_plan import plan_image
from envbuild.formats.block_codec import Codec
from envbuild.lock.read import read_lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.read import read_recipe
from envbuild.store.layout import Store
from tests.build.test_build_estimate import IMAGE, order
from tests.support import Golden

ROOT = Path(__file__).parents[2]
CODEC = Codec(compressor="zstd", level=3, library="zstd 1.5.7")


def spec_for(name: str) -> AssemblySpec:
    recipe, _ = read_recipe(ROOT / "recipes" / f"{name}.toml")
    lock = read_lock(ROOT / "lockfiles" / f"{name}.lock")
    definition = plan_definition(recipe, lock)
    return AssemblySpec(
        lock=lock,
        codec=CODEC,
        definition=definition,
        text=render_definition(definition),
        post=recipe.system.post,
    )


def known_base(spec: AssemblySpec) -> PlannedBase:
    return PlannedBase(
        parts=plan_base(spec.lock, ["root"], [], lambda _: True),
        scheme=bootstrap_scheme(spec.lock),
        config=NO_CONFIG,
    )


def planned(
    spec: AssemblySpec,
    base: PlannedBase | None = None,
    *,
    cached: Callable[[str], bool] = lambda _: False,
    built: Callable[[str], bool] = lambda _: False,
) -> AssemblyPlan:
    return plan_assembly(spec, base or known_base(spec), cached, built)


def row(part: PlannedPart) -> str:
    return f"{part.layer:10} {part.kind:9} {part.state:8} {part.key[:16]:16} {part.subject}"


def test_the_whole_plan(golden: Golden) -> None:
    """Keys are in it: a change packs everything anew at every user."""
    plan = planned(spec_for("keras-bert"))
    golden("build/keras-bert.plan", "\n".join(map(row, plan.parts)) + "\n")


def test_bytecode_comes_from_its_wheel_and_what_is_stored_is_said() -> None:
    spec = spec_for("keras-bert")
    keys = {part.key for part in planned(spec).of_kind("wheel")}
    plan = planned(spec, cached=keys.__contains__, built=lambda _: True)
    assert {part.state for part in plan.of_kind("wheel")} == {"stored"}
    assert {part.state for part in plan.of_kind("bytecode")} == {"to run"}
    assert {key for part in plan.of_kind("bytecode") for key in part.inputs} == keys


def test_a_source_package_is_built_before_it_is_packed() -> None:
    spec = spec_for("keras-bert")
    sources = {f"{p.name} {p.version}" for p in spec.lock.installed if p.is_sdist}
    assert sources
    states = {part.subject: part.state for part in planned(spec).of_kind("wheel")}
    assert {name for name, state in states.items() if state == "to run"} == sources
    plan = planned(spec, cached=lambda _: True)
    assert {part.subject for part in plan.of_kind("wheel") if part.state == "to run"} == sources
    plan = planned(spec, built=lambda _: True)
    assert {part.state for part in plan.of_kind("wheel")} == {"to pack"}


def test_on_a_base_that_is_not_packed_keys_are_open() -> None:
    spec = spec_for("keras-bert")
    parts = plan_base(spec.lock, [""], [""], lambda _: True)
    plan = planned(replace(spec, post=("true",)), PlannedBase(parts=parts), cached=lambda _: True)
    unknown = [part for part in plan.parts if not part.key]
    assert {part.kind for part in unknown} == {"base", "captured", "wheel", "bytecode", "runtime"}
    assert "stored" not in {part.state for part in unknown}
    assert plan.parts[-1].state == "to run"


def test_the_recipe_s_lines_see_all_that_is_below() -> None:
    spec = replace(spec_for("keras-bert"), post=("touch /x",))
    plan = planned(spec)
    assert plan.parts[-1].kind == "captured"
    assert plan.parts[-1].inputs == tuple(part.key for part in plan.parts[:-1])
    assert planned(spec).parts[-1].key != planned(replace(spec, post=("true",))).parts[-1].key


def test_what_changes_a_key() -> None:
    spec = spec_for("keras-bert")
    keys = [part.key for part in planned(spec).parts]
    other = planned(replace(spec, codec=replace(CODEC, library="zstd 1.5.6")))
    changed = [part for part, key in zip(other.parts, keys, strict=True) if part.key != key]
    assert len(changed) == len(keys) - 1, "all but the base, which was given"
    base = replace(known_base(spec), config=BaseConfig(labels=(("a", "b"),)))
    changed = [p for p, key in zip(planned(spec, base).parts, keys, strict=True) if p.key != key]
    assert [part.kind for part in changed] == ["runtime"]
    lock = msgspec.structs.replace(spec.lock, files=())
    assert planned(replace(spec, lock=lock)).of_kind("files") == ()


def test_without_a_definition_there_are_no_files_of_the_runtime() -> None:
    plan = planned(replace(spec_for("keras-bert"), definition=None))
    assert plan.of_kind("runtime") == ()


@pytest.mark.parametrize(
    ("image", "first"), [(False, "debian:bookworm"), (True, IMAGE.base.reference)]
)
def test_looking_at_an_empty_store_writes_nothing(image: bool, first: str, tmp_path: Path) -> None:
    spec = order(tmp_path, "flat", image=image)
    plan = plan_image(spec, Store(tmp_path / "store"))
    assert (plan.parts[0].subject, plan.parts[0].state) == (first, "to pack")
    assert bool(plan.parts[0].key) is not image
    assert {part.state for part in plan.of_kind("bytecode")} == {"to run"}
    assert list(tmp_path.iterdir()) == []
