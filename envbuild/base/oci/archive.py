"""Images in files: OCI layouts (a folder or one tar), and what ``docker save`` writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.base.oci.daemon import save_image
from envbuild.base.oci.image import image_facts, lay_out, stored_config, stored_image
from envbuild.context import Context
from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.oci import (
    BIGGEST,
    MANIFESTS,
    Blob,
    Index,
    Manifest,
    OciImage,
    choose_manifest,
    read_document,
    read_image,
    require_platform,
)
from envbuild.limits import UNREADABLE, open_plain, readable, reading
from envbuild.net.partial import is_complete
from envbuild.records import frozen_record
from envbuild.store.atomic import commit_file, os_errors_as, write_bytes
from envbuild.store.hashing import digest_of
from envbuild.store.layout import Store
from envbuild.tarread import opened_members

CONFIG_KIND = "application/vnd.oci.image.config.v1+json"
LAYER_KIND = "application/vnd.oci.image.layer.v1.tar"
CHUNK = 1024 * 1024

Opener = Callable[[str], "IO[bytes]"]
"""Opens a member by its path inside the archive; KeyError where it is not there."""


@frozen_record
class ArchiveForm:
    """One form of an image outside registries: how its members are opened and read."""

    open_members: Callable[[BaseReference, Context], AbstractContextManager[Opener]]
    read_members: Callable[[Opener, BaseReference, Store], OciImage]

    def describe(self, reference: BaseReference, context: Context) -> BaseFacts:
        """Return the facts of an image; its blobs are in the store afterwards.

        Raises UsageError for what is no such archive, IntegrityError for one that is damaged.
        """
        image = self.read_image(reference, context)
        return image_facts(reference, image, lambda: None, context)

    def fetch(self, reference: BaseReference, context: Context) -> Header:
        """Return the header that starts from the locked image, read again where the store lost it.

        Raises IntegrityError where the file holds another image by now.
        """
        stored = stored_image(reference.digest or "", context.store)
        image = stored or self.read_image(reference, context)
        if image.digest != reference.digest:
            raise IntegrityError(
                f"holds another image than was locked: {image.digest}, "
                f"the lock says {reference.digest}",
                where=reference.text,
                hint="take this one: envbuild lock NAME",
            )
        return (("Bootstrap", "oci"), ("From", str(lay_out(image, context.store))))

    def read_image(self, reference: BaseReference, context: Context) -> OciImage:
        """Bring the image into the store."""
        with (
            context.report.stage(f"read {reference.text}"),
            self.open_members(reference, context) as opener,
        ):
            return self.read_members(opener, reference, context.store)


@contextmanager
def _open_engine_image(reference: BaseReference, context: Context) -> Iterator[Opener]:
    """Lend the members of an image that a Docker engine of this machine holds."""
    with context.store.work("docker") as work:
        target = work / "image.tar"
        save_image(reference, target, context.settings)
        with _open_tar(target, reference) as opener:
            yield opener


@contextmanager
def _open_file(reference: BaseReference, context: Context) -> Iterator[Opener]:
    """Lend the members of an archive in one file."""
    with _open_tar(_existing_path(reference, context), reference) as opener:
        yield opener


@contextmanager
def _open_folder(reference: BaseReference, context: Context) -> Iterator[Opener]:
    """Lend the members of an OCI layout that is a folder."""
    path = _existing_path(reference, context)
    if not (path / "index.json").is_file():
        raise UsageError(
            "is not a folder in the OCI image layout: it has no index.json", where=path
        )

    def from_folder(name: str) -> IO[bytes]:
        try:
            return open_plain(path / name)
        except OSError as error:
            raise KeyError(name) from error

    yield from_folder


def _existing_path(reference: BaseReference, context: Context) -> Path:
    path = context.settings.cwd / Path(_archive_path(reference)).expanduser()
    if not path.exists():
        raise UsageError("there is no such file", where=path)
    return path


def _archive_path(reference: BaseReference) -> str:
    """Return the path without the tag that may follow it ("oci:folder:tag")."""
    path = reference.name.rpartition(":")[0] if _tag_of(reference) else ""
    return path or reference.name


def _tag_of(reference: BaseReference) -> str | None:
    path, colon, tag = reference.name.rpartition(":")
    return tag if colon and path and "/" not in tag else None


@contextmanager
def _open_tar(path: Path, reference: BaseReference) -> Iterator[Opener]:
    with readable(path):
        open_plain(path).close()
    with (
        reading("is no whole tar archive", reference.text),
        opened_members(path) as (tar, listed),
    ):
        found = {member.name.removeprefix("./"): member for member in listed}

        def from_tar(name: str) -> IO[bytes]:
            member = found[name]
            if member.issym():  # docker save writes a layer that is there twice as a link
                member = found[str(Path(name).parent / member.linkname).replace("/../", "/")]
            file = tar.extractfile(member)
            if file is None:
                raise KeyError(name)
            return file

        yield from_tar


def _read_layout(opener: Opener, reference: BaseReference, store: Store) -> OciImage:
    where = reference.text
    document = read_document(_read_small(opener, "index.json", where), "", where=where)
    if not isinstance(document, Index):
        raise UsageError("is not an OCI image layout", where=where)
    tag = _tag_of(reference)
    named = [
        e
        for e in document.manifests
        if (e.annotations or {}).get("org.opencontainers.image.ref.name") == tag
    ]
    if tag is not None and not named:
        raise UsageError(f"holds no image with the tag {tag!r}", where=where)
    entry: Blob = choose_manifest(
        Index(manifests=tuple(named) if tag else document.manifests),
        reference.platform,
        where=where,
    )
    data = _blob_bytes(opener, entry.digest, where)
    document = read_document(data, entry.media_type, where=where)
    if isinstance(document, Index):
        entry = choose_manifest(document, reference.platform, where=where)
        data = _blob_bytes(opener, entry.digest, where)
    image = read_image(data, entry.media_type, where=where)
    for blob in (image.manifest.config, *image.manifest.layers):
        found = _import_blob(opener, f"blobs/sha256/{blob.sha256}", where, store, known=blob)
        if found.digest != blob.digest:
            raise IntegrityError(
                f"the blob {blob.digest} holds other bytes: {found.digest}", where=where
            )
    return _store_manifest(image, reference, store)


def _read_saved(opener: Opener, reference: BaseReference, store: Store) -> OciImage:
    """Read the output of ``docker save``: plain tars, so the manifest is written here."""
    where = reference.text
    try:
        images: Any = msgspec.json.decode(_read_small(opener, "manifest.json", where))
        entry = images[0]
        config_name, layer_names = str(entry["Config"]), [str(name) for name in entry["Layers"]]
    except (*UNREADABLE, KeyError, IndexError, TypeError) as error:
        raise UsageError("is not what docker save writes", where=where) from error
    if len(images) != 1 and _tag_of(reference) is None:
        tags: list[str] = []
        for item in images:
            tags += map(str, item.get("RepoTags") or ())
        names = ", ".join(tags)
        raise UsageError(
            f"holds {len(images)} images: {names}", where=where, hint="save one of them"
        )
    config = _import_blob(opener, config_name, where, store, kind=CONFIG_KIND)
    layers = tuple(
        _import_blob(opener, name, where, store, kind=LAYER_KIND) for name in layer_names
    )
    manifest = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": config, "layers": layers}
    raw = msgspec.json.encode(manifest, order="deterministic")
    image = OciImage(
        digest=digest_of(raw),
        raw=raw,
        media_type=MANIFESTS[0],
        manifest=Manifest(config=config, layers=layers),
    )
    return _store_manifest(image, reference, store)


def _store_manifest(image: OciImage, reference: BaseReference, store: Store) -> OciImage:
    require_platform(stored_config(image, store), reference.platform, where=reference.text)
    write_bytes(store.artifact(image.digest), image.raw, mode=0o444)
    return image


def _read_small(opener: Opener, name: str, where: str) -> bytes:
    try:
        with opener(name) as file:
            data = file.read(BIGGEST + 1)
    except KeyError as error:
        raise UsageError(
            f"holds no {name}, so it is no image archive of this kind", where=where
        ) from error
    if len(data) > BIGGEST:
        raise IntegrityError(f"{name} is larger than {BIGGEST} bytes", where=where)
    return data


def _blob_bytes(opener: Opener, digest: str, where: str) -> bytes:
    data = _read_small(opener, f"blobs/sha256/{digest.removeprefix('sha256:')}", where)
    if digest_of(data) != digest:
        raise IntegrityError(f"the blob {digest} holds other bytes: {digest_of(data)}", where=where)
    return data


def _import_blob(
    opener: Opener,
    name: str,
    where: str,
    store: Store,
    *,
    known: Blob | None = None,
    kind: str = "",
) -> Blob:
    """Copy a member into the store by its sha256, unless it is there already."""
    if known is not None and is_complete(store.artifact(known.sha256), known.size):
        return known
    digest = hashlib.sha256()
    try:
        source = opener(name)
    except KeyError as error:
        raise IntegrityError(f"holds no {name}, which its manifest names", where=where) from error
    with store.work("blob") as work, os_errors_as(work):
        with source, (work / "blob").open("wb") as target:
            size = 0
            # of a file with holes no more is copied than the manifest says
            while (known is None or size <= known.size) and (chunk := source.read(CHUNK)):
                digest.update(chunk)
                size += target.write(chunk)
        if known is None or digest.hexdigest() == known.sha256:
            commit_file(work / "blob", store.artifact(digest.hexdigest()))
    return Blob(media_type=kind, digest=f"sha256:{digest.hexdigest()}", size=size)


OCI_FOLDER = ArchiveForm(open_members=_open_folder, read_members=_read_layout)
OCI_FILE = ArchiveForm(open_members=_open_file, read_members=_read_layout)
DOCKER_FILE = ArchiveForm(open_members=_open_file, read_members=_read_saved)
DOCKER_ENGINE = ArchiveForm(open_members=_open_engine_image, read_members=_read_saved)
