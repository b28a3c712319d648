"""Keep new packages off the files of others, above all the base's CUDA libraries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.data.lookup import is_framework
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.resolve.aliases import doubled_modules
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.model import Found
from envbuild.resolve.stubs import Stubs, parse_requirements
from envbuild.store.units import human_bytes, listing

CUDA_WHEEL = re.compile(r"(nvidia-(?!cutlass-dsl-)[a-z0-9-]+)-cu\d+")
"""nvidia-cusolver-cu11 and -cu12 share 8 of 8 files, nvidia-curand 18 of 18, nvidia-cudnn-cu12 and
-cu13 22 of 22, and every nvidia-nccl holds libnccl.so.2 (file lists of the wheels, 2026-11-22).
Names without an ending lie apart, and nvidia-cutlass-dsl-libs-cu12 and -cu13 (4.6.2), which
nvidia-cutlass-dsl brings both."""
LARGE_BYTES = 200_000_000
"""Below that, CUDA wheels are parts that a base lacks (nvidia-cuda-nvcc-cu12), no second stack."""


@frozen_record
class FileOverlap:
    """A new package whose files would lie over those of a protected or another new one."""

    name: str
    version: str
    other: str
    other_version: str
    protected: bool

    @property
    def row(self) -> Coupling:
        """The constraint that leaves the new package out."""
        whose = " of the base" if self.protected else ""
        reason = f"{self.other} {self.other_version}{whose}, whose files it would write over"
        return Coupling(package=self.name, constraint=f"{self.name}<0", reason=reason)


def find_overlaps(new: Mapping[str, str], stubs: Stubs) -> tuple[FileOverlap, ...]:
    """Return the overlaps of new packages (name to version) that would break what computes.

    These are all with what is protected, and among CUDA wheels.  Others are only told: doubled.
    """
    real = {
        name: stub.real for name, stub in stubs.by_name.items() if stub.hard and not stub.alias_of
    }
    needs = chain.from_iterable(stubs.by_name[name].requires for name in real)
    needed = {canonicalize_name(one.name) for one in parse_requirements(tuple(needs))}
    found: dict[str, FileOverlap] = {}
    for group, cuda in _sharing_groups({*new, *real}):
        # what the base holds stays; of new CUDA wheels the one that its framework requires, else
        # the one for the newest CUDA
        held = next((name for name in group if name in real), None)
        newest = max(group, key=lambda name: (name in needed, name))
        against = held or (newest if cuda else None)
        for name in group:
            if against is not None and name not in real and name != against:
                found[name] = FileOverlap(
                    name=name,
                    version=new[name],
                    other=against,
                    other_version=real.get(against) or new[against],
                    protected=held is not None,
                )
    return tuple(found.values())


def describe_overlaps(found: Collection[FileOverlap], new: Mapping[str, str]) -> str:
    """Return overlaps in one sentence, of which cuDNN's says most, with the new frameworks."""
    first, *rest = sorted(found, key=lambda one: "cudnn" not in one.name)
    more = f" (and {len(rest)} more like it)" if rest else ""
    whose = "the base's " if first.protected else ""
    beside = [f"{name} {new[name]}" for name in sorted(new) if is_framework(name, greater=True)]
    came = f" (with {', '.join(beside)})" if beside else ""
    return (
        f"{first.name} {first.version}{came} would write over files of {whose}{first.other} "
        f"{first.other_version}{more}: libraries of the same names for another CUDA or cuDNN"
    )


def _sharing_groups(names: Collection[str]) -> Iterable[tuple[Texts, bool]]:
    """Yield groups of names that share files, and whether they are CUDA wheels, newest last."""
    stems: dict[str, list[str]] = {}
    for name in sorted(names):
        if wheel := CUDA_WHEEL.fullmatch(name):
            stems.setdefault(wheel[1], []).append(name)
    yield from ((tuple(members), True) for members in stems.values() if len(members) > 1)
    cuda_wheels = set(chain.from_iterable(stems.values()))
    for _, members in doubled_modules(names):
        if members[0] not in cuda_wheels:
            yield members, False


def second_stack(packages: Collection[Found], stubs: Stubs, facts: BaseFacts) -> str | None:
    """Return what to say where a base that computes gets gigabytes of CUDA libraries more."""
    computes = any(stub.hard and is_framework(stub.name) for stub in stubs.by_name.values())
    own = facts.cuda is not None or any(CUDA_WHEEL.fullmatch(name) for name in stubs.by_name)
    if not (computes and own):
        return None
    brought = [package for package in packages if _is_for_gpu(package.name)]
    size = sum(package.file.size for package in brought)
    if size < LARGE_BYTES:
        return None
    brought.sort(key=lambda package: -package.file.size)
    named = listing([f"{package.name} {package.version}" for package in brought], 3)
    cuda = f"CUDA {facts.cuda}" if facts.cuda else "CUDA libraries"
    what = f"{human_bytes(size)} of GPU libraries come beside the {cuda} that the base has already"
    return f"{what}: {named}"


def _is_for_gpu(name: str) -> bool:
    return name.startswith(("nvidia-", "cuda-")) or is_framework(name)
