"""The catalogue of bases (data/catalogue.toml), with what CUDA and its drivers demand of each (data/cuda.toml)."""

from __future__ import annotations

import datetime as dt
import functools
from importlib import resources
from typing import Any, Literal, TypeVar

import msgspec

from envbuild.toml import convert, parse_toml

T = TypeVar("T")
Status = Literal["verified", "derived", "unverified"]


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every table of the catalogue: frozen, known keys only."""


class Suite(_Row, frozen=True):
    """A Debian release that is bootstrapped."""

    bootstrap: str
    python: str
    distro: str


class Wheels(_Row, frozen=True):
    """A release line of a framework on the package index, and the Python versions it has Linux wheels for."""

    framework: str
    line: str
    requirement: str
    pythons: tuple[str, ...]
    source: str


class Image(_Row, frozen=True):
    """An image of a registry; ``holds`` is what its framework is called inside, ``version`` the public version."""

    image: str
    status: Status
    source: str
    framework: str | None = None
    holds: str | None = None
    version: str | None = None
    python: str | None = None
    distro: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    defect: str | None = None
    note: str | None = None


class Catalogue(_Row, frozen=True):
    """The whole of catalogue.toml; ``glibc`` maps distributions to their C library."""

    schema: int
    suite: tuple[Suite, ...]
    glibc: dict[str, str]
    wheels: tuple[Wheels, ...]
    image: tuple[Image, ...]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A compute capability (times ten), cards that have it (``also``: rarer ones), toolkits that compile for it."""

    capability: int
    names: str
    also: str = ""
    since: str = "0"
    until: str = "999"


class Cuda(msgspec.Struct, frozen=True, kw_only=True):
    """What a choice needs of cuda.toml: drivers by toolkit, oldest drivers by family, GPUs."""

    drivers: dict[str, str]
    families: dict[str, str]
    gpu: tuple[Gpu, ...]


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """What the wheels of one release line were built for; ``sass`` and ``ptx`` are capabilities times ten."""

    framework: str
    version: str
    cuda: str
    cudnn: str | None = None
    sass: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()


class Releases(_Row, frozen=True):
    """When each release line of a framework came out."""

    schema: int
    source: str
    torch: dict[str, dt.date]
    tensorflow: dict[str, dt.date]
    jax: dict[str, dt.date]


class _Frameworks(msgspec.Struct, frozen=True, kw_only=True):
    build: tuple[Build, ...]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One base to choose: an image, or a bootstrap with a framework made from wheels.

    ``reference`` is what a recipe writes as image or bootstrap, ``requirement`` what a bootstrap's recipe writes as
    framework; ``build`` tells for which GPUs the framework has code, None where only its CUDA is known.
    """

    reference: str
    framework: str | None
    version: str | None
    holds: str | None
    python: str | None
    distro: str | None
    glibc: str | None
    cuda: str | None
    cudnn: str | None
    driver: str | None
    status: Status
    source: str
    requirement: str | None = None
    build: Build | None = None
    defect: str | None = None
    note: str | None = None

    @property
    def is_bootstrap(self) -> bool:
        """Whether it is made on this machine from packages."""
        return not self.reference.startswith("docker://")


@functools.cache
def load_catalogue() -> Catalogue:
    """Read data/catalogue.toml."""
    return _read("catalogue.toml", Catalogue)


@functools.cache
def load_cuda() -> Cuda:
    """Read what a choice needs of data/cuda.toml."""
    return _read("cuda.toml", Cuda)


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return every base of the catalogue: bootstraps with each release line that fits their Python, then images."""
    catalogue = load_catalogue()
    made = (
        _bootstrap(suite, wheels, catalogue)
        for suite in catalogue.suite
        for wheels in catalogue.wheels
    )
    return (
        *(entry for entry in made if entry is not None),
        *(_image(image, catalogue) for image in catalogue.image),
    )


def _bootstrap(suite: Suite, wheels: Wheels, catalogue: Catalogue) -> Entry | None:
    if suite.python not in wheels.pythons:
        return None
    build = build_of(wheels.framework, wheels.line)
    return Entry(
        reference=suite.bootstrap,
        requirement=wheels.requirement,
        framework=wheels.framework,
        version=wheels.line,
        holds=wheels.requirement,
        python=suite.python,
        distro=suite.distro,
        glibc=catalogue.glibc.get(suite.distro),
        cuda=build.cuda if build else ("12" if "cuda12" in wheels.requirement else None),
        cudnn=build.cudnn if build else None,
        driver=None,
        status="verified",
        source=wheels.source,
        build=build,
    )


def _image(image: Image, catalogue: Catalogue) -> Entry:
    # only TensorFlow's own images hold the index's wheels; other makers build for their own list of GPUs
    own = image.image.startswith("docker://tensorflow/") and image.version is not None
    return Entry(
        reference=image.image,
        framework=image.framework,
        version=image.version,
        holds=image.holds,
        python=image.python,
        distro=image.distro,
        glibc=catalogue.glibc.get(image.distro or ""),
        cuda=image.cuda,
        cudnn=image.cudnn,
        driver=image.driver,
        status=image.status,
        source=image.source,
        build=build_of("tensorflow", image.version or "") if own else None,
        defect=image.defect,
        note=image.note,
    )


def released(framework: str | None, version: str | None) -> dt.date | None:
    """Return the day on which the release line of a version came out; None for one that nobody knows."""
    line = ".".join((version or "").split(".")[:2])
    table: dict[str, dt.date] = getattr(_read_releases(), framework or "", {})
    return table.get(line)


@functools.cache
def _read_releases() -> Releases:
    return _read("releases.toml", Releases)


@functools.cache
def _builds() -> tuple[Build, ...]:
    return _read("frameworks.toml", _Frameworks).build


def build_of(framework: str, version: str) -> Build | None:
    """Return what the index's wheels of a framework's version were built for: the exact release, else its line."""
    line = ".".join(version.split(".")[:2])
    found = {build.version: build for build in _builds() if build.framework == framework}
    return found.get(version) or found.get(line)


def _read(name: str, kind: type[T]) -> T:
    text = resources.files("envbuild.data").joinpath(name).read_text("utf-8")
    data: Any = parse_toml(text, name)
    return convert(data, kind, text=text, where=name)
