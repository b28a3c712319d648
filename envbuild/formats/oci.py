"""Read the documents of an OCI image: index, manifest and configuration, Docker's kinds included.

Untrusted bytes.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.fields import Size
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.store.hashing import digest_of

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
"""The kind of a SIF's only layer (as apptainer push writes it)."""
BIGGEST = 4 * 1024 * 1024
"""Bytes of a manifest that every registry accepts (OCI distribution specification 1.1).

Larger ones are refused.
"""
MOST_LAYERS = 1000


class Blob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One blob that a document names: its kind, digest and size in bytes."""

    media_type: str
    digest: Digest
    size: Size

    @property
    def sha256(self) -> str:
        """The digest in hex, as the store names it."""
        return self.digest.removeprefix("sha256:")


class ManifestPlatform(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest of an index is for."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class IndexEntry(Blob, frozen=True, kw_only=True, rename="camel"):
    """A manifest that an index names, for one platform."""

    platform: ManifestPlatform | None = None
    annotations: dict[str, str] | None = None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """A list of manifests, one a platform."""

    manifests: tuple[IndexEntry, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """An image: its configuration and its layers, lowest first."""

    config: Blob
    layers: tuple[Blob, ...]


class OciCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What an image runs, as which user and with which variables."""

    env: Annotated[Texts | None, Meta()] = msgspec.field(name="Env", default=None)
    entrypoint: Texts | None = msgspec.field(name="Entrypoint", default=None)
    cmd: Texts | None = msgspec.field(name="Cmd", default=None)
    labels: dict[str, str] | None = msgspec.field(name="Labels", default=None)


class RootFs(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of the unpacked layers, lowest first."""

    diff_ids: tuple[Digest, ...] = ()


class OciConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An image's configuration: ``diff_ids`` are the digests of the unpacked layers."""

    architecture: str
    os: str = "linux"
    created: str | None = None
    config: OciCommand | None = None
    rootfs: RootFs = RootFs()

    @property
    def environment(self) -> dict[str, str]:
        """The image's variables."""
        lines = self.config.env if self.config else None
        pairs = (line.partition("=") for line in lines or ())
        return {name: value for name, _, value in pairs if name}

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels."""
        return (self.config.labels if self.config else None) or {}

    @property
    def command(self) -> Texts:
        """Entry point and its arguments: what the image runs when nothing else is asked for."""
        command = self.config or OciCommand()
        return (*(command.entrypoint or ()), *(command.cmd or ()))


class OciImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of one platform: the digest and the bytes of its manifest, and what they say."""

    digest: str
    raw: bytes
    media_type: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes of all layers as they are stored."""
        return sum(
            layer.size for layer in {layer.digest: layer for layer in self.manifest.layers}.values()
        )


def read_document(
    data: bytes, media_type: str, *, where: str, sif: bool = False
) -> Index | Manifest:
    """Read what a registry or a layout gave as a manifest or an index.

    Raises UsageError for an image in a format of before 2017, IntegrityError for anything that is
    no such document.
    """
    body = _read_object(data, where)
    media = body.get("mediaType") or media_type.partition(";")[0].strip()
    if body.get("schemaVersion") == 1 or "docker.distribution.manifest.v1" in str(media):
        hint = "pull and push it once with a newer Docker: that converts it"
        raise UsageError("is in Docker's old manifest format (schema 1)", where=where, hint=hint)
    kind: type[Index | Manifest] = Index if media in INDEXES or "manifests" in body else Manifest
    try:
        document = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise IntegrityError(f"is not the manifest of an image: {error}", where=where) from error
    if isinstance(document, Manifest):
        (_require_sif if sif else _require_image)(document, where)
    return document


def read_image(data: bytes, media_type: str, *, where: str, sif: bool = False) -> OciImage:
    """Read the bytes of one platform's manifest, or of a SIF's."""
    document = read_document(data, media_type, where=where, sif=sif)
    if isinstance(document, Index):
        raise IntegrityError("is a list of images where one image was expected", where=where)
    media = _read_object(data, where).get("mediaType") or media_type or MANIFESTS[0]
    return OciImage(digest=digest_of(data), raw=data, media_type=str(media), manifest=document)


def read_config(data: bytes, *, where: str) -> OciConfig:
    """Read an image's configuration.  Raises IntegrityError for anything else."""
    try:
        return msgspec.convert(_read_object(data, where), OciConfig)
    except msgspec.ValidationError as error:
        raise IntegrityError(
            f"is not the configuration of an image: {error}", where=where
        ) from error


def choose_manifest(index: Index, platform: str, *, where: str) -> Blob:
    """Return the manifest for "linux/amd64" or "linux/arm64".

    Raises UsageError naming the platforms that there are.
    """
    for entry in index.manifests:
        named = entry.platform or ManifestPlatform()
        if f"{named.os}/{named.architecture}" == platform:
            return entry
    images = [
        entry
        for entry in index.manifests
        if not (entry.annotations or {}).get("vnd.docker.reference.type")
    ]
    if len(images) == 1 and images[0].platform is None:
        return images[0]
    there = sorted({str(e.platform) for e in images if e.platform}) or ["none"]
    raise UsageError(
        f"the image is not there for {platform}",
        where=where,
        hint=f"it is there for: {', '.join(there)} ([base] platform chooses)",
    )


def require_platform(config: OciConfig, platform: str, *, where: str) -> None:
    """Raise UsageError unless an image is for this platform."""
    found = f"{config.os}/{config.architecture}"
    if found != platform:
        hint = f'take a tag for {platform}, or write platform = "{found}" under [base] and work on such a machine'
        raise UsageError(f"the image is for {found}, not for {platform}", where=where, hint=hint)


def _require_image(manifest: Manifest, where: str) -> None:
    kind = manifest.config.media_type
    if "sif" in kind or any("sif" in layer.media_type for layer in manifest.layers):
        raise UsageError(
            "is a SIF in a registry", where=where, hint="write oras:// in place of docker://"
        )
    if kind not in (
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    ):
        raise UsageError(f"is not a container image but {kind}", where=where)
    if not 0 < len(manifest.layers) <= MOST_LAYERS:
        raise IntegrityError(f"has {len(manifest.layers)} layers", where=where)
    foreign = next((layer for layer in manifest.layers if "foreign" in layer.media_type), None)
    if foreign:
        raise UsageError("has a layer that registries do not hold (Windows images do)", where=where)


def _require_sif(manifest: Manifest, where: str) -> None:
    if [layer.media_type for layer in manifest.layers] != [SIF_LAYER]:
        raise UsageError(
            "is no SIF in a registry", where=where, hint="for a container image write docker://"
        )


def _read_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(data)
    except RecursionError as error:
        raise IntegrityError("is JSON that is nested too deeply", where=where) from error
    except UNREADABLE as error:
        start = data[:80].decode("utf-8", "replace").strip()
        hint = "a login page, a proxy or a damaged file stands in its place: look at the address in a browser"
        raise IntegrityError(f"is not JSON; it begins {start!r}", where=where, hint=hint) from error
    if not isinstance(body, dict):
        raise IntegrityError("is not a JSON object", where=where)
    return body
