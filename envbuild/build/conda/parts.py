"""The conda packages of an image as parts.

Linked, compiled where they are modules of any Python, and what their own scripts change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager

from envbuild.build.assembly_plan import IsCached, PlannedPart, State
from envbuild.build.conda.activation import (
    Activation,
    activation_scripts,
    capture_activation,
    declared_variables,
    environment_contents,
    needs_activation,
)
from envbuild.build.conda.link import conda_part_key, link_package
from envbuild.build.conda.prefix import prefix_of
from envbuild.build.conda.scripts import link_script
from envbuild.build.image.base_config import BaseConfig
from envbuild.build.in_base.bytecode import bytecode_key, compile_modules, linked_modules
from envbuild.build.in_base.container import BaseContainer, open_container
from envbuild.build.in_base.overlay_run import OverlayScript, captured_key, run_captured
from envbuild.context import Context
from envbuild.formats.block_codec import Codec
from envbuild.formats.file_tree import TreeEntry
from envbuild.lock.conda_order import install_order
from envbuild.lock.model import CondaPackage, Lock
from envbuild.names import Texts
from envbuild.parts.cache import (
    CachedPart,
    PackContext,
    cached_part,
    is_cached,
    part_key,
    provide_contents,
    provide_part,
    require_made,
)
from envbuild.parts.writer import PartWriter
from envbuild.plan.conda import history_text
from envbuild.records import frozen_record, replace
from envbuild.store.layout import Store
from envbuild.store.units import count_noun

Marks = tuple[TreeEntry, ...]
Links = Mapping[str, Future[CachedPart]]
"""Packages that threads link, by the keys of their parts."""


@frozen_record
class CondaParts:
    """The conda packages of an image: as planned, and as they lie in the store, lowest first."""

    planned: tuple[PlannedPart, ...] = ()
    kept: tuple[CachedPart, ...] = ()

    def and_also(self, planned: PlannedPart, kept: CachedPart) -> CondaParts:
        """Return them with one more part on top."""
        return CondaParts(planned=(*self.planned, planned), kept=(*self.kept, kept))


NO_CONDA = CondaParts()


@frozen_record
class SeenByActivation:
    """What activating sees beside conda: the keys of the base's parts, what base and recipe set."""

    below: Sequence[str]
    config: BaseConfig
    set_by_recipe: Texts


def _plan_conda(
    lock: Lock, hidden: Marks, codec: Codec, is_cached: IsCached
) -> tuple[PlannedPart, ...]:
    """Return the parts of a lock's conda packages, then those of their bytecode.

    Before them comes that of ``hidden``, the marks that hide what they replace of the base.
    """
    linked = [_linked_part(package, lock, codec) for package in install_order(lock.conda)]
    named = {package.sha256: package for package in lock.conda}
    modules = [
        _modules_part(part, lock) for part in linked if named[part.inputs[0]].noarch == "python"
    ]
    parts = (*(_hidden_part(marks) for marks in (hidden,) if marks), *linked, *modules)
    return tuple(replace(part, state="stored") if is_cached(part.key) else part for part in parts)


def stored_conda(
    lock: Lock, seen: SeenByActivation, hidden: Marks, codec: Codec, store: Store
) -> tuple[PlannedPart, ...]:
    """Return the parts of a lock's conda packages, as far as the store knows them.

    The keys of a base that is not packed are "".
    """
    below = seen.below
    planned = _plan_conda(lock, hidden, codec, lambda key: is_cached(key, store))
    kept = [cached_part(part.key, store) for part in planned]
    whole = tuple(part for part in kept if part is not None)
    if not planned or len(whole) < len(planned) or not all(below):
        return planned
    conda = CondaParts(planned=planned, kept=whole)
    script = link_script(lock, _linked_by_name(lock, conda), codec.compressor)
    if script is not None:
        part = _plan_scripts(script, below, conda, lock, codec)
        made = cached_part(part.key, store)
        if made is None:
            return (*planned, replace(part, state="to run"))
        conda = conda.and_also(part, made)
    last = _plan_environment(lock, seen, conda, codec)
    state: State = "stored" if is_cached(last.key, store) else "to run"
    return (*conda.planned, replace(last, state=state))


def _linked_by_name(lock: Lock, conda: CondaParts) -> dict[str, CachedPart]:
    """Return the linked packages by their names."""
    names = {package.sha256: package.name for package in lock.conda}
    pairs = zip(conda.planned, conda.kept, strict=True)
    return {names[part.inputs[0]]: kept for part, kept in pairs if part.kind == "conda"}


def _plan_scripts(
    script: OverlayScript, below: Sequence[str], conda: CondaParts, lock: Lock, codec: Codec
) -> PlannedPart:
    """Return the part of what the packages' own scripts change."""
    keys = (*below, *(kept.part.key for kept in conda.kept))
    key = captured_key(script, keys, lock.base, codec)
    return PlannedPart("conda", "captured", script.name, key, keys, "stored")


def _plan_environment(
    lock: Lock, seen: SeenByActivation, conda: CondaParts, codec: Codec
) -> PlannedPart:
    """Return the part of what activating does, and of the environment's history."""
    # scripts see everything; without any nothing is run,
    # and every environment of these specs is the same
    all_keys = [*seen.below, *(kept.part.key for kept in conda.kept)]
    # a base's own environment has a history already
    seen_all = lock.base.conda_prefix or needs_activation(conda.kept, prefix_of(lock))
    keys = all_keys if seen_all else []
    key = part_key(
        "conda-environment",
        below=keys,
        base=dict(seen.config.environment) if keys else {},
        recipe=list(seen.set_by_recipe) if keys else [],
        script=[*activation_scripts().values()],
        history=history_text(lock),
        packer=codec.key,
    )
    subject = "what activating conda does"
    return PlannedPart("conda", "environment", subject, key, tuple(keys), "stored")


def submit_links(lock: Lock, packing: PackContext, feeders: Executor) -> Links:
    """Let threads link the packages of a lock."""
    # the largest first: no core waits for it in the end
    packages = sorted(lock.conda, key=lambda package: -package.size)
    keys = (conda_part_key(package, prefix_of(lock), packing.codec) for package in packages)
    return {
        key: feeders.submit(_link, package, key, lock, packing)
        for key, package in zip(keys, packages, strict=True)
    }


def _link(package: CondaPackage, key: str, lock: Lock, packing: PackContext) -> CachedPart:
    file, prefix = packing.store.artifact(package.sha256), prefix_of(lock)
    return provide_part(key, packing, lambda writer: link_package(file, package, prefix, writer))


@frozen_record
class CondaAssembly:
    """One image's conda packages while their parts are made.

    ``below`` are the parts of its base, ``config`` is what that base sets, ``set_by_recipe`` are
    the names of variables that the recipe sets; ``linked`` are its packages; ``hidden`` are the marks that hide what packages
    replace of the base, ``history`` is what its own environment has done.
    """

    lock: Lock
    below: tuple[CachedPart, ...]
    config: BaseConfig
    set_by_recipe: Texts
    packing: PackContext
    linked: Links
    context: Context
    hidden: Marks = ()
    history: bytes = b""

    def run(self) -> CondaParts:
        """Return the whole environment; what the store lacks of it is made."""
        conda, codec = self.link(), self.packing.codec
        below = [part.part.key for part in self.below]
        script = link_script(self.lock, _linked_by_name(self.lock, conda), codec.compressor)
        if script is not None:
            root = (*self.below, *conda.kept)
            made = run_captured(script, root, self.lock.base, self.packing, self.context)
            conda = conda.and_also(_plan_scripts(script, below, conda, self.lock, codec), made)
        seen = SeenByActivation(below=below, config=self.config, set_by_recipe=self.set_by_recipe)
        planned = _plan_environment(self.lock, seen, conda, codec)
        made = provide_part(planned.key, self.packing, lambda writer: self._activate(conda, writer))
        return conda.and_also(planned, made)

    def link(self) -> CondaParts:
        """Return the packages of the lock alone, linked and compiled."""
        planned = _plan_conda(self.lock, self.hidden, self.packing.codec, lambda _: True)
        marks = [self._hide(part) for part in planned if part.kind == "hidden"]
        linked = self._link_all(planned)
        modules = self._compile(planned, linked)
        return CondaParts(planned=planned, kept=(*marks, *linked.values(), *modules))

    def _hide(self, planned: PlannedPart) -> CachedPart:
        contents = ((entry, None) for entry in self.hidden)
        return provide_contents(planned.key, self.packing, contents, layer=True)

    def _activate(self, conda: CondaParts, writer: PartWriter) -> None:
        """Add what activating the environment does, found out by doing it."""
        activation, prefix = Activation(), prefix_of(self.lock)
        if needs_activation(conda.kept, prefix):
            declared = declared_variables(conda.kept, prefix, self.packing.codec.compressor)
            with (
                self.packing.report.stage("activate the conda environment"),
                self._container(conda.kept) as inside,
            ):
                activation = capture_activation(
                    inside, prefix, self.config, declared, self.set_by_recipe
                )
        for name in activation.not_kept:
            self.packing.report.say(
                f"activating conda sets functions or aliases, which no image can keep: {name}"
            )
        writer.add_all(environment_contents(activation, self.lock, self.history))

    def _link_all(self, planned: Sequence[PlannedPart]) -> dict[str, CachedPart]:
        """Return all packages as parts by their keys, in the order of the plan."""
        title = f"link {count_noun(len(self.linked), 'conda package')}"
        with self.packing.report.stage(title, total=len(self.linked)) as stage:
            for future in self.linked.values():
                future.add_done_callback(lambda _: stage.advance())
            keys = [part.key for part in planned if part.kind == "conda"]
            return {key: self.linked[key].result() for key in keys}

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
        return [require_made(key, self.packing.store) for key in parts]

    def _container(self, linked: Iterable[CachedPart]) -> AbstractContextManager[BaseContainer]:
        return open_container(
            (*self.below, *linked),
            base=self.lock.base,
            codec=self.packing.codec,
            context=self.context,
            lean=True,
            python=self.lock.python_path,
        )


def _hidden_part(marks: Marks) -> PlannedPart:
    key = part_key("hidden", paths=[mark.path for mark in marks])
    return PlannedPart(
        "conda", "hidden", "conda packages of the base that locked ones replace", key
    )


def _linked_part(package: CondaPackage, lock: Lock, codec: Codec) -> PlannedPart:
    subject = f"{package.name} {package.version} {package.build}"
    key = conda_part_key(package, prefix_of(lock), codec)
    return PlannedPart("conda", "conda", subject, key, (package.sha256,))


def _modules_part(linked: PlannedPart, lock: Lock) -> PlannedPart:
    key = bytecode_key(linked.key, python=lock.python_version, epoch=lock.base.epoch)
    return replace(linked, kind="modules", key=key, inputs=(linked.key,), state="to run")
