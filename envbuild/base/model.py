"""The base and its facts: BaseReference names it, BaseFacts says what is in it (docs/base.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from packaging.utils import canonicalize_name

from envbuild.formats.fields import Sha256, Size
from envbuild.names import BaseKind, Pairs, Texts
from envbuild.store.hashing import digest_of
from envbuild.toml import TomlTable

SCHEMA = 1
Header = Pairs
"""The first lines of a definition: what it starts from."""
PoolPath = Annotated[
    str, Meta(pattern=r"^pool(/[A-Za-z0-9][A-Za-z0-9._+~%-]*)+\.deb\Z", max_length=400)
]


class BaseReference(msgspec.Struct, frozen=True, kw_only=True):
    """A base as a person names it, taken apart.

    ``kind`` is a row of BASE_KINDS: "debian" is a bootstrap ("debian:bookworm": ``name`` is the
    suite); "sif" is a local image file (``name`` is its path as written); "docker" an image, "oras"
    a SIF in a registry; "oci", "oci-archive" and "docker-archive" an image in a folder or file;
    "docker-daemon" one that an engine holds (``name`` is what follows the colon, without slashes of
    a ``//``). ``text`` is what was written; ``platform`` is what to take of an image that is there
    for several; ``digest`` is the locked one (``sha256:…``), None while the name alone counts.
    """

    kind: BaseKind
    name: str
    text: str
    platform: str = "linux/amd64"
    digest: str | None = None


class Dist(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One installed Python distribution.

    ``requires`` are PEP 508 strings of its metadata; ``location`` is the folder it is installed in;
    ``record`` is the sha256 (hex) of its RECORD file, None where it has none; ``installer`` is what
    INSTALLER says; ``modules`` are its top-level import names where they can be told.
    """

    name: str
    version: str
    requires: Texts = ()
    requires_python: str | None = None
    location: str | None = None
    record: str | None = None
    installer: str | None = None
    modules: Texts = ()
    note: str | None = None


class DebianPackage(TomlTable, frozen=True, kw_only=True, omit_defaults=True):
    """One Debian package; ``group`` is its layer: base, [system] packages, or build only."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9+.-]+\Z")]
    version: Annotated[str, Meta(pattern=r"^[0-9][A-Za-z0-9.+~:-]*\Z", max_length=100)]
    architecture: Annotated[str, Meta(pattern=r"^[a-z0-9-]+\Z")]
    group: Literal["base", "system", "build"]
    path: PoolPath
    size: Size
    sha256: Sha256

    @property
    def file(self) -> str:
        """The file name, unique in the lock."""
        return self.path.rsplit("/", 1)[1]


class AptPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One installed Debian package."""

    name: str
    version: str
    architecture: str


class InstalledConda(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conda package that an image holds, by its record in conda-meta.

    ``channel`` is a short name ("conda-forge"), never a host; ``number`` is the build's;
    ``depends`` and ``constrains`` are match specs.
    """

    name: str
    version: str
    build: str
    channel: str = ""
    subdir: str = ""
    number: int = 0
    depends: Texts = ()
    constrains: Texts = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from any other package."""
        return self.name, self.version, self.build


class BaseFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an image holds, read out of it once per digest.

    Only ``image``, ``python``, ``machine``, ``glibc`` and ``dists`` are needed to resolve against
    it.  ``python`` is "" where it holds none; ``off_path`` says that its Python is on no PATH.  ``created`` is an ISO date; ``size`` is in bytes; ``cuda``, ``cudnn``, ``nccl`` are
    versions, ``framework`` is "name version"; ``built_for`` are the versions that the framework
    itself says it was built for ("cuda", "cudnn"); ``stubs`` are paths of libcuda stub libraries;
    ``constraints`` is the text of the image's pip constraint files.  ``conda_prefix`` is the conda
    environment that the Python lives in (its real path), ``conda`` are that one's packages.
    """

    image: str
    python: str
    machine: str
    glibc: str
    dists: tuple[Dist, ...] = ()
    schema: int = SCHEMA
    digest: str | None = None
    created: str | None = None
    size: int | None = None
    distro: str | None = None
    python_path: str | None = None
    abi: str | None = None
    prefix: str | None = None
    site: Texts = ()
    externally_managed: bool = False
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    framework: str | None = None
    built_for: dict[str, str] = {}
    apt: tuple[AptPackage, ...] = ()
    constraints: str | None = None
    environment: dict[str, str] = {}
    stubs: Texts = ()
    conda_prefix: str | None = None
    conda: tuple[InstalledConda, ...] = ()
    off_path: bool = False

    def dist(self, name: str) -> Dist | None:
        """Return the distribution of that canonical name, or None."""
        wanted = canonicalize_name(name)
        return next((d for d in self.dists if canonicalize_name(d.name) == wanted), None)


def facts_digest(facts: BaseFacts) -> str:
    """Return ``sha256:…`` over the facts in canonical JSON (sorted keys, defaults left out)."""
    return digest_of(msgspec.json.encode(facts, order="sorted"))
