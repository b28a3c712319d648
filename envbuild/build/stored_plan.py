"""The plan of an image as the store stands.

For ``make --dry-run``, so nothing is written, fetched or run.
"""

from __future__ import annotations

from envbuild.build.assembly_plan import (
    AssemblyPlan,
    AssemblySpec,
    PlannedBase,
    PlannedPart,
    plan_assembly,
    plan_base,
    set_by_recipe,
    spec_of,
)
from envbuild.build.base_parts import (
    BaseParts,
    base_of_image,
    complete_image,
    diff_ids_of,
    hidden_conda,
    is_sif,
    mount_point_entries,
    mount_points_key,
    planned_base,
    root_key,
    system_script,
    with_system,
)
from envbuild.build.conda.parts import Marks, SeenByActivation, stored_conda
from envbuild.build.image.base_config import NO_CONFIG, BaseConfig
from envbuild.build.in_base.install_scheme import Scheme, cached_scheme, known_scheme, read_scheme
from envbuild.build.in_base.overlay_run import captured_key
from envbuild.build.model import BuildSpec
from envbuild.formats.file_tree import merge_parts
from envbuild.lock.model import Lock
from envbuild.parts.cache import CachedPart, cached_part, is_cached
from envbuild.parts.from_layer import layer_key
from envbuild.parts.from_sif import sif_key
from envbuild.records import replace
from envbuild.store.layout import Store
from envbuild.store.sealed import is_sealed


def plan_image(order: BuildSpec, store: Store) -> AssemblyPlan:
    """Return the plan of an image; keys that depend on a base which is not packed yet are ""."""
    spec = spec_of(order)
    return plan_from_store(spec, _stored_base(spec, store), store)


def plan_from_store(spec: AssemblySpec, base: PlannedBase, store: Store) -> AssemblyPlan:
    """Return the plan of an image on a base, with what the store has of it."""
    return plan_assembly(
        spec, base, lambda key: is_cached(key, store), lambda key: is_sealed(store.built(key))
    )


def _stored_base(spec: AssemblySpec, store: Store) -> PlannedBase:
    """Return what the store knows of a base."""
    lock = spec.lock
    if lock.is_bootstrap:
        key = root_key(lock, ("system",), spec.codec)
        conda = _stored_conda(spec, [key], NO_CONFIG, store)
        parts = plan_base(lock, [key], [], lambda key: is_cached(key, store))
        return PlannedBase(parts=(*parts, *conda), scheme=known_scheme(lock), config=NO_CONFIG)
    # only what the store knows already: an image that was never fetched has one part without a key
    keys = _own_keys(spec, store)
    base = _packed_base(spec, keys, store)
    known = None if base is None else _known_scheme(lock, base, store)
    if base is not None and known is not None:
        below = [part.part.key for part in base.parts]
        hidden = hidden_conda(lock, base, spec.codec)
        conda = _stored_conda(spec, below, base.config, store, hidden)
        planned = planned_base(lock, base, known, spec.codec)
        return replace(planned, parts=(*planned.parts, *conda))
    has_system = any(package.group == "system" for package in lock.debian)
    system = [""] if has_system else []
    parts = plan_base(lock, keys, system, lambda key: is_cached(key, store))
    conda = _stored_conda(spec, [""], NO_CONFIG, store)
    return PlannedBase(parts=(*parts, *conda))


def _stored_conda(
    spec: AssemblySpec, below: list[str], config: BaseConfig, store: Store, hidden: Marks = ()
) -> tuple[PlannedPart, ...]:
    seen = SeenByActivation(below=below, config=config, set_by_recipe=set_by_recipe(spec))
    return stored_conda(spec.lock, seen, hidden, spec.codec, store)


def _known_scheme(lock: Lock, base: BaseParts, store: Store) -> Scheme | None:
    """Return where packages are installed; None where the base's Python was not asked yet."""
    known = known_scheme(lock)
    if known is not None:
        return known
    answer = cached_scheme(lock.base, store)
    return None if answer is None else read_scheme(answer, lock.base, base.tree)


def _own_keys(spec: AssemblySpec, store: Store) -> list[str]:
    """Return the keys of an image's root or layers.

    One "" where the store does not know its layers.
    """
    lock = spec.lock
    if is_sif(lock):
        return [sif_key(lock.base.digest, spec.codec)]
    image = complete_image(lock, store)
    if image is None:
        return [""]
    return [layer_key(diff, spec.codec) for diff in diff_ids_of(lock, image, store)]


def _packed_base(spec: AssemblySpec, keys: list[str], store: Store) -> BaseParts | None:
    """Return a base of which the store has all parts, else None."""
    lock = spec.lock
    parts: list[CachedPart] = []
    for key in keys:
        part = cached_part(key, store) if key else None
        if part is None:
            return None
        parts.append(part)
    entries = mount_point_entries(merge_parts(part.part for part in parts))
    mounted = cached_part(mount_points_key(entries), store)
    if mounted is None:
        return None
    own = (*parts, mounted)
    tree = merge_parts(part.part for part in own)
    base = base_of_image(lock, own, tree, spec.codec, store)
    script = system_script(lock, "system", store)
    if script is None:
        return base
    below = [part.part.key for part in base.parts]
    part = cached_part(captured_key(script, below, lock.base, spec.codec), store)
    return None if part is None else with_system(base, part)
