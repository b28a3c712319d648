"""Compare two locks, or a lock and an image: packages, CUDA, the oldest driver."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base import gpu
from envbuild.base.gpu import conda_cuda
from envbuild.base.model import BaseFacts, Dist
from envbuild.base.suggest import framework_name
from envbuild.data.lookup import build_of, oldest_driver
from envbuild.lock.changes import Change, compare_versions
from envbuild.lock.model import Lock
from envbuild.records import frozen_record

DEBIAN_PYTHON = "/usr/lib/python3"
"""Where Debian's own Python packages lie; they are counted as Debian packages."""


@frozen_record
class DiffInput:
    """One of two things to compare.

    ``about`` are single values (Python, CUDA …) by what they are called; ``python`` and ``debian``
    map names to versions, ``conda`` to version and build (None: not told); ``whole`` says that
    these are all there are, not only what is put over an image.
    """

    label: str
    about: Mapping[str, str]
    python: Mapping[str, str]
    debian: Mapping[str, str]
    whole: bool
    conda: Mapping[str, str] | None = None


@frozen_record
class Difference:
    """What differs; ``unknown`` names the side that holds more than it tells."""

    about: tuple[Change, ...]
    packages: tuple[Change, ...]
    unknown: str | None = None


def input_of_lock(label: str, lock: Lock) -> DiffInput:
    """Return what a lock tells of the image that is made from it."""
    python = {p.name: p.version for p in lock.installed}
    held = {provided.alias_of or provided.name: provided.version for provided in lock.provided}
    framework = lock.base.framework
    dists = [Dist(name=name, version=found) for name, found in python.items()]
    of_wheels = gpu.cuda_version(dists, (), {}, {})
    cuda = conda_cuda({p.name: p.version for p in lock.conda}) or of_wheels or lock.base.cuda
    return DiffInput(
        label=label,
        about=_about_values(
            {
                "base": lock.base.reference,
                "Python": lock.python_version,
                "glibc": lock.base.glibc,
                "date": lock.as_of,
            },
            framework,
            cuda,
        ),
        python={**held, **python},
        debian={p.name: p.version for p in lock.installed_debian},
        whole=bool(lock.debian),
        conda={p.name: f"{p.version} {p.build}" for p in lock.conda},
    )


def input_of_image(facts: BaseFacts) -> DiffInput:
    """Return what an image holds."""
    dists = list(facts.dists)
    if facts.apt:
        dists = [dist for dist in dists if not (dist.location or "").startswith(DEBIAN_PYTHON)]
    return DiffInput(
        label=facts.image,
        about=_about_values(
            {"Python": facts.python, "glibc": facts.glibc}, facts.framework, facts.cuda
        ),
        python={canonicalize_name(dist.name): dist.version for dist in dists},
        debian={package.name: package.version for package in facts.apt},
        whole=True,
    )


def _about_values(
    values: Mapping[str, str | None], framework: str | None, cuda: str | None
) -> dict[str, str]:
    name, _, version = (framework or "").partition(" ")
    known = framework_name(name) if name else None
    build = build_of(known, version) if known else None
    cuda = cuda or (build.cuda if build else None)
    driver = oldest_driver(cuda) if cuda else None
    more = {"framework": framework, "CUDA": cuda, "oldest driver": driver}
    return {key: value for key, value in {**values, **more}.items() if value is not None}


def compare_inputs(before: DiffInput, after: DiffInput) -> Difference:
    """Return what differs: single values, then Debian and Python packages by name."""
    about = tuple(
        Change(kind="about", name=key, before=value, after=after.about[key])
        for key, value in before.about.items()
        if key in after.about and after.about[key] != value
    )
    packages: list[Change] = []
    for kind, old, new in (
        ("debian", before.debian, after.debian),
        ("python", before.python, after.python),
    ):
        packages += [
            Change(kind=kind, name=name, before=old.get(name), after=new.get(name))
            for name in sorted({*old, *new})
            if not _is_same_version(old.get(name), new.get(name))
            and _is_known_change(name, old, new, before, after)
        ]
    if before.conda is not None and after.conda is not None:
        packages += compare_versions("conda", before.conda, after.conda)
    unknown = None
    if before.whole != after.whole:
        unknown = after.label if before.whole else before.label
    return Difference(about=about, packages=tuple(packages), unknown=unknown)


def _is_known_change(
    name: str, old: Mapping[str, str], new: Mapping[str, str], before: DiffInput, after: DiffInput
) -> bool:
    """Whether a change is known to be one: the image below a lock may hold it as well."""
    # a lock over an image does not name what the image holds
    if before.whole == after.whole:
        return True
    return name in (old if not before.whole else new)


def _is_same_version(before: str | None, after: str | None) -> bool:
    if before is None or after is None:
        return before is after
    return before == after or _parse_version(before) == _parse_version(after)


def _parse_version(text: str) -> object:
    try:
        return Version(text)
    except ValueError:
        return text
