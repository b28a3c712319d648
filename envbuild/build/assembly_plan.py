"""The plan of an image that is put together from parts.

Which parts, in which order, and what is to do for each. A pure function makes it, from the lock,
the recipe's definition, what is known of the base, and what the store has. ``assemble`` carries it
out, ``make --dry-run`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from envbuild.build.fetch import locked_bootstrap
from envbuild.build.image.base_config import BaseConfig
from envbuild.build.image.runtime_files import runtime_files
from envbuild.build.in_base.bytecode import bytecode_key
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.in_base.overlay_run import captured_key, post_script
from envbuild.build.in_base.sdists import BuildNeeds, wheel_key
from envbuild.build.model import BuildSpec
from envbuild.formats.block_codec import Codec
from envbuild.lock.model import Lock, LockedFiles, PythonPackage
from envbuild.names import Texts
from envbuild.parts.cache import part_key
from envbuild.plan.definition import is_before_cuda_key
from envbuild.plan.model import Definition
from envbuild.records import frozen_record, replace
from envbuild.store.hashing import digest_of

State = Literal["stored", "to pack", "to run"]
"""What there is to do for a part.

Nothing, to pack files of the store, or to run something in the base.
"""


IsCached = Callable[[str], bool]
"""Tells by its key whether the store has a part."""


@frozen_record
class AssemblySpec:
    """What an image is put together from, as lock and recipe say it.

    Without a ``definition``, whose whole text is ``text``, the container runtime's own files are
    left out; ``post`` are the recipe's own lines of shell.
    """

    lock: Lock
    codec: Codec
    definition: Definition | None = None
    text: str = ""
    post: Texts = ()


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of an image.

    ``layer`` is "base", "system", "conda", "framework", "packages" or "project"; ``subject`` says
    for people what is in it; ``inputs`` are the hashes or keys that it is made from. ``key`` is "" while it
    depends on a base that is not packed.
    """

    layer: str
    kind: str
    subject: str
    key: str
    inputs: Texts = ()
    state: State = "to pack"


@frozen_record
class PlannedBase:
    """What is known of a base.

    Its parts and, where these are packed, what the rest of the image depends on. ``hidden`` are the
    marks that hide its packages which locked ones replace.
    """

    parts: tuple[PlannedPart, ...] = ()
    scheme: Scheme | None = None
    config: BaseConfig | None = None
    hidden: Texts = ()


@frozen_record
class AssemblyPlan:
    """The parts of an image, the lowest first."""

    parts: tuple[PlannedPart, ...]

    def of_kind(self, kind: str) -> tuple[PlannedPart, ...]:
        """Return the parts of a kind, the lowest first."""
        return tuple(part for part in self.parts if part.kind == kind)


def spec_of(order: BuildSpec) -> AssemblySpec:
    """Return what the image of an order is put together from."""
    return AssemblySpec(
        lock=order.lock,
        codec=order.codec,
        definition=order.plan,
        text=order.definition,
        post=order.recipe.system.post,
    )


def set_by_recipe(spec: AssemblySpec) -> Texts:
    """Return the names of the variables that a recipe sets."""
    return tuple(name for name, _ in spec.definition.environment) if spec.definition else ()


def plan_assembly(
    spec: AssemblySpec,
    base: PlannedBase,
    is_cached: IsCached,
    is_built: IsCached,
) -> AssemblyPlan:
    """Return the plan of an image.

    ``is_cached`` tells of parts, ``is_built`` of wheels made from source archives. Both get keys.
    """
    return AssemblyPlan(parts=tuple(_Planner(spec, base, is_cached, is_built).all_parts()))


@dataclass(frozen=True, slots=True)
class _Planner:
    spec: AssemblySpec
    base: PlannedBase
    is_cached: IsCached
    is_built: IsCached

    def all_parts(self) -> Iterator[PlannedPart]:
        """Yield all parts, the lowest first."""
        parts = [*self.base.parts]
        parts += self._packages("framework", "framework")
        parts += self._hidden()
        parts += self._packages("project", "packages")
        parts += [self._files(locked) for locked in self.spec.lock.files]
        parts += self._runtime()
        yield from parts
        # last, for its lines see all that is below
        yield from self._post(parts)

    def _packages(self, group: str, layer: str) -> list[PlannedPart]:
        """Return the parts of a group's wheels, and those of their bytecode above."""
        packages = [package for package in self.spec.lock.python if package.group == group]
        wheels = [self._wheel(package, layer) for package in packages]
        return [*wheels, *(self._bytecode(wheel) for wheel in wheels)]

    def _wheel(self, package: PythonPackage, layer: str) -> PlannedPart:
        identity, is_ready = package.sha256, True
        if package.is_sdist:
            built = wheel_key(package, build_needs(self.spec.lock))
            identity, is_ready = f"built {built}", self.is_built(built)
        scheme, key = self.base.scheme, ""
        if scheme is not None:
            key = wheel_part_key(identity, scheme, self.spec.codec)
        part = PlannedPart(layer, "wheel", package_title(package), key, (package.sha256,))
        # compiling needs the wheel itself, so it is built also where only its part is there
        return _with_state(part, self.is_cached) if is_ready else replace(part, state="to run")

    def _bytecode(self, wheel: PlannedPart) -> PlannedPart:
        python, epoch = self.spec.lock.python_version, self.spec.lock.base.epoch
        key = bytecode_key(wheel.key, python=python, epoch=epoch) if wheel.key else ""
        inputs = (wheel.key,) if wheel.key else ()
        part = replace(wheel, kind="bytecode", key=key, inputs=inputs, state="to run")
        return _with_state(part, self.is_cached)

    def _hidden(self) -> list[PlannedPart]:
        """Return the part that hides the packages of an image which locked ones replace, if any."""
        if not self.base.hidden:
            return []
        key = part_key("hidden", paths=list(self.base.hidden))
        subject = "packages of the base that locked ones replace"
        return [_with_state(PlannedPart("packages", "hidden", subject, key), self.is_cached)]

    def _files(self, locked: LockedFiles) -> PlannedPart:
        key = part_key("files", archive=locked.sha256, packer=self.spec.codec.key)
        part = PlannedPart("project", "files", locked.target, key, (locked.sha256,))
        return _with_state(part, self.is_cached)

    def _runtime(self) -> list[PlannedPart]:
        """Return the part of the container runtime's own files, where there is a definition."""
        definition, config, key = self.spec.definition, self.base.config, ""
        if definition is None:
            return []
        if config is not None:
            key = runtime_key(definition, self.spec.text, config, self.spec.codec)
        part = PlannedPart("project", "runtime", "environment, labels, help", key)
        return [_with_state(part, self.is_cached)]

    def _post(self, below: list[PlannedPart]) -> list[PlannedPart]:
        """Return the part of what the recipe's own lines of shell change, where there are any."""
        lock = self.spec.lock
        old_cuda = is_before_cuda_key(lock.base)
        if not self.spec.post and not old_cuda:
            return []
        script = post_script(self.spec.post, old_cuda=old_cuda)
        keys, key = [part.key for part in below], ""
        if all(keys):
            key = captured_key(script, keys, lock.base, self.spec.codec)
        part = PlannedPart("project", "captured", script.name, key, tuple(keys), "to run")
        return [_with_state(part, self.is_cached)]


def plan_base(
    lock: Lock, own: Sequence[str], system: Sequence[str], is_cached: IsCached
) -> tuple[PlannedPart, ...]:
    """Return the parts of a base with these keys: its own, and those of Debian packages over it."""
    root = PlannedPart("base", "base", lock.base.reference, "", (lock.base.digest,))
    debian = PlannedPart("system", "captured", "Debian packages", "", tuple(own), "to run")
    parts = [replace(root, key=key) for key in own]
    parts += [replace(debian, key=key) for key in system]
    return tuple(_with_state(part, is_cached) for part in parts)


def _with_state(part: PlannedPart, is_cached: IsCached) -> PlannedPart:
    """Return a part as stored where the store has it."""
    return replace(part, state="stored") if part.key and is_cached(part.key) else part


def package_title(package: PythonPackage) -> str:
    """Return the name of a package in a plan."""
    return f"{package.name} {package.version}"


def wheel_part_key(identity: str, scheme: Scheme, codec: Codec) -> str:
    """Return the key of a wheel's part; ``identity`` is its sha256, or "built" and a key."""
    return part_key("wheel", wheel=identity, scheme=scheme.key_fields, packer=codec.key)


def runtime_key(definition: Definition, text: str, config: BaseConfig, codec: Codec) -> str:
    """Return the key of the container runtime's own files."""
    return part_key("runtime", files=runtime_files(definition, text, config), packer=codec.key)


def build_needs(lock: Lock) -> BuildNeeds:
    """Return what the wheels of source archives depend on.

    The root that they are built in, and the tools.
    """
    return BuildNeeds(root=_build_root(lock), packages=lock.build_only, epoch=lock.base.epoch)


def _build_root(lock: Lock) -> str:
    """Return the digest of the root that source archives are built in."""
    digest, sums = lock.base.digest, sorted(package.sha256 for package in lock.debian)
    if lock.is_bootstrap:
        digest, sums = locked_bootstrap(lock, ("base", "system", "build")).digest, []
    sums += sorted(package.sha256 for package in lock.conda)
    if not sums:
        return digest
    return digest_of("\n".join([digest, *sums]).encode())
