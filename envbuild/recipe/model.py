"""The recipe record, as written by people in ``NAME.toml`` (docs/recipe.md has every key)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, structs

from envbuild.names import NAME, ChannelName, Platform, Texts
from envbuild.toml import TomlTable

Name = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME}\Z",
        description="Letters, digits, dot, underscore and hyphen; at most 64 characters.",
    ),
]
OneLine = Annotated[
    str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=200, description="One line of text.")
]
Words = tuple[
    Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]*\Z")], ...
]


class AboutSection(TomlTable, frozen=True):
    """[recipe]: what it is called and what it is for."""

    name: Name
    summary: OneLine = ""


class BaseSection(TomlTable, frozen=True):
    """[base]: an existing image, or Debian packages plus a framework from wheels.

    Exactly one of ``image`` (a reference or the path of a ``.sif``) and ``bootstrap``
    ("debian:bookworm") is given; ``framework`` is one requirement ("tensorflow[and-cuda]==2.15.*")
    and goes with ``bootstrap``; ``cpu`` says that an image without CUDA is meant.
    """

    image: OneLine | None = None
    bootstrap: OneLine | None = None
    framework: OneLine | None = None
    platform: Platform = "linux/amd64"
    cpu: bool = False


Distribution = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z",
        max_length=100,
        description="The name of a Python distribution, without a version.",
    ),
]


AsOf = Annotated[
    str,
    Meta(
        pattern=r"^(\d{4}-\d{2}-\d{2}|none)\Z", description='A date, such as 2024-05-31, or "none".'
    ),
]


class PythonSection(TomlTable, frozen=True):
    """[python]: the direct requirements (PEP 508), named extra indexes, and the date to resolve at.

    ``version`` is the Python that the base must have ("3.12").  ``from_source`` are names of
    packages that are built inside the base although the index has wheels of them.
    """

    version: (
        Annotated[str, Meta(pattern=r"^3\.\d{1,2}\Z", description="A Python series, such as 3.12.")]
        | None
    ) = None
    dependencies: Words = ()
    from_source: tuple[Distribution, ...] = ()
    indexes: Words = ()
    as_of: AsOf | None = None


DebianName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9+.-]+\Z",
        description="A Debian package name (Debian policy 5.6.7).",
    ),
]


class SystemSection(TomlTable, frozen=True):
    """[system]: Debian packages, packages for building only, and last shell lines."""

    packages: tuple[DebianName, ...] = ()
    build_packages: tuple[DebianName, ...] = ()
    post: Texts = ()


class CondaSection(TomlTable, frozen=True):
    """[conda]: names of channels, the first one first, and match specs (docs/conda.md).

    ``as_of`` takes packages as they were on a day.
    """

    channels: tuple[ChannelName, ...] = ()
    dependencies: Words = ()
    as_of: AsOf | None = None


class TargetSection(TomlTable, frozen=True):
    """[target]: the nodes that the image is meant for, which conda's packages are chosen for.

    ``sites`` are names of site files, with a partition or without ("lab:gpu"); ``gpu`` are cards
    ("A100") or compute capabilities ("8.0"), ``driver`` is that of the oldest node.
    """

    sites: Words = ()
    gpu: Words = ()
    driver: (
        Annotated[
            str,
            Meta(
                pattern=r"^\d+(\.\d+){0,2}\Z", description="A driver's version: 550 or 550.54.14."
            ),
        ]
        | None
    ) = None


class CheckSection(TomlTable, frozen=True):
    """[check]: modules to import, a script beside the recipe, the framework to find.

    ``network`` lets imports and script reach the network, which they otherwise cannot.
    """

    imports: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")], ...] = ()
    script: OneLine | None = None
    framework: OneLine | None = None
    network: bool = False


HomeFolder = Annotated[
    str,
    Meta(
        pattern=r"^(?!\.(cache|compiled)(/|$))(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*\Z",
        max_length=200,
        description="A folder below HOME, such as .insightface.",
    ),
]


class RunSection(TomlTable, frozen=True):
    """[run]: what ``envbuild run`` starts when no command is given, and variables set in the image.

    ``caches``: whether downloads and compiled code are kept for the user, or further folders of
    HOME to keep.
    """

    command: Texts = ()
    environment: dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")], str] = (
        msgspec.field(default_factory=dict)
    )
    caches: bool | tuple[HomeFolder, ...] = True


Launcher = Literal["single", "torchrun", "lightning", "mpi"]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
Count = Annotated[int, Meta(ge=1, le=100_000)]


class JobSection(TomlTable, frozen=True):
    """[job]: what a job needs on a cluster; flags of ``submit`` and ``job`` win (docs/job.md).

    ``gpus`` and ``tasks`` are in all (``gpus`` None: one for each node where the image has CUDA),
    ``cpus`` per task, ``memory`` per node ("32GiB"), ``walltime`` "24h"; ``environment`` are names
    of variables to hand on; ``inputs`` are paths that must be readable inside, ``stage`` those that
    are copied (archives: unpacked) to the node's own disk first. ``warn`` is how long before its
    end the command is told ("10m"), ``requeue`` how often it then goes back into the queue.
    """

    gpus: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    gpu_type: OneLine | None = None
    nodes: Count | None = None
    tasks: Count | None = None
    cpus: Count | None = None
    memory: OneLine | None = None
    walltime: OneLine | None = None
    partition: OneLine | None = None
    account: OneLine | None = None
    array: OneLine | None = None
    launcher: Launcher = "single"
    environment: tuple[VariableName, ...] = ()
    output: OneLine | None = None
    inputs: Words = ()
    stage: Words = ()
    warn: OneLine | None = None
    requeue: Annotated[int, Meta(ge=1, le=1000)] | None = None


class Recipe(TomlTable, frozen=True):
    """A whole recipe file.

    ``files`` maps files and folders below the project's folder to absolute paths in the image.
    """

    recipe: AboutSection
    base: BaseSection
    python: PythonSection = PythonSection()
    system: SystemSection = SystemSection()
    conda: CondaSection = CondaSection()
    target: TargetSection = TargetSection()
    files: dict[OneLine, OneLine] = msgspec.field(default_factory=dict)
    check: CheckSection = CheckSection()
    run: RunSection = RunSection()
    job: JobSection = JobSection()

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe together with where it was found; ``lock`` is where its lock is, or will be written.

    ``shipped`` says that it came with envbuild, so its folder is not the user's to write to.
    """

    recipe: Recipe
    path: Path
    text: str
    lock: Path
    shipped: bool = False


def asking_for(source: Source, *packages: str) -> Source:
    """Return a recipe that asks for more packages."""
    python = source.recipe.python
    asked = tuple(dict.fromkeys((*python.dependencies, *packages)))
    python = structs.replace(python, dependencies=asked)
    recipe = structs.replace(source.recipe, python=python)
    return structs.replace(source, recipe=recipe)
