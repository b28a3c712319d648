"""Carry out the plan of an image.

Fetch and pack what the store lacks, and return all parts, the lowest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from pathlib import Path

from envbuild.build.assembly_plan import (
    AssemblyPlan,
    AssemblySpec,
    PlannedBase,
    PlannedPart,
    build_needs,
    package_title,
    runtime_key,
    set_by_recipe,
    wheel_part_key,
)
from envbuild.build.base_parts import (
    BaseParts,
    hidden_conda,
    hidden_entries,
    planned_base,
    provide_base,
    reader_of,
    refuse_other_prefix,
    with_conda,
)
from envbuild.build.conda.activation import history_path
from envbuild.build.conda.parts import CondaAssembly, Links, submit_links
from envbuild.build.fetch import assembled_files, fetch_files
from envbuild.build.image.base_config import BaseConfig
from envbuild.build.image.runtime_files import runtime_contents
from envbuild.build.in_base.bytecode import WheelPart, compile_modules, wheel_modules
from envbuild.build.in_base.container import BaseContainer, open_container
from envbuild.build.in_base.install_scheme import (
    Scheme,
    ask_scheme,
    bootstrap_scheme,
    cached_scheme,
    known_scheme,
    read_scheme,
)
from envbuild.build.in_base.overlay_run import post_script, run_captured
from envbuild.build.in_base.sdists import BuildNeeds, build_wheels, built_name, wheel_key
from envbuild.build.local_base import report_old_cuda
from envbuild.build.packages.from_wheel import unpack_wheel
from envbuild.build.packages.overlaps import find_overlaps
from envbuild.build.stored_plan import plan_from_store
from envbuild.context import Context
from envbuild.host import count_processors
from envbuild.lock.model import PythonPackage
from envbuild.parts.cache import (
    CachedPart,
    PackContext,
    cached_part,
    provide_contents,
    provide_part,
    require_made,
)
from envbuild.parts.from_tar import tar_contents
from envbuild.plan.model import Definition
from envbuild.progress import Stage
from envbuild.records import frozen_record
from envbuild.store.sealed import sealed_hash, write_sealed
from envbuild.store.units import count_noun

LAYERS = ("base", "system", "conda", "framework", "packages", "project")


@frozen_record
class Layer:
    """A layer of an image, one of LAYERS, and the parts it is made of, lowest first."""

    name: str
    parts: tuple[CachedPart, ...]


@frozen_record
class Assembled:
    """All that an image is made of, lowest layer first.

    ``wheels`` are the parts that hold packages as unpacked.
    """

    layers: tuple[Layer, ...]
    wheels: tuple[CachedPart, ...]

    @property
    def parts(self) -> tuple[CachedPart, ...]:
        """The parts of all layers, the lowest first."""
        return tuple(chain.from_iterable(layer.parts for layer in self.layers))


def assemble(spec: AssemblySpec, context: Context) -> Assembled:
    """Return the parts of an image; whatever the store lacks of them is fetched, packed or run."""
    fetch_files(spec.lock, context, assembled_files(spec.lock, context.store))
    workers = count_processors()
    with (
        ThreadPoolExecutor(workers, "pack") as pool,
        ThreadPoolExecutor(workers, "unpack") as feeders,
    ):
        packing = PackContext(
            store=context.store, codec=spec.codec, pool=pool, report=context.report
        )
        try:
            return _Assembly(spec, packing, feeders, context).run()
        except BaseException:
            # without this, Ctrl-C would wait until the largest wheel has been packed
            feeders.shutdown(wait=False, cancel_futures=True)
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Assembly:
    """One image while its parts are made."""

    def __init__(
        self, spec: AssemblySpec, packing: PackContext, feeders: Executor, context: Context
    ) -> None:
        self.spec, self.lock, self.context = spec, spec.lock, context
        self.store, self.report = context.store, context.report
        self.packing, self.feeders = packing, feeders
        self.packages = {package_title(package): package for package in spec.lock.installed}
        self.needs = build_needs(spec.lock)
        self.wheels: dict[str, Future[WheelPart]] = {}
        self.linked: Links = {}
        self.bare: BaseParts | None = None

    def run(self) -> Assembled:
        """Make all parts that the store lacks and return all, in the order of the plan."""
        base, scheme, plan = self._base_and_plan()
        wheels = self._pack_wheels(plan, scheme)
        self._compile(plan, wheels, base, scheme)

        # by key: the plan names each part by what it is made from
        made = {part.part.key: part for part in base.parts}
        made |= {key: wheel.kept for key, wheel in wheels.items()}
        # the rest in the plan's order, so that [system] post finds all parts below it made
        for planned in plan.parts:
            if planned.key not in made:
                made[planned.key] = self._provide(planned, base, scheme, made)
        whole = [part for part in plan.parts if part.kind in ("conda", "wheel", "files")]
        for line in find_overlaps((part.subject, made[part.key]) for part in whole):
            self.report.say(line)
        layers = []
        for name in LAYERS:
            parts = tuple(made[planned.key] for planned in plan.parts if planned.layer == name)
            if parts:
                layers.append(Layer(name=name, parts=parts))
        kept = tuple(wheel.kept for wheel in wheels.values())
        return Assembled(layers=tuple(layers), wheels=kept)

    def _base_and_plan(self) -> tuple[BaseParts, Scheme, AssemblyPlan]:
        """Return the base with its Debian packages, and the plan on it.

        Packages are packed meanwhile: installing Debian packages keeps one core busy at most.
        """
        if not self.lock.is_bootstrap:
            self.bare = self._provide_base()
        scheme = self._scheme(self.bare)
        self.linked = submit_links(self.lock, self.packing, self.feeders)
        self._submit_ready_wheels(scheme)
        base = self._provide_base("system")
        # a Debian package may have put a link where the base's Python installs
        scheme = self._scheme(base)
        if self.lock.conda:
            refuse_other_prefix(self.lock, base)
            base = with_conda(base, self._conda(base).run())
        known = planned_base(self.lock, base, scheme, self.spec.codec)
        return base, scheme, self._plan(known)

    def _provide_base(self, *groups: str) -> BaseParts:
        return provide_base(
            self.lock, groups, self.packing, self.feeders, self.context, bare=self.bare
        )

    def _plan(self, base: PlannedBase) -> AssemblyPlan:
        return plan_from_store(self.spec, base, self.store)

    def _conda(self, base: BaseParts) -> CondaAssembly:
        return CondaAssembly(
            lock=self.lock,
            below=base.parts,
            config=base.config,
            set_by_recipe=set_by_recipe(self.spec),
            packing=self.packing,
            linked=self.linked,
            context=self.context,
            hidden=hidden_conda(self.lock, base, self.spec.codec),
            history=reader_of(base, self.spec.codec)(history_path(self.lock)) or b"",
        )

    def _scheme(self, base: BaseParts | None) -> Scheme:
        """Return where packages are installed; an image's own Python is asked once per image."""
        known = known_scheme(self.lock)
        if known is not None or base is None:
            return known or bootstrap_scheme(self.lock)
        answer = cached_scheme(self.lock.base, self.store)
        if answer is None:
            with self._container(base) as inside:
                answer = ask_scheme(inside)
            path = self.store.scheme(self.lock.base.digest, self.lock.base.python_path)
            write_sealed(self.store.own(path), answer)
        return read_scheme(answer, self.lock.base, base.tree)

    def _submit_ready_wheels(self, scheme: Scheme) -> None:
        """Let threads pack the wheels that need not be built, before all of the base is there."""
        wheels = self._plan(PlannedBase(scheme=scheme)).of_kind("wheel")
        self._submit_wheels([part for part in wheels if part.state != "to run"], scheme)

    def _submit_wheels(self, planned: Sequence[PlannedPart], scheme: Scheme) -> None:
        """Let threads pack wheels, the largest first: no core waits for it in the end."""
        for part in sorted(planned, key=lambda part: -self.packages[part.subject].size):
            if part.key not in self.wheels:
                package = self.packages[part.subject]
                self.wheels[part.key] = self.feeders.submit(
                    provide_package, package, self.needs, scheme, self.packing
                )

    def _pack_wheels(self, plan: AssemblyPlan, scheme: Scheme) -> dict[str, WheelPart]:
        """Build sdists and return all wheels as parts by their keys, in the order of the plan."""
        self._build_sdists(plan)
        planned = plan.of_kind("wheel")
        title = f"pack {count_noun(len(self.packages), 'package')}"
        size = sum(self.packages[part.subject].size for part in planned)
        with self.report.stage(title, total=size) as stage:
            self._submit_wheels(planned, scheme)
            for part in planned:
                count = partial(_count_packed, stage, self.packages[part.subject].size)
                self.wheels[part.key].add_done_callback(count)
            return {part.key: self.wheels[part.key].result() for part in planned}

    def _build_sdists(self, plan: AssemblyPlan) -> None:
        lacking = [part for part in plan.of_kind("wheel") if part.state == "to run"]
        if not lacking:
            return
        base = self._provide_base("system", "build")
        if self.lock.conda:
            base = with_conda(base, self._conda(base).link())
        title = f"build {count_noun(len(lacking), 'source package')}"
        with (
            self.report.stage(title, total=len(lacking)) as stage,
            self._container(base) as inside,
        ):
            packages = [self.packages[part.subject] for part in lacking]
            unlocked = build_wheels(packages, self.needs, inside, self.store, stage)
        # name what built wheels require and the lock lacks
        locked = {package.name for package in self.lock.python}
        for name, required in unlocked.items():
            missing = [one for one in required if one not in locked]
            if missing:
                self.report.say(
                    f"{name} requires {', '.join(missing)} as well, as its build shows, and the lock has none of it: "
                    f"where the base has not got it, lock again (envbuild lock {self.lock.name})"
                )

    def _compile(
        self, plan: AssemblyPlan, wheels: Mapping[str, WheelPart], base: BaseParts, scheme: Scheme
    ) -> None:
        """Compile the wheels whose bytecode the store lacks, all in one run."""
        lacking = []
        for planned in plan.of_kind("bytecode"):
            (wheel,) = planned.inputs
            if cached_part(planned.key, self.store) is None:
                lacking.append(wheel_modules(wheels[wheel], planned.key, scheme))
        if not lacking:
            return
        # images are large, and compiling needs their Python alone
        lean = not self.lock.is_bootstrap
        with (
            self.report.stage(f"compile {count_noun(len(lacking), 'package')}") as stage,
            self._container(base, lean=lean) as inside,
        ):
            compile_modules(lacking, inside, self.packing, self.lock.base.epoch, stage)

    def _provide(
        self,
        planned: PlannedPart,
        base: BaseParts,
        scheme: Scheme,
        made: Mapping[str, CachedPart],
    ) -> CachedPart:
        """Return a part that is neither of the base nor of a wheel; ``made`` are those below it."""
        if planned.kind == "bytecode":
            return require_made(planned.key, self.store)
        if planned.kind == "hidden":
            hidden = hidden_entries(self.lock, base, scheme, self.spec.codec)
            marks = ((entry, None) for entry in hidden)
            return provide_contents(planned.key, self.packing, marks, layer=True)
        if planned.kind == "files":
            (sha256,) = planned.inputs
            contents = tar_contents(self.store.artifact(sha256), sha256)
            return provide_contents(planned.key, self.packing, contents)
        if planned.kind == "runtime":
            definition = self.spec.definition
            assert definition is not None  # noqa: S101  (there is no such part without it)
            return provide_runtime_files(definition, self.spec.text, base.config, self.packing)
        old_cuda = report_old_cuda(self.lock, self.report)
        script = post_script(self.spec.post, old_cuda=old_cuda)
        below = [made[key] for key in planned.inputs]
        return run_captured(script, below, self.lock.base, self.packing, self.context)

    def _container(
        self, base: BaseParts, *, lean: bool = False
    ) -> AbstractContextManager[BaseContainer]:
        return open_container(
            base.parts,
            base=self.lock.base,
            codec=self.spec.codec,
            context=self.context,
            lean=lean,
            python=self.lock.python_path,
        )


def _count_packed(stage: Stage, size: int, _: Future[WheelPart]) -> None:
    stage.advance(size)


def provide_package(
    package: PythonPackage, needs: BuildNeeds, scheme: Scheme, packing: PackContext
) -> WheelPart:
    """Return the part of a package: of its wheel, or of the one that its source archive gave."""
    if not package.is_sdist:
        path = packing.store.artifact(package.sha256)
        return provide_wheel(path, package.file, package.sha256, scheme, packing)
    key = wheel_key(package, needs)
    path = packing.store.built(key)
    return provide_wheel(path, built_name(package), f"built {key}", scheme, packing)


def provide_wheel(
    file: Path, name: str, identity: str, scheme: Scheme, packing: PackContext
) -> WheelPart:
    """Return the part of a wheel; ``identity`` is its sha256, or "built" and a key."""
    key = wheel_part_key(identity, scheme, packing.codec)
    sha256 = sealed_hash(file) if identity.startswith("built ") else identity
    kept = provide_part(
        key, packing, lambda writer: unpack_wheel(file, name, scheme, writer, sha256=sha256)
    )
    return WheelPart(file=file, name=name, kept=kept)


def provide_runtime_files(
    definition: Definition, text: str, config: BaseConfig, packing: PackContext
) -> CachedPart:
    """Return the part of the container runtime's own files."""
    key = runtime_key(definition, text, config, packing.codec)
    return provide_contents(key, packing, runtime_contents(definition, text, config))
