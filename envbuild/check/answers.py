"""What the probes answer, typed; an answer that does not fit is a fault of the image, never trusted."""

from __future__ import annotations

from itertools import chain
from typing import Generic, TypeVar

import msgspec

from envbuild.names import Numbers, Pairs, Texts
from envbuild.records import frozen_record

T = TypeVar("T")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """Every part of an answer; unknown keys are left alone."""


class FoundDist(_Record, frozen=True):
    """One installed distribution; ``shadowed`` says that an earlier folder of sys.path has one of the same name."""

    name: str
    version: str
    folder: str
    shadowed: bool = False
    record: str | None = None


class Owner(_Record, frozen=True):
    """A distribution that owns a module."""

    name: str
    version: str
    folder: str


class Verified(_Record, frozen=True):
    """Files of one distribution against its RECORD; ``sized`` were compared by size only."""

    files: int
    hashed: int
    sized: int
    changed: Texts
    missing: Texts
    changed_count: int
    missing_count: int


class Overlap(_Record, frozen=True):
    """Two distributions that claim the same files, of which ``different`` have two contents.

    ``of`` is how many the smaller one has, ``lost`` are those whose content of a file is not there.
    """

    dists: tuple[str, str]
    files: int
    of: int
    different: int
    example: str
    lost: Texts = ()


class UserSite(_Record, frozen=True):
    """Python's per-user folder of packages."""

    enabled: bool
    path: str


class BuiltFor(_Record, frozen=True):
    """What a framework's own files say it was built for; ``arches`` as written ("sm_80", "compute_80")."""

    cuda: str | None = None
    cudnn: str | None = None
    is_cuda: bool | None = None
    is_rocm: bool = False
    arches: Texts = ()


class Static(_Record, frozen=True):
    """static_probe: what is installed; ``for_user`` by folder below a home of the image.

    ``requires`` are those of direct requirements and of a framework; ``reached`` are the
    distributions that direct ones ask for, and these in turn; ``damage`` is by distribution.
    """

    python: str
    executable: str
    prefixes: Texts
    path: Texts
    glibc: str
    user_site: UserSite
    environment: dict[str, str]
    missing_folders: Texts
    preload_missing: Texts
    files_missing: dict[str, str]
    owners: dict[str, tuple[Owner, ...]]
    files: dict[str, str | None]
    imports: dict[str, Texts]
    builds: dict[str, BuiltFor]
    verified: dict[str, Verified]
    lost_records: Texts
    for_user: dict[str, Texts]
    overlaps: tuple[Overlap, ...]
    dists: tuple[FoundDist, ...]
    closed: Texts = ()
    requires: dict[str, Texts] = {}
    reached: Texts = ()
    damage: dict[str, Pairs] = {}

    def dist(self, name: str) -> FoundDist | None:
        """Return the distribution that Python finds under a canonical name."""
        return next((item for item in self.dists if item.name == name and not item.shadowed), None)


class Place(_Record, frozen=True):
    """Where a library was found.

    ``lost`` are the names that it needs in turn and that are not found, with who needs them; ``nv``
    where it is found instead in the order of Apptainer 1.5's --nv, if that is another place.
    """

    path: str | None = None
    real: str | None = None
    lost: Pairs = ()
    nv: str | None = None

    @property
    def loads(self) -> bool:
        """Whether it is found with all that it needs."""
        return self.path is not None and not self.lost


class LibrarySurvey(_Record, frozen=True):
    """libraries_probe: which shared libraries are found.

    ``outdated`` maps a library to the symbol versions that it lacks and the objects that need them;
    ``wanted`` is by framework and soname; ``needed_by`` has who needs an object that lacks a
    library, ``idle`` those that nothing loads, ``unnamed`` those of them that no object names, to
    open them, ``other_pythons`` modules for other Pythons only,
    ``lost_symbols`` an object, a symbol that it needs, and the package that does not have it.
    """

    folders: Texts
    objects: int
    foreign: int
    damaged: Pairs
    damaged_count: int
    missing: dict[str, Texts]
    outdated: dict[str, dict[str, Texts]]
    preloaded: dict[str, Texts]
    wanted: dict[str, dict[str, Place]]
    copies: dict[str, Texts]
    library_path: Texts
    tools: dict[str, Texts]
    needed_by: dict[str, Texts] = {}
    idle: Texts = ()
    unnamed: Texts = ()
    other_pythons: Texts = ()
    cudnn: dict[str, str] = {}
    lost_symbols: tuple[tuple[str, str, str], ...] = ()

    @property
    def all_copies(self) -> list[str]:
        """The paths of all copies, whatever their names."""
        return list(chain.from_iterable(self.copies.values()))


class Region(_Record, frozen=True):
    """Regions of GPU code that hold the same: capabilities (times ten) of machine code and of portable code.

    ``exact`` are those of code for one GPU alone (sm_90a).
    """

    count: int
    sass: Numbers
    ptx: Numbers
    exact: Numbers = ()


class CodeFile(_Record, frozen=True):
    """GPU code of a shared object (a path relative to site-packages) or of a conda package (its name)."""

    path: str
    regions: tuple[Region, ...]


class Code(_Record, frozen=True):
    """fatbin_probe: for which GPUs the files hold code; ``bytes`` is their size, ``unread`` were out of time."""

    files: tuple[CodeFile, ...]
    unread: Texts
    bytes: int
    seconds: float


class Imported(_Record, frozen=True):
    """One import: ``error`` is the traceback's last line, or how the process ended.

    ``blame`` are the distributions (canonical) that the traceback goes through, innermost first.
    ``advice`` is what the message says to install, ``used`` says that only the project's source
    asks for what failed, ``taking`` the name that it asks for ("": the module itself).
    """

    ok: bool
    seconds: float = 0.0
    version: str | None = None
    file: str | None = None
    error: str = ""
    kind: str = ""
    noise: Texts = ()
    blame: Texts = ()
    advice: str = ""
    used: bool = False
    taking: str = ""


class Tried(_Record, frozen=True):
    """One program of entry_points.toml; ``note`` is what a user has to do first."""

    ok: bool
    seconds: float = 0.0
    error: str = ""
    note: str = ""
    noise: Texts = ()


class FoundConda(_Record, frozen=True):
    """One package by its record in conda-meta; ``flags`` are those of CEP 45."""

    name: str
    version: str
    build: str
    channel: str = ""
    flags: Texts = ()


class TwoOwners(_Record, frozen=True):
    """A distribution of pip and a conda package that own the same files.

    ``changed`` of them hold another content than conda's record says.
    """

    dist: str
    version: str
    package: str
    files: int
    changed: int
    example: str


class CondaSurvey(_Record, frozen=True):
    """conda_probe: an environment's records against its files.

    ``lost`` are packages and paths that are gone, ``other_python`` packages for another Python than
    the environment's (name, path, the environment's), ``runtimes`` OpenMP libraries that exclude each
    other, ``before`` folders whose libraries are loaded in the place of the environment's own,
    ``outside`` libraries that only the system has, ``missing`` what is nowhere and who needs it.
    ``prefix`` is None where there is no environment.
    """

    prefix: str | None
    packages: tuple[FoundConda, ...] = ()
    lost: Pairs = ()
    lost_count: int = 0
    other_python: tuple[tuple[str, str, str], ...] = ()
    overlaps: tuple[TwoOwners, ...] = ()
    runtimes: Texts = ()
    before: dict[str, Texts] = {}
    outside: Texts = ()
    missing: Pairs = ()


class Imports(_Record, frozen=True):
    """import_probe: one answer for each module, and for each program by its name.

    ``absent`` are modules that the project needs and nothing in the image has, ``loaded`` the
    distributions of which these imports load a module.
    """

    modules: dict[str, Imported]
    entries: dict[str, Tried] = {}
    absent: Texts = ()
    loaded: Texts = ()


class Plain(_Record, frozen=True):
    """plain_probe: the poisoned modules that can be imported, and the caller's variables that are seen."""

    home: str
    modules: Texts
    variables: Texts


class ScriptRun(_Record, frozen=True):
    """How the recipe's own check script ended; ``last_line`` is of what it printed, or of its error."""

    code: int
    last_line: str
    last_lines: Texts


class Device(_Record, frozen=True):
    """One GPU as the driver describes it; ``capability`` is (major, minor), ``memory`` in bytes."""

    index: int
    name: str = "?"
    capability: tuple[int, int] = (0, 0)
    memory: int | None = None
    code: int = 0


class CudaDriver(_Record, frozen=True):
    """What libcuda says, or that the loader does not find it where the runtime ``laid`` it."""

    loaded: bool
    error: str = ""
    laid: bool = False
    path: str | None = None
    init: int | None = None  # cuInit's code
    cuda: str | None = None  # the newest toolkit that it supports
    count: int = 0
    devices: tuple[Device, ...] = ()


class Nvml(_Record, frozen=True):
    """What libnvidia-ml says."""

    loaded: bool
    error: str = ""
    init: int | None = None
    driver: str | None = None
    count: int | None = None
    mig: tuple[bool | None, ...] = ()


class Driver(_Record, frozen=True):
    """driver_probe: the driver's own answers."""

    cuda: CudaDriver
    nvml: Nvml
    environment: dict[str, str] = {}


class Computed(_Record, frozen=True):
    """One task on one device (probes/shared/compute.py).

    ``error`` is relative to the float64 result, ``device`` where it was computed, ``bandwidth`` in
    bytes per second as nccl-tests counts it, ``repeats`` how often an endurance task was done.
    """

    index: int
    task: str = "product"
    device: str = ""
    error: float | None = None
    seconds: float | None = None
    failed: str | None = None
    losses: tuple[float, ...] = ()
    cpu_seconds: float | None = None
    bandwidth: float | None = None
    repeats: int | None = None


class Seen(_Record, frozen=True):
    """What NVML says about the process that computes: its id is listed, ``rise`` of the memory in use in bytes."""

    pid: bool
    processes: int
    rise: int


class Compute(_Record, frozen=True):
    """The probe of a framework: what it sees and computes; ``loaded`` are the CUDA libraries of its process."""

    version: str
    devices: Texts
    results: tuple[Computed, ...]
    notes: Texts = ()
    is_cuda: bool | None = None
    arches: Texts = ()
    seen: Seen | None = None
    loaded: dict[str, Texts] = {}

    def of(self, *tasks: str) -> tuple[Computed, ...]:
        """Return the results of some tasks."""
        return tuple(one for one in self.results if one.task in tasks)


@frozen_record
class Answer(Generic[T]):
    """A probe's answer, or why there is none; ``noise`` are the last lines that it printed beside."""

    data: T | None
    fault: str = ""
    hint: str | None = None
    seconds: float = 0.0
    noise: Texts = ()
