"""Put an image together from the store: pack what the store lacks, then copy parts one behind the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.bytecode import WheelPart, bytecode_key, compile_wheels, without_bytecode
from envbuild.build.codec import codec_of
from envbuild.build.container import Container, container
from envbuild.build.dotfiles import dot_contents
from envbuild.build.parts import Bench, KeptPart, kept_part, part_key, provide_part
from envbuild.build.sdists import BuildNeeds, build_wheels, built_name, wheel_key
from envbuild.build.tarball import root_contents
from envbuild.build.wheel import FORMAT, Scheme, unpack_wheel
from envbuild.errors import IntegrityError
from envbuild.lock.model import Lock
from envbuild.plan.model import Definition
from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.runtime import Runtime
from envbuild.store.layout import Store

ROOT_FORMAT = 2
"""Counts up whenever the tar of the same root would be packed as another tree."""
FORMATS = (ROOT_FORMAT, FORMAT)
"""What decides which tree the same lock gives: part of an image's key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hall:
    """What gathering parts needs of the machine.

    ``root`` and ``build_root`` return tars of bootstrapped roots, the second being the one that sdists are built in;
    they are called only where the store has no part made from them. ``root_digest`` and ``build_digest`` name them.
    """

    store: Store
    runner: Runner
    runtime: Callable[[], Runtime]
    report: Reporter
    root: Callable[[], Path]
    build_root: Callable[[], Path]
    root_digest: str
    build_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer of an image: "base", "framework", "packages" or "project", and the parts it is made of, lowest first."""

    name: str
    parts: tuple[KeptPart, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """All that an image is made of, lowest layer first; ``wheels`` are the parts that hold packages as unpacked."""

    layers: tuple[Layer, ...]
    wheels: tuple[KeptPart, ...]


def scheme_of(lock: Lock) -> Scheme:
    """Return where packages go in a bootstrapped Debian: what its Python calls "posix_local"."""
    version = ".".join(lock.base.python.split(".")[:2])
    return Scheme(
        site=f"usr/local/lib/python{version}/dist-packages",
        prefix="usr/local",
        version=version,
        python="usr/bin/python3",
    )


def gather(lock: Lock, definition: tuple[Definition, str] | None, hall: Hall) -> Gathered:
    """Return the parts of a lock's image, packed and compiled where the store lacks them.

    ``definition`` is the record and its text; without it the runtime's own files are left out.  Every locked file has
    to be in the store.
    """
    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers, "pack") as pool, ThreadPoolExecutor(workers, "unpack") as feeders:
        bench = Bench(store=hall.store, codec=codec_of(lock.packer), pool=pool, report=hall.report)
        try:
            root, wheels = _root_and_wheels(lock, bench, feeders, hall)
        except BaseException:
            # without this, Ctrl-C would wait until the largest wheel has been packed
            feeders.shutdown(wait=False, cancel_futures=True)
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        bytecode = _bytecode(wheels, lock, root, bench, hall)
        groups = [p.group for p in lock.python if p.group != "build"]
        framework = _of_group(groups, "framework", wheels, bytecode)
        packages = _of_group(groups, "project", wheels, bytecode)
        own = (_dots(*definition, bench),) if definition else ()
    names = {"base": (root,), "framework": framework, "packages": packages, "project": own}
    layers = tuple(Layer(name=name, parts=parts) for name, parts in names.items() if parts)
    return Gathered(layers=layers, wheels=tuple(wheel.kept for wheel in wheels))


def _of_group(
    groups: Sequence[str], group: str, wheels: Sequence[WheelPart], bytecode: Sequence[KeptPart]
) -> tuple[KeptPart, ...]:
    chosen = [number for number, name in enumerate(groups) if name == group]
    return (*(wheels[number].kept for number in chosen), *(bytecode[number] for number in chosen))


def _dots(definition: Definition, text: str, bench: Bench) -> KeptPart:
    key = part_key("dots", text=text, definition=repr(definition), packer=bench.codec.name)
    return provide_part(key, bench, lambda writer: writer.add_all(dot_contents(definition, text)))


def _root_part(digest: str, tar: Callable[[], Path], bench: Bench) -> KeptPart:
    key = part_key("root", digest=digest, format=ROOT_FORMAT, packer=bench.codec.name)
    found = kept_part(key, bench.store)
    if found is not None:
        return found
    path = tar()
    bench.report.detail("pack the base")
    return provide_part(key, bench, lambda writer: writer.add_all(root_contents(path)))


def _root_and_wheels(
    lock: Lock, bench: Bench, feeders: ThreadPoolExecutor, hall: Hall
) -> tuple[KeptPart, list[WheelPart]]:
    """Pack wheels while the root is made, which keeps one core busy at most; then those built from sdists."""
    packages = [p for p in lock.python if p.group != "build"]
    scheme = scheme_of(lock)

    def pack(file: Path, name: str, identity: str) -> Future[WheelPart]:
        return feeders.submit(_wheel_part, file, name, identity, scheme, bench)

    # the largest first, so that no core waits for it in the end
    futures = {
        p.name: pack(hall.store.artifact(p.sha256), p.file, p.sha256)
        for p in sorted(packages, key=lambda p: -p.size)
        if not p.is_sdist
    }
    root = _root_part(hall.root_digest, hall.root, bench)
    needs = BuildNeeds(
        root=hall.build_digest, packages=tuple(p for p in lock.python if p.group == "build"), epoch=lock.base.epoch
    )
    lacking = [p for p in packages if p.is_sdist and not hall.store.built(wheel_key(p, needs)).is_file()]
    if lacking:
        same = hall.build_digest == hall.root_digest
        where = root if same else _root_part(hall.build_digest, hall.build_root, bench)
        stage = hall.report.stage(f"build {len(lacking)} source packages")
        with stage, _inside(where, lock, bench, hall) as inside:
            build_wheels(lacking, needs, inside, hall.store)
    with hall.report.stage(f"pack {len(packages)} packages"):
        for p in packages:
            if p.is_sdist:
                key = wheel_key(p, needs)
                futures[p.name] = pack(hall.store.built(key), built_name(p), f"built {key}")
        return root, [futures[p.name].result() for p in packages]


def _wheel_part(file: Path, name: str, identity: str, scheme: Scheme, bench: Bench) -> WheelPart:
    key = part_key("wheel", wheel=identity, scheme=repr(scheme), format=FORMAT, packer=bench.codec.name)
    kept = provide_part(key, bench, lambda writer: unpack_wheel(file, name, scheme, writer))
    return WheelPart(file=file, name=name, kept=kept)


def _bytecode(
    wheels: Sequence[WheelPart], lock: Lock, root: KeptPart, bench: Bench, hall: Hall
) -> tuple[KeptPart, ...]:
    python, epoch = lock.base.python, lock.base.epoch
    lacking = without_bytecode(wheels, bench, python=python, epoch=epoch)
    if lacking:
        with hall.report.stage(f"compile {len(lacking)} packages"), _inside(root, lock, bench, hall) as inside:
            compile_wheels(lacking, inside, bench, scheme_of(lock), epoch)
    found = [kept_part(bytecode_key(wheel, python=python, epoch=epoch), hall.store) for wheel in wheels]
    if None in found:
        raise IntegrityError("bytecode just made is not in the store", where=str(hall.store.root))
    return tuple(part for part in found if part is not None)


@contextmanager
def _inside(root: KeptPart, lock: Lock, bench: Bench, hall: Hall) -> Iterator[Container]:
    with container(
        root,
        python=f"/{scheme_of(lock).python}",
        machine=lock.base.machine,
        codec=bench.codec,
        runtime=hall.runtime(),
        runner=hall.runner,
        store=hall.store,
    ) as inside:
        yield inside
