"""Put an image together from the store: pack what the store lacks, then copy parts one behind the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.base_parts import BaseParts
from envbuild.build.from_wheel import unpack_wheel
from envbuild.build.image.base_config import BaseConfig
from envbuild.build.image.runtime_files import runtime_contents, runtime_files
from envbuild.build.in_base.bytecode import (
    WheelPart,
    bytecode_key,
    compile_wheels,
    without_bytecode,
)
from envbuild.build.in_base.container import Container, open_container
from envbuild.build.in_base.install_scheme import (
    Scheme,
    ask_scheme,
    bootstrap_scheme,
    cached_scheme,
    keep_scheme,
    read_scheme,
)
from envbuild.build.in_base.overlay_run import OverlayContext, post_script, run_captured
from envbuild.build.in_base.sdists import BuildNeeds, build_wheels, built_name, wheel_key
from envbuild.build.local_base import report_old_cuda
from envbuild.build.overlaps import find_overlaps
from envbuild.build.whiteouts import replaced_entries
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import Codec
from envbuild.lock.model import Lock, LockedFiles
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_part
from envbuild.parts.from_tar import tar_contents
from envbuild.parts.reader import read_file
from envbuild.plan.model import Definition
from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.runtime import Runtime
from envbuild.store.layout import Store
from envbuild.store.sealed import is_sealed, sealed_hash
from envbuild.store.units import count_noun


@dataclass(frozen=True, kw_only=True, slots=True)
class Hall:
    """What gathering parts needs of the machine.

    ``ground`` makes what packages are put on, ``bare`` the same without Debian packages of the recipe, ``build_ground``
    what sdists are built in; the latter is called only where the store lacks a wheel. ``build_digest`` names it.
    ``post`` are lines of shell that run in the end.
    """

    store: Store
    codec: Codec
    runner: Runner
    runtime: Callable[[], Runtime]
    report: Reporter
    bare: Callable[[PackContext, Executor], BaseParts]
    ground: Callable[[PackContext, Executor], BaseParts]
    build_ground: Callable[[PackContext, Executor], BaseParts]
    build_digest: str
    post: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer of an image and the parts it is made of, lowest first.

    It is "base", "system", "framework", "packages" or "project".
    """

    name: str
    parts: tuple[CachedPart, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """All that an image is made of, lowest layer first; ``wheels`` are the parts that hold packages as unpacked."""

    layers: tuple[Layer, ...]
    wheels: tuple[CachedPart, ...]


def gather(lock: Lock, definition: tuple[Definition, str] | None, hall: Hall) -> Gathered:
    """Return the parts of a lock's image, packed and compiled where the store lacks them.

    ``definition`` is the record and its text; without it the runtime's own files are left out.  Every locked file has
    to be in the store.
    """
    workers = len(os.sched_getaffinity(0))
    with (
        ThreadPoolExecutor(workers, "pack") as pool,
        ThreadPoolExecutor(workers, "unpack") as feeders,
    ):
        packing = PackContext(store=hall.store, codec=hall.codec, pool=pool, report=hall.report)
        try:
            ground, scheme, wheels = _ground_and_wheels(lock, packing, feeders, hall)
        except BaseException:
            # without this, Ctrl-C would wait until the largest wheel has been packed
            feeders.shutdown(wait=False, cancel_futures=True)
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        bytecode = _bytecode(wheels, lock, (ground, scheme), packing, hall)
        groups = [p.group for p in lock.installed]
        grouped = {wheel.name: group for wheel, group in zip(wheels, groups, strict=True)}
        # stable: the framework's lie below the project's
        for line in find_overlaps(
            sorted(wheels, key=lambda wheel: grouped[wheel.name] != "framework")
        ):
            hall.report.say(line)
        framework = _of_group(groups, "framework", wheels, bytecode)
        packages = _of_group(groups, "project", wheels, bytecode)
        hidden = _hidden(lock, ground, scheme, packing)
        own = tuple(_files(locked, packing) for locked in lock.files)
        own += (runtime_part(*definition, ground.inherited, packing),) if definition else ()
        below = (*ground.parts, *ground.system, *framework, *hidden, *packages, *own)
        own += _post(lock, below, packing, hall)
    packages = (*hidden, *packages)
    names = {
        "base": ground.parts,
        "system": ground.system,
        "framework": framework,
        "packages": packages,
        "project": own,
    }
    layers = tuple(Layer(name=name, parts=parts) for name, parts in names.items() if parts)
    return Gathered(layers=layers, wheels=tuple(wheel.kept for wheel in wheels))


def _of_group(
    groups: Sequence[str], group: str, wheels: Sequence[WheelPart], bytecode: Sequence[CachedPart]
) -> tuple[CachedPart, ...]:
    chosen = [number for number, name in enumerate(groups) if name == group]
    return (*(wheels[number].kept for number in chosen), *(bytecode[number] for number in chosen))


def _files(locked: LockedFiles, packing: PackContext) -> CachedPart:
    key = part_key("files", archive=locked.sha256, packer=packing.codec.key)
    archive = packing.store.artifact(locked.sha256)
    return provide_part(
        key, packing, lambda writer: writer.add_all(tar_contents(archive, locked.sha256))
    )


def runtime_part(
    definition: Definition, text: str, inherited: BaseConfig, packing: PackContext
) -> CachedPart:
    """Return the part of the container runtime's own files."""
    files = runtime_files(definition, text, inherited)
    key = part_key("runtime", files=files, packer=packing.codec.key)
    return provide_part(
        key, packing, lambda writer: writer.add_all(runtime_contents(definition, text, inherited))
    )


def _post(
    lock: Lock, below: Sequence[CachedPart], packing: PackContext, hall: Hall
) -> tuple[CachedPart, ...]:
    """Return a part of what the recipe's own lines of shell change in the whole image."""
    old_cuda = report_old_cuda(lock, packing.report)
    if not hall.post and not old_cuda:
        return ()
    means = OverlayContext(runtime=hall.runtime(), runner=hall.runner, packing=packing)
    return (run_captured(post_script(hall.post, old_cuda=old_cuda), below, lock.base, means, {}),)


def _hidden(
    lock: Lock, ground: BaseParts, scheme: Scheme, packing: PackContext
) -> tuple[CachedPart, ...]:
    """Return a part that hides the packages of an image which locked ones replace."""
    if not scheme.path:
        return ()  # a bootstrapped root has none

    def read(path: str) -> bytes | None:
        return read_file(
            ground.tree, (*ground.parts, *ground.system), path, compressor=packing.codec.compressor
        )

    names = [p.name for p in lock.installed]
    entries = replaced_entries(ground.tree, names, scheme, read)
    if not entries:
        return ()
    key = part_key("hidden", paths=[entry.path for entry in entries])
    return (
        provide_part(
            key,
            packing,
            lambda writer: writer.add_all((entry, None) for entry in entries),
            layer=True,
        ),
    )


def _scheme(lock: Lock, ground: BaseParts, packing: PackContext, hall: Hall) -> Scheme:
    """Return where an image's Python installs, asked of it once per image."""
    told = cached_scheme(lock.base, hall.store)
    if told is None:
        with _inside(ground, lock, packing, hall) as inside:
            told = ask_scheme(inside)
        keep_scheme(
            told, hall.store.own(hall.store.scheme(lock.base.digest, lock.base.python_path))
        )
    return read_scheme(told, lock.base, ground.tree)


def _ground_and_wheels(
    lock: Lock, packing: PackContext, feeders: ThreadPoolExecutor, hall: Hall
) -> tuple[BaseParts, Scheme, list[WheelPart]]:
    """Pack wheels while Debian packages are installed, which keeps one core busy at most; then those from sdists."""
    packages = lock.installed
    bare = None if lock.is_bootstrap else hall.bare(packing, feeders)
    early = bootstrap_scheme(lock) if bare is None else _scheme(lock, bare, packing, hall)

    def pack(file: Path, name: str, identity: str, scheme: Scheme) -> Future[WheelPart]:
        return feeders.submit(wheel_part, file, name, identity, scheme, packing)

    def pack_wheels(scheme: Scheme) -> dict[str, Future[WheelPart]]:
        # the largest first, so that no core waits for it in the end
        return {
            p.name: pack(hall.store.artifact(p.sha256), p.file, p.sha256, scheme)
            for p in sorted(packages, key=lambda p: -p.size)
            if not p.is_sdist
        }

    futures = pack_wheels(early)
    ground = bare if bare is not None and not _has_system(lock) else hall.ground(packing, feeders)
    scheme = early if bare is None else _scheme(lock, ground, packing, hall)
    # a Debian package may have put a link where the base's Python installs
    if scheme.key_fields != early.key_fields:
        futures = pack_wheels(scheme)
    needs = BuildNeeds(
        root=hall.build_digest,
        packages=lock.build_only,
        epoch=lock.base.epoch,
    )
    lacking = [
        p for p in packages if p.is_sdist and not is_sealed(hall.store.built(wheel_key(p, needs)))
    ]
    if lacking:
        where = hall.build_ground(packing, feeders)
        stage = hall.report.stage(f"build {count_noun(len(lacking), 'source package')}")
        with stage, _inside(where, lock, packing, hall) as inside:
            beyond = build_wheels(lacking, needs, inside, hall.store)
        _report_unlocked(beyond, lock, hall.report)
    with hall.report.stage(
        f"pack {count_noun(len(packages), 'package')}", total=len(packages)
    ) as counter:
        for p in packages:
            if p.is_sdist:
                key = wheel_key(p, needs)
                futures[p.name] = pack(hall.store.built(key), built_name(p), f"built {key}", scheme)
        for future in futures.values():
            future.add_done_callback(lambda _: counter.advance())
        return ground, scheme, [futures[p.name].result() for p in packages]


def _report_unlocked(beyond: Mapping[str, Sequence[str]], lock: Lock, report: Reporter) -> None:
    """Name what built wheels require and the lock lacks: only running its setup.py tells some archives' requirements."""
    locked = {package.name for package in lock.python}
    for name, required in beyond.items():
        missing = [one for one in required if one not in locked]
        if missing:
            report.say(
                f"{name} requires {', '.join(missing)} as well, as its build shows, and the lock has none of it: "
                f"where the base has not got it, lock again (envbuild lock {lock.name})"
            )


def wheel_part(
    file: Path, name: str, identity: str, scheme: Scheme, packing: PackContext
) -> WheelPart:
    """Return the part of a wheel; ``identity`` is its sha256, or "built" and a key."""
    key = part_key("wheel", wheel=identity, scheme=scheme.key_fields, packer=packing.codec.key)
    sha256 = sealed_hash(file) if identity.startswith("built ") else identity
    kept = provide_part(
        key, packing, lambda writer: unpack_wheel(file, name, scheme, writer, sha256=sha256)
    )
    return WheelPart(file=file, name=name, kept=kept)


def _bytecode(
    wheels: Sequence[WheelPart],
    lock: Lock,
    where: tuple[BaseParts, Scheme],
    packing: PackContext,
    hall: Hall,
) -> tuple[CachedPart, ...]:
    python, epoch = lock.base.python, lock.base.epoch
    lacking = without_bytecode(wheels, packing, python=python, epoch=epoch)
    if lacking:
        lean = _inside(where[0], lock, packing, hall, lean=not lock.is_bootstrap)
        with hall.report.stage(f"compile {count_noun(len(lacking), 'package')}"), lean as inside:
            compile_wheels(lacking, inside, packing, where[1], epoch)
    found = [
        cached_part(bytecode_key(wheel, python=python, epoch=epoch), hall.store) for wheel in wheels
    ]
    if None in found:
        raise IntegrityError("bytecode just made is not in the store", where=str(hall.store.root))
    return tuple(part for part in found if part is not None)


def _has_system(lock: Lock) -> bool:
    return any(package.group == "system" for package in lock.debian)


@contextmanager
def _inside(
    ground: BaseParts, lock: Lock, packing: PackContext, hall: Hall, *, lean: bool = False
) -> Iterator[Container]:
    with open_container(
        (*ground.parts, *ground.system),
        python=lock.base.python_path,
        machine=lock.base.machine,
        codec=packing.codec,
        runtime=hall.runtime(),
        runner=hall.runner,
        store=hall.store,
        lean=lean,
    ) as inside:
        yield inside
