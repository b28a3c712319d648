"""What a solve of conda packages is asked, and what it answers."""

from __future__ import annotations

from typing import Literal

from envbuild.base.model import InstalledConda
from envbuild.names import Machine, Numbers, Texts
from envbuild.records import frozen_record


@frozen_record
class GpuTarget:
    """The nodes that an environment is meant for; None is unknown.

    ``driver`` is the NVIDIA driver of the oldest node ("550.54.14", or its branch "550"),
    ``capabilities`` are ten times the compute capabilities of the cards.
    """

    driver: str | None = None
    capabilities: Numbers = ()


NO_TARGET = GpuTarget()


@frozen_record
class GivenArchive:
    """A package that another tool has locked, and that is taken as it is; hashes may be None."""

    name: str
    version: str
    build: str
    file: str
    sha256: str | None = None
    md5: str | None = None

    @property
    def spec(self) -> str:
        """The match spec of this very build."""
        return f"{self.name} =={self.version} {self.build}"


@frozen_record
class CondaOptions:
    """How to choose: the target, an ISO date or "none" over the recipe's, archives to prefer.

    ``given`` is a whole environment to take as it is.
    """

    target: GpuTarget = NO_TARGET
    as_of: str | None = None
    keep: frozenset[str] = frozenset()
    given: tuple[GivenArchive, ...] = ()


@frozen_record
class CondaRequest:
    """One question to the solver.

    ``specs`` are match specs as the user wrote them; ``channels`` names, best first; ``cpu`` tells
    that builds for the CPU are meant; ``as_of`` is an ISO date or None; ``keep`` are archives of an
    old lock to prefer, ``given`` a whole environment to take as it is.  ``installed`` are packages
    that a base holds already: they stay, but for those named in ``movable``.  ``bounds`` are match
    specs that hold where the package is there at all.
    """

    specs: Texts
    channels: Texts
    machine: Machine
    glibc: str
    target: GpuTarget = NO_TARGET
    cpu: bool = False
    as_of: str | None = None
    keep: frozenset[str] = frozenset()
    given: tuple[GivenArchive, ...] = ()
    installed: tuple[InstalledConda, ...] = ()
    movable: frozenset[str] = frozenset()
    bounds: Texts = ()

    @property
    def held(self) -> frozenset[str]:
        """The names of packages that stay as they are."""
        return frozenset(item.name for item in self.installed) - self.movable


@frozen_record
class CondaFound:
    """One package that the solver chose, as its channel describes it.

    ``depends`` are match specs; ``flags`` are those of CEP 45; ``md5`` may be None.
    """

    name: str
    version: str
    build: str
    subdir: str
    channel: str
    file: str
    size: int
    sha256: str
    md5: str | None
    noarch: Literal["python", "generic"] | None
    license: str | None
    depends: Texts
    flags: Texts = ()

    @property
    def requires(self) -> Texts:
        """The names of the packages that it requires, virtual ones left out."""
        names = (spec.strip().partition(" ")[0].split("[")[0] for spec in self.depends)
        return tuple(name for name in names if not name.startswith("__"))


@frozen_record
class CondaSolution:
    """The answer: packages by name, and the virtual ones ("__cuda=12.4") they were chosen for.

    Those that a base holds already are left out; ``replaced`` are those of them that make room.
    """

    packages: tuple[CondaFound, ...] = ()
    virtual: Texts = ()
    notes: Texts = ()
    replaced: tuple[InstalledConda, ...] = ()

    @property
    def python(self) -> str | None:
        """The version of its Python, None in an environment without one."""
        return next((item.version for item in self.packages if item.name == "python"), None)


@frozen_record
class LockedWheel:
    """A wheel of a lock, and where it is."""

    name: str
    version: str
    sha256: str
    url: str


@frozen_record
class PixiQuestion:
    """What a pixi.lock has beside the channels' records.

    ``virtual`` are virtual packages, ``channels`` addresses, ``wheels`` those on top.
    """

    platform: str
    virtual: Texts
    channels: Texts
    wheels: tuple[LockedWheel, ...]
