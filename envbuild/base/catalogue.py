"""The bases to choose from (data/catalogue.toml), with what their wheels were built for."""

from __future__ import annotations

import functools

import msgspec
from msgspec import structs

from envbuild.data.lookup import build_of
from envbuild.data.tables import (
    Catalogue,
    CatalogueImage,
    CatalogueSuite,
    Status,
    WheelBuild,
    WheelLine,
    load_catalogue,
)


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One base to choose: an image, or a bootstrap with a framework made from wheels.

    ``reference`` is what a recipe writes as image or bootstrap, ``requirement`` what a bootstrap's
    recipe writes as framework; ``build`` says for which GPUs the framework has code, None where
    only its CUDA is known.
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
    build: WheelBuild | None = None
    defect: str | None = None
    note: str | None = None

    @property
    def is_bootstrap(self) -> bool:
        """Whether it is made on this machine from packages."""
        return not self.reference.startswith("docker://")


@functools.cache
def catalogue_entries() -> tuple[CatalogueEntry, ...]:
    """Return every base: bootstraps with each release line for their Python, then images."""
    catalogue = load_catalogue()
    found = []
    for suite in catalogue.suite:
        for wheels in catalogue.wheels:
            if suite.python in wheels.pythons:
                entry = _bootstrap_entry(suite, wheels, catalogue)
                found.append(entry)
    found.extend(_image_entry(image, catalogue) for image in catalogue.image)
    return tuple(found)


def _bootstrap_entry(
    suite: CatalogueSuite, wheels: WheelLine, catalogue: Catalogue
) -> CatalogueEntry:
    build = build_of(wheels.framework, wheels.line)
    cuda = "12" if "cuda12" in wheels.requirement else None
    return CatalogueEntry(
        reference=suite.bootstrap,
        requirement=wheels.requirement,
        framework=wheels.framework,
        version=wheels.line,
        holds=wheels.requirement,
        python=suite.python,
        distro=suite.distro,
        glibc=catalogue.glibc.get(suite.distro),
        cuda=build.cuda if build else cuda,
        cudnn=build.cudnn if build else None,
        driver=None,
        status="verified",
        source=wheels.source,
        build=build,
    )


def _image_entry(image: CatalogueImage, catalogue: Catalogue) -> CatalogueEntry:
    # TensorFlow's own images hold the index's wheels; other makers choose their own list of GPUs
    build = None
    if image.version is not None and image.image.startswith("docker://tensorflow/"):
        build = build_of("tensorflow", image.version)
    fields = structs.asdict(image)
    return CatalogueEntry(
        reference=fields.pop("image"),
        glibc=catalogue.glibc.get(image.distro or ""),
        build=build,
        **fields,
    )
