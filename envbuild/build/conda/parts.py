"""The conda packages of an image as parts.

Linked, compiled where they are modules of any Python, and what their own scripts change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from envbuild.build.assembly_plan import PlannedPart
from envbuild.build.conda.link import conda_part_key, link_package
from envbuild.build.conda.order import install_order
from envbuild.build.conda.prefix import prefix_of
from envbuild.build.in_base.bytecode import bytecode_key, compile_modules, linked_modules
from envbuild.build.in_base.container import BaseContainer, open_container
from envbuild.context import Context
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import Codec
from envbuild.lock.model import CondaPackage, Lock
from envbuild.parts.cache import CachedPart, PackContext, cached_part, provide_part
from envbuild.store.units import count_noun

IsCached = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaParts:
    """The conda packages of an image: as planned, and as they lie in the store, lowest first."""

    planned: tuple[PlannedPart, ...] = ()
    kept: tuple[CachedPart, ...] = ()


NO_CONDA = CondaParts()


def plan_conda(lock: Lock, codec: Codec, is_cached: IsCached) -> tuple[PlannedPart, ...]:
    """Return the parts of a lock's conda packages, then those of their bytecode."""
    linked = [_linked_part(package, lock, codec) for package in install_order(lock.conda)]
    named = {package.sha256: package for package in lock.conda}
    modules = [
        _modules_part(part, lock) for part in linked if named[part.inputs[0]].noarch == "python"
    ]
    parts = (*linked, *modules)
    return tuple(replace(part, state="stored") if is_cached(part.key) else part for part in parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaAssembly:
    """One image's conda packages while their parts are made; ``below`` are the parts of its base."""

    lock: Lock
    below: tuple[CachedPart, ...]
    packing: PackContext
    feeders: Executor
    context: Context

    def run(self) -> CondaParts:
        """Return the packages of the lock, linked and compiled; what the store lacks is made."""
        planned = plan_conda(self.lock, self.packing.codec, lambda _: True)
        linked = self._link_all(planned)
        modules = self._compile(planned, linked)
        return CondaParts(planned=planned, kept=(*linked.values(), *modules))

    def _link_all(self, planned: Sequence[PlannedPart]) -> dict[str, CachedPart]:
        """Return all packages as parts by their keys, in the order of the plan."""
        keys = {part.inputs[0]: part.key for part in planned if part.kind == "conda"}
        # the largest first: no core waits for it in the end
        packages = sorted(self.lock.conda, key=lambda package: -package.size)
        title = f"link {count_noun(len(packages), 'conda package')}"
        futures: dict[str, Future[CachedPart]] = {}
        with self.packing.report.stage(title, total=len(packages)) as stage:
            for package in packages:
                key = keys[package.sha256]
                futures[key] = self.feeders.submit(self._link, package, key)
                futures[key].add_done_callback(lambda _: stage.advance())
            return {key: futures[key].result() for key in keys.values()}

    def _link(self, package: CondaPackage, key: str) -> CachedPart:
        file, prefix = self.packing.store.artifact(package.sha256), prefix_of(self.lock)
        return provide_part(
            key, self.packing, lambda writer: link_package(file, package, prefix, writer)
        )

    def _compile(
        self, planned: Sequence[PlannedPart], linked: Mapping[str, CachedPart]
    ) -> list[CachedPart]:
        """Return the bytecode of modules; what is lacking is made in one run of their Python."""
        parts = {part.key: linked[part.inputs[0]] for part in planned if part.kind == "modules"}
        lacking = [key for key in parts if cached_part(key, self.packing.store) is None]
        if lacking:
            prefix, codec = prefix_of(self.lock), self.packing.codec
            site = f"{prefix.path}/{prefix.site}"
            sources = [linked_modules(parts[key], key, site, codec.compressor) for key in lacking]
            title = f"compile {count_noun(len(lacking), 'conda package')}"
            with (
                self.packing.report.stage(title) as stage,
                self._container(linked.values()) as inside,
            ):
                compile_modules(sources, inside, self.packing, self.lock.base.epoch, stage)
        return [self._require_part(key) for key in parts]

    def _container(self, linked: Iterable[CachedPart]) -> AbstractContextManager[BaseContainer]:
        return open_container(
            (*self.below, *linked),
            base=self.lock.base,
            codec=self.packing.codec,
            context=self.context,
            lean=True,
            python=self.lock.python_path,
        )

    def _require_part(self, key: str) -> CachedPart:
        kept = cached_part(key, self.packing.store)
        if kept is None:
            where = str(self.packing.store.root)
            raise IntegrityError("bytecode just made is not in the store", where=where)
        return kept


def _linked_part(package: CondaPackage, lock: Lock, codec: Codec) -> PlannedPart:
    return PlannedPart(
        layer="conda",
        kind="conda",
        subject=f"{package.name} {package.version} {package.build}",
        key=conda_part_key(package, prefix_of(lock), codec),
        inputs=(package.sha256,),
        state="to pack",
    )


def _modules_part(linked: PlannedPart, lock: Lock) -> PlannedPart:
    key = bytecode_key(linked.key, python=lock.python_version, epoch=lock.base.epoch)
    return replace(linked, kind="modules", key=key, inputs=(linked.key,), state="to run")
