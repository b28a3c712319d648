"""A base, described for a lock: what it holds, and what a framework brings into it."""

from __future__ import annotations

from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts, DebianPackage
from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record
from envbuild.resolve.model import Found, Resolution
from envbuild.resolve.stubs import parse_requirements


@frozen_record
class BaseDescription:
    """The base: its facts with framework, its Debian packages, what the framework brings.

    ``under`` are the facts without the framework, ``bare`` those with the framework and its CUDA
    wheels alone, whose names ``protect`` has.  ``own`` are the base's own facts where those to
    resolve against are of conda's Python.
    """

    facts: BaseFacts
    digest: str
    epoch: int
    debian: tuple[DebianPackage, ...] = ()
    framework: Resolution | None = None
    under: BaseFacts | None = None
    bare: BaseFacts | None = None
    protect: Texts = ()
    own: BaseFacts | None = None


def brought_alone(base: BaseDescription, lines: Texts) -> Pairs:
    """Return what the framework brings alone: preferred, so that images share its layer.

    A direct requirement is left out: of that one the newest release is wanted.
    """
    # a direct requirement is free: the newest release of it is wanted
    direct = {canonicalize_name(requirement.name) for requirement in parse_requirements(lines)}
    packages = base.framework.packages if base.framework else ()
    return tuple((p.name, p.version) for p in packages if p.name not in {*base.protect, *direct})


def framework_packages(base: BaseDescription, resolution: Resolution) -> tuple[Found, ...]:
    """Return what the framework brings and the project has left as it is."""
    chosen = {p.name: p.file.sha256 for p in resolution.packages}
    packages = base.framework.packages if base.framework else ()
    return tuple(
        p for p in packages if p.name in base.protect or chosen.get(p.name) == p.file.sha256
    )
