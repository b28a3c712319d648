"""Where a Python keeps packages.

Known for a bootstrapped Debian, asked of the Python itself in an image.
"""

from __future__ import annotations

import msgspec

from envbuild.build.conda.prefix import prefix_of
from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import INSIDE, open_exchange, result_bytes
from envbuild.errors import HostError
from envbuild.formats.file_tree import Tree, resolve_links
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Lock, LockedBase
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.store.layout import Store
from envbuild.store.sealed import read_sealed
from envbuild.store.units import minor_version


@frozen_record
class Scheme:
    """Where a Python keeps what: absolute folders without their leading slash.

    ``python`` runs scripts. ``site`` is for pure wheels, ``platform`` for those with machine code;
    ``path`` are the folders that it imports from, first ones first.
    """

    site: str
    prefix: str
    version: str
    python: str
    platform: str = ""
    scripts: str = ""
    include: str = ""
    path: Texts = ()

    @property
    def key_fields(self) -> dict[str, str]:
        """Return what decides where a wheel's files go, by the names of Python's sysconfig."""
        return {
            "purelib": self.site,
            "platlib": self.platform,
            "scripts": self.scripts,
            "data": self.prefix,
            "include": self.include,
            "py_version_short": self.version,
            "executable": self.python,
        }

    def folder(self, scheme: str, project: str) -> str:
        """Return the folder of one of the wheel specification's schemes."""
        if scheme == "purelib":
            return self.site
        if scheme == "platlib":
            return self.platform or self.site
        if scheme == "scripts":
            return self.scripts or f"{self.prefix}/bin"
        if scheme == "headers":
            return f"{self.include or f'{self.prefix}/include/python{self.version}'}/{project}"
        return self.prefix


NO_PYTHON = Scheme(site="usr/lib/python", prefix="usr", version="", python="")
"""For an image without a Python, which has no packages of it."""


class _SchemeAnswer(msgspec.Struct, frozen=True):
    """What the script in the image wrote."""

    purelib: str
    platlib: str
    scripts: str
    data: str
    include: str
    path: Texts


def bootstrap_scheme(lock: Lock) -> Scheme:
    """Return where packages go in a bootstrapped Debian: what its Python calls "posix_local"."""
    version = minor_version(lock.base.python)
    return Scheme(
        site=f"usr/local/lib/python{version}/dist-packages",
        prefix="usr/local",
        version=version,
        python="usr/bin/python3",
    )


def known_scheme(lock: Lock) -> Scheme | None:
    """Return where packages go where nobody need be asked: not for an image's own Python."""
    if lock.conda_python is not None:
        return conda_scheme(lock)
    if not lock.python_version:
        return NO_PYTHON
    return bootstrap_scheme(lock) if lock.is_bootstrap else None


def conda_scheme(lock: Lock) -> Scheme:
    """Return where packages go that are put over conda's: into its own Python."""
    prefix = prefix_of(lock)
    return Scheme(
        site=f"{prefix.path}/{prefix.site}",
        prefix=prefix.path,
        version=prefix.python,
        python=lock.python_path.lstrip("/"),
        include=f"{prefix.path}/include/python{prefix.python}",
        path=(f"{prefix.path}/{prefix.site}",),
    )


def ask_scheme(inside: BaseContainer, *words: str) -> bytes:
    """Let the Python of a container tell where it installs packages; "real" follows all links."""
    with open_exchange(inside.folder) as between:
        words = (f"{INSIDE}/scheme.json", *words)
        inside.run("scheme.py", *words, between=between, env={"LC_ALL": "C.UTF-8"})
        return result_bytes(between.out, "scheme.json")


def cached_scheme(base: LockedBase, store: Store) -> bytes | None:
    """Return the kept answer of a base's Python."""
    return read_sealed(store.scheme(base.digest, base.python_path))


def read_scheme(answer: bytes, base: LockedBase, tree: Tree) -> Scheme:
    """Return the scheme of a base, with all links of its tree resolved.

    Raises HostError for nonsense.
    """
    try:
        data = msgspec.json.decode(answer, type=_SchemeAnswer)
    except UNREADABLE as error:
        raise HostError(
            f"its Python does not print where it keeps packages: {error}", where=base.reference
        ) from error
    # links are resolved now: parts are laid by path, and would replace the link by a folder
    site, platform = resolve_links(tree, data.purelib), resolve_links(tree, data.platlib)
    return Scheme(
        site=site,
        prefix=resolve_links(tree, data.data),
        version=minor_version(base.python),
        python=base.python_path.lstrip("/"),
        platform="" if platform == site else platform,
        scripts=resolve_links(tree, data.scripts),
        include=resolve_links(tree, data.include),
        path=tuple(dict.fromkeys(resolve_links(tree, path) for path in data.path)),
    )
