"""The lock record (docs/lock.md): ``lockfiles/NAME.lock`` is its only written form."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from envbuild.base.model import DebianPackage
from envbuild.formats.fields import FOLDER, PackageName, Sha256, Size, Version
from envbuild.names import DIRECT, ChannelName, CondaFolder, Machine, Platform, Texts
from envbuild.resolve.outcome import HeldBack, Moved, Provided
from envbuild.store.units import minor_version
from envbuild.toml import TomlTable

SCHEMA = 1
CONDA_PREFIX = "/opt/env"
"""Where conda packages are installed in every image whose base has no prefix of its own."""
LINKER = "py-rattler"
"""What installs conda packages where envbuild does not: one of the locked wheels."""
PROOF_SECONDS = 1800.0
"""How long a search for versions that import may take unless told otherwise."""
EVERYTHING = "*"
"""What --upgrade without a name stands for."""
PACKED_BY = {"zstd": "zstd", "gzip": "zlib"}
"""The library of each compressor, as a packer's ``library`` begins."""
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!~%-]*\Z", max_length=255)]


PythonVersion = Annotated[
    str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9.+!_~:-]*)?\Z", max_length=100)
]
"""A version, or "" for a base without Python."""
CondaName = Annotated[str, Meta(pattern=r"^[a-z0-9_][a-z0-9_.-]*\Z", max_length=128)]
"""A name of a conda package (CEP 26)."""
CondaWord = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!]*\Z", max_length=128)]
"""A version or build string: no "/", no "-", and nothing that leads out of a folder."""
CondaSubdir = CondaFolder | Literal["noarch"]
CondaFile = Annotated[
    str, Meta(pattern=r"^[a-z0-9_][A-Za-z0-9_.+!-]*\.(conda|tar\.bz2)\Z", max_length=255)
]


Folder = Annotated[str, Meta(pattern=rf"^{FOLDER}\Z", max_length=300)]


class _Entry(TomlTable, frozen=True, omit_defaults=True):
    """Every table of a lock: frozen, known keys only."""


class LockedBase(_Entry, frozen=True):
    """The base: its digest (of a bootstrap: over its packages), its facts' digest.

    ``epoch`` is SOURCE_DATE_EPOCH for everything made from this lock, in seconds: no file of the
    base is newer, so that clamping times to it never makes the base's compiled bytecode look stale.
    ``python_path`` is the Python that packages are installed for; ``externally_managed`` that pip
    and uv must be told to (PEP 668); ``size`` what has to be downloaded of an image, in bytes (0
    for a bootstrap, whose packages are listed).  ``conda_prefix`` is the conda environment that its
    Python lives in, None for any other Python; of a base without Python it is the first that it
    has.  ``off_path`` says that its Python is on no PATH.
    """

    reference: str
    digest: Digest
    facts: Digest
    python: PythonVersion
    machine: Machine
    glibc: Version
    created: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z")]
    epoch: Annotated[int, Meta(ge=0, lt=2**33)]
    distro: str = ""
    framework: str | None = None
    cuda: str | None = None
    python_path: Folder = "/usr/bin/python3"
    externally_managed: bool = False
    size: Size = 0
    conda_prefix: Folder | None = None
    off_path: bool = False


class PythonPackage(_Entry, frozen=True):
    """One wheel or sdist; ``group``: framework, project, or only for building sdists.

    ``source`` is set for what is no file of an index but a tree of source files: a folder of the
    project ("."), or "git+https://…@COMMIT"; ``file`` is the archive that envbuild packs of it.
    ``via`` names the packages that require it; "(direct)" stands for the recipe.
    """

    name: PackageName
    version: Version
    group: Literal["framework", "project", "build"]
    file: FileName
    size: Size
    sha256: Sha256
    index: str | None = None
    source: (
        Annotated[
            str,
            Meta(pattern=r"^(\.(/[^\x00-\x1f]*)?|git\+[a-z]+://[^\s\x00-\x1f]+)\Z", max_length=400),
        ]
        | None
    ) = None
    via: Texts = ()

    @property
    def is_direct(self) -> bool:
        """Whether the recipe itself requires it."""
        return DIRECT in self.via

    @property
    def is_sdist(self) -> bool:
        """Whether it is built from source, inside the base."""
        return not self.file.endswith(".whl")

    @property
    def version_variable(self) -> str | None:
        """The variable that tells builders the version of a tree, instead of git."""
        if self.source is None:
            return None
        return f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{re.sub('[-_.]+', '_', self.name).upper()}"


class LockedFiles(_Entry, frozen=True):
    """One entry of [files]: what, where in the image, and the archive of it."""

    source: Annotated[
        str,
        Meta(
            min_length=1, max_length=300, pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$))[^\x00-\x1f\x7f]+\Z"
        ),
    ]
    target: Annotated[
        str, Meta(max_length=300, pattern=r"^(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+\Z")
    ]
    size: Size
    sha256: Sha256


class CondaPackage(_Entry, frozen=True):
    """One conda package by its archive (CEP 26 for names, CEP 37 for the fields).

    ``channel`` is the short name of the recipe ("conda-forge"), never a host; ``python`` the minor
    version ("3.12") that a noarch package's modules are placed for; ``via`` names the packages that
    require it; "(direct)" stands for the recipe.
    """

    name: CondaName
    version: CondaWord
    build: CondaWord
    subdir: CondaSubdir
    channel: ChannelName
    file: CondaFile
    size: Size
    sha256: Sha256
    md5: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")] | None = None
    noarch: Literal["python", "generic"] | None = None
    python: Annotated[str, Meta(pattern=r"^[23]\.\d{1,2}\Z")] | None = None
    license: Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=300)] | None = None
    via: Texts = ()

    @property
    def stem(self) -> str:
        """The name of its archive without the ending, and of its record once it is installed."""
        return f"{self.name}-{self.version}-{self.build}"

    @property
    def is_direct(self) -> bool:
        """Whether the recipe itself requires it."""
        return DIRECT in self.via


class Packer(_Entry, frozen=True):
    """What packs the image: its name and version, the compressor and its level.

    ``library`` is the exact compressor ("zstd 1.5.7"), which decides the bytes; None where the lock
    leaves it open.
    """

    name: str
    version: str
    compressor: Literal["zstd", "gzip"]
    level: Annotated[int, Meta(ge=1, le=22)]
    library: Annotated[str, Meta(pattern=r"^[a-z]+ [0-9.]+\Z", max_length=40)] | None = None


class PackerFile(_Entry, frozen=True):
    """A wheel with the packer's library for one Python; the fitting one is used."""

    name: PackageName
    version: Version
    file: FileName
    size: Size
    sha256: Sha256


class Lock(_Entry, frozen=True):
    """A whole lock file.

    ``recipe_digest`` is over what the lock depends on (base, python, system, conda); ``direct``,
    ``system``, ``channels`` and ``conda_direct`` are the direct requirements as written, so that a
    stale lock can name the line that changed; ``as_of`` is the date resolved at; ``conda_virtual``
    are the virtual packages ("__cuda=12.4") that the conda packages were chosen for.
    """

    schema: int
    name: str
    platform: Platform
    recipe_digest: Digest
    proof: Literal["imported", "not run"]
    direct: Texts
    base: LockedBase
    packer: Packer
    system: Texts = ()
    as_of: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z")] | None = None
    tools: dict[str, str] = msgspec.field(default_factory=dict)
    notes: Texts = ()
    debian: tuple[DebianPackage, ...] = ()
    python: tuple[PythonPackage, ...] = ()
    packers: tuple[PackerFile, ...] = ()
    provided: tuple[Provided, ...] = ()
    moved: tuple[Moved, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    files: tuple[LockedFiles, ...] = ()
    channels: tuple[ChannelName, ...] = ()
    conda_direct: Texts = ()
    conda_virtual: Texts = ()
    conda: tuple[CondaPackage, ...] = ()

    @property
    def installed(self) -> tuple[PythonPackage, ...]:
        """The Python packages that are put over the base."""
        return tuple(package for package in self.python if package.group != "build")

    @property
    def build_only(self) -> tuple[PythonPackage, ...]:
        """The Python packages that only the building of sdists needs."""
        return tuple(package for package in self.python if package.group == "build")

    @property
    def base_packages(self) -> tuple[DebianPackage, ...]:
        """The Debian packages that a bootstrapped base is made of."""
        return tuple(package for package in self.debian if package.group == "base")

    @property
    def system_packages(self) -> tuple[DebianPackage, ...]:
        """The Debian packages that are put over the base, those for building too."""
        return tuple(package for package in self.debian if package.group != "base")

    @property
    def installed_debian(self) -> tuple[DebianPackage, ...]:
        """The Debian packages of the finished image, as far as the lock brings them."""
        return tuple(package for package in self.debian if package.group != "build")

    @property
    def conda_prefix(self) -> str:
        """The folder that conda packages are installed in."""
        return self.base.conda_prefix or CONDA_PREFIX

    @property
    def conda_python(self) -> CondaPackage | None:
        """The Python among the conda packages, None where there is none."""
        return next((package for package in self.conda if package.name == "python"), None)

    @property
    def python_version(self) -> str:
        """The version of the Python that packages are installed for: conda's, else the base's.

        It is "" where neither has one.
        """
        found = self.conda_python
        return self.base.python if found is None else found.version

    @property
    def python_title(self) -> str:
        """The Python that packages are installed for, as it is shown to people."""
        return f"Python {self.python_version}" if self.python_version else "no Python"

    @property
    def python_path(self) -> str:
        """The Python that packages are installed for."""
        if self.conda_python is None:
            return self.base.python_path
        return f"{self.conda_prefix}/bin/python{minor_version(self.python_version)}"

    @property
    def is_bootstrap(self) -> bool:
        """Whether the base is made of Debian packages, and no image."""
        return self.base.reference.startswith("debian:")
