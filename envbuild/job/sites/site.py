"""The site record: how one cluster says what a job needs, as its TOML file tells it (docs/site.md has every key)."""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn

import msgspec
from msgspec import Meta, structs

from envbuild.errors import UsageError
from envbuild.formats.block_codec import opens_zstd
from envbuild.names import Machine
from envbuild.toml import TomlTable

OneLine = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=300)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+:@/-]*\Z", max_length=100)]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
Folder = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f\x7f:\"$`\\]*|\$[A-Za-z_][A-Za-z0-9_]*)\Z")]
Cache = Annotated[str, Meta(pattern=r"^(\{scratch\})?(/[A-Za-z0-9._+-]+)*\Z")]
SourceLine = Annotated[str, Meta(pattern=r"^(source|\.) /[A-Za-z0-9._/+-]+\Z")]
InstalledRuntime = Annotated[str, Meta(pattern=r"^((apptainer|singularity) \d+(\.\d+)*)?\Z")]
Option = Annotated[str, Meta(pattern=r"^-[A-Za-z-]+=?\Z")]
Count = Annotated[int, Meta(ge=1)]
Version = Annotated[str, Meta(pattern=r"^(\d+(\.\d+)*)?\Z")]
Chunk = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*=[^\x00-\x20:+\x7f]+\Z")]
Field = Literal["account", "partition", "walltime", "memory", "cpus"]


class SiteSection(TomlTable, frozen=True):
    """[site]: its name, its scheduler, where the facts come from, and when it closed, if it did."""

    name: Word
    scheduler: Word
    summary: OneLine = ""
    source: OneLine = ""
    checked: OneLine = ""
    retired: OneLine | None = None


class Fields(TomlTable, frozen=True):
    """[fields]: which fields of a job must be given, and how the account and the queue are called here."""

    required: tuple[Field, ...] = ()
    account: Option | None = None
    account_on_command_line: bool = False
    partition: Word | None = None
    options: tuple[OneLine, ...] = ()
    interactive: tuple[OneLine, ...] = ()


class Resources(TomlTable, frozen=True):
    """[resources]: the dialect of GPUs, processors and memory.

    ``gpu`` says how GPUs are asked for: a Slurm option, a Grid Engine consumable (``gpu-name``,
    counted ``gpu-per`` slot or job), "ngpus" of a PBS chunk, "type" (the node type has them), or
    "none".  ``memory`` is "mem" or the name of a Grid Engine resource, counted ``memory-per`` slot
    or job; "none" where the site decides.
    """

    gpu: Literal["gpus", "gres", "gpus-per-node", "consumable", "ngpus", "type", "none"] = "none"
    gpu_name: Word = "gpu"
    gpu_per: Literal["job", "slot"] = "job"
    gpu_types: tuple[Word, ...] = ()
    gpus_per_node: Count | None = None
    parallel_environment: Word | None = None
    memory: Word = "none"
    memory_per: Literal["job", "slot"] = "job"
    cpus: Literal["asked", "fixed"] = "asked"


class NodeType(TomlTable, frozen=True):
    """[[type]]: a node, or a part of one, that the site hands out by name.

    ``most`` is how many one job may get.
    """

    name: Word
    gpus: Annotated[int, Meta(ge=0)] = 0
    cpus: Count = 1
    memory: OneLine = ""
    most: Count | None = None
    shared_gpu: bool = False


class Limits(TomlTable, frozen=True):
    """[limits]: what one job may ask for at most; times and sizes carry their unit."""

    walltime: OneLine | None = None
    nodes: Count | None = None
    gpus: Count | None = None
    array: Count | None = None
    interactive_walltime: OneLine | None = None
    trial_walltime: OneLine | None = None
    trial_units: Count | None = None


class Partition(TomlTable, frozen=True):
    """[[partition]]: a queue with limits of its own."""

    name: Word
    walltime: OneLine | None = None
    nodes: Count | None = None
    gpus_per_node: Count | None = None
    gpu_types: tuple[Word, ...] = ()


class Folders(TomlTable, frozen=True):
    """[folders]: node-local folders in the order of preference, scratch, and variables that point caches to it."""

    local: tuple[Folder, ...] = ("$TMPDIR", "/tmp")  # noqa: S108  (every node has it)
    scratch: Folder | None = None
    caches: dict[Variable, Cache] = msgspec.field(default_factory=dict)


class Modules(TomlTable, frozen=True):
    """[modules]: the line that makes ``module`` known, what to load for the runtime, and for MPI on top."""

    init: SourceLine | None = None
    load: tuple[Word, ...] = ()
    mpi: tuple[Word, ...] = ()


class Containers(TomlTable, frozen=True):
    """[runtime]: the program, flags that every call needs here, and folders that the container gets to see."""

    program: Literal["apptainer", "singularity", "any"] = "any"
    flags: tuple[OneLine, ...] = ()
    binds: tuple[Folder, ...] = ()
    environment: dict[Variable, OneLine] = msgspec.field(default_factory=dict)


class Mpi(TomlTable, frozen=True):
    """[mpi]: who starts the ranks, options of the starter, and variables for the host side and inside."""

    start: Literal["mpirun", "mpiexec", "srun"] = "mpirun"
    kind: Literal["openmpi", "mpich"] = "openmpi"
    arguments: tuple[OneLine, ...] = ()
    environment: dict[Variable, OneLine] = msgspec.field(default_factory=dict)
    inside: dict[Variable, OneLine] = msgspec.field(default_factory=dict)
    binds: tuple[Folder, ...] = ()


class Build(TomlTable, frozen=True):
    """[build]: where images are made, and where the network is."""

    where: Literal["login", "job"] = "login"
    network: Literal["everywhere", "login"] = "everywhere"
    gpus: Annotated[int, Meta(ge=0)] = 0
    cpus: Count = 4
    memory: OneLine = "16GiB"
    walltime: OneLine = "1h"
    partition: Word | None = None
    type: Word | None = None


class Gpu(TomlTable, frozen=True):
    """[[gpu]]: one kind of GPU of the site, for ``check --for``.

    ``capability`` is ten times CUDA's number.
    """

    name: OneLine
    capability: Annotated[int, Meta(ge=10, le=200)]
    memory: OneLine = ""
    partition: Word | None = None


class HostFacts(TomlTable, frozen=True):
    """[host]: what its nodes run; "" is not known.

    NVIDIA driver, glibc and architecture; ``runtime`` is name and version: "apptainer 1.3.6".
    """

    driver: Version = ""
    glibc: Version = ""
    runtime: InstalledRuntime = ""
    architecture: Machine = "x86_64"


class GridEngineKeys(TomlTable, frozen=True):
    """[gridengine]: whether qsub is asked to refuse what can never run (``-w e``), whether ``-notify`` works."""

    verify: bool = True
    notify: bool = True


class PbsKeys(TomlTable, frozen=True):
    """[pbs]: whether the node type is the queue (ABCI 3.0), keys of every chunk, and the key that names a GPU's type."""

    type_is_queue: bool = False
    gpu_type: Word | None = None
    chunk: tuple[Chunk, ...] = ()


class Site(TomlTable, frozen=True):
    """A whole site file."""

    site: SiteSection
    fields: Fields = Fields()
    resources: Resources = Resources()
    type: tuple[NodeType, ...] = ()
    partition: tuple[Partition, ...] = ()
    limits: Limits = Limits()
    folders: Folders = Folders()
    modules: Modules = Modules()
    runtime: Containers = Containers()
    mpi: Mpi = Mpi()
    build: Build = Build()
    gpu: tuple[Gpu, ...] = ()
    host: HostFacts = HostFacts()
    gridengine: GridEngineKeys = GridEngineKeys()
    pbs: PbsKeys = PbsKeys()

    @property
    def name(self) -> str:
        """The site's name."""
        return self.site.name

    @property
    def shown_folders(self) -> tuple[str, ...]:
        """The folders that every container gets to see: paths, or variables with a $."""
        scratch = self.folders.scratch
        return (*self.runtime.binds, *((scratch,) if scratch else ()))

    @property
    def runtime_without_zstd(self) -> str | None:
        """The container runtime, if it opens no image packed with zstd.

        None where that is not known.
        """
        name, _, version = self.host.runtime.partition(" ")
        if version:
            fits = opens_zstd(name, tuple(map(int, version.split("."))))
            return None if fits else f"{name.title()} {version}"
        # without a version only Singularity is certain: no release of it opens one
        return "Singularity" if self.runtime.program == "singularity" else None

    def cards(self, partition: str | None) -> list[Gpu]:
        """Return the GPUs of a partition; all where none is named."""
        return [row for row in self.gpu if partition is None or row.partition in (None, partition)]

    def queue(self, name: str | None) -> Partition | None:
        """Return the partition that a job goes to, None where the site lists none of that name."""
        wanted = name or self.fields.partition
        return next((row for row in self.partition if row.name == wanted), None)

    def limits_of(self, name: str | None) -> Partition:
        """Return the limits of the partition that a job goes to: its own before the site's."""
        own = self.queue(name) or Partition(name="")
        limits, resources = self.limits, self.resources
        usual = {
            "walltime": limits.walltime,
            "nodes": limits.nodes,
            "gpus_per_node": resources.gpus_per_node,
            "gpu_types": resources.gpu_types,
        }
        unset = {key: value for key, value in usual.items() if not getattr(own, key)}
        return structs.replace(own, **unset)


def refuse(site: Site, field: str, rule: str, hint: str | None = None) -> NoReturn:
    """Raise the error about a field that breaks a rule of the site."""
    raise UsageError(f"{field}: {rule}", where=f"site {site.name}", hint=hint)
