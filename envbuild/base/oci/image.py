"""An OCI image as a base: facts from its layers, files laid out for a build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from envbuild.base.facts import cached_facts, is_day, keep_facts, read_probe
from envbuild.base.model import BaseFacts, BaseReference
from envbuild.base.oci.layers import Tree
from envbuild.base.oci.static import keep_file, read_static
from envbuild.context import Context
from envbuild.errors import IntegrityError
from envbuild.formats.oci import MANIFESTS, OciConfig, OciImage, read_config, read_image
from envbuild.names import BY_DEBIAN, Texts
from envbuild.net.partial import is_complete
from envbuild.progress import Stage
from envbuild.store.atomic import link_or_copy, make_folder, os_errors_as, write_text
from envbuild.store.hashing import digest_of
from envbuild.store.layout import Store, remove_tree

OLDEST = "2000-01-01"
"""Days before it in a configuration are what reproducible builds write, and tell nothing."""


def image_facts(
    reference: BaseReference,
    image: OciImage,
    download_missing: Callable[[], None],
    context: Context,
) -> BaseFacts:
    """Return the facts of an image whose manifest is in the store, kept by its digest.

    ``download_missing`` fetches the layers and is called only where the facts are not known yet.
    """
    kept = cached_facts(image.digest, context.store)
    if kept is not None:
        return structs.replace(kept, image=reference.text)
    download_missing()
    config = stored_config(image, context.store)
    architecture = BY_DEBIAN.get(config.architecture)
    with context.report.stage(f"read what {reference.text} holds", total=image.size) as stage:
        tree = read_tree(image, config, context.store, reference.text, stage)
        output = read_static(
            tree,
            config.environment,
            machine=architecture.machine if architecture else "unknown",
            where=reference.text,
        )
    created = _creation_day(config)
    facts = read_probe(
        output, image=reference.text, digest=image.digest, created=created, size=image.size
    )
    keep_facts(facts, image.digest, context.store)
    return facts


def read_tree(image: OciImage, config: OciConfig, store: Store, where: str, stage: Stage) -> Tree:
    """Merge the layers, each checked against the configuration's diff_id."""
    contents = layer_contents(image, config, where)
    tree = Tree(keep_file(config.environment))
    for number, (layer, diff_id) in enumerate(zip(image.manifest.layers, contents, strict=True)):
        tree.add_layer(store.artifact(layer.sha256), diff_id, number=number, where=where)
        stage.advance(layer.size)
    return tree


def layer_contents(image: OciImage, config: OciConfig, where: str) -> Texts:
    """Return the hash of what each layer unpacks to; raises IntegrityError for another number."""
    layers, diff_ids = image.manifest.layers, config.rootfs.diff_ids
    if len(diff_ids) != len(layers):
        what = f"has {len(layers)} layers, its configuration names {len(diff_ids)}"
        raise IntegrityError(what, where=where)
    return diff_ids


def _creation_day(config: OciConfig) -> str | None:
    created = (config.created or "")[:10]
    return created if is_day(created) and created >= OLDEST else None


def stored_image(digest: str, store: Store, *, sif: bool = False) -> OciImage | None:
    """Return the image (or the SIF) whose manifest the store holds, None where it does not."""
    path = store.artifact(digest)
    if not path.is_file():
        return None
    data = path.read_bytes()
    if digest_of(data) != digest:
        raise IntegrityError(
            "the store's copy of the manifest is damaged", where=path, hint="remove that file"
        )
    return read_image(data, MANIFESTS[0], where=str(path), sif=sif)


def stored_config(image: OciImage, store: Store) -> OciConfig:
    """Read the configuration of an image from the store."""
    path = store.artifact(image.manifest.config.sha256)
    with os_errors_as(path):
        data = path.read_bytes()
    if digest_of(data) != image.manifest.config.digest:
        what = "the store's copy of the image's configuration is damaged"
        raise IntegrityError(what, where=path, hint="run: envbuild store verify")
    return read_config(data, where=str(path))


def missing_bytes(image: OciImage, store: Store) -> int:
    """Return how many bytes of an image's layers the store lacks."""
    layers = {layer.digest: layer for layer in image.manifest.layers}.values()
    return sum(
        layer.size for layer in layers if not is_complete(store.artifact(layer.sha256), layer.size)
    )


def lay_out(image: OciImage, store: Store) -> Path:
    """Return a folder in the OCI image layout whose blobs are second names of the store's files.

    Raises IntegrityError where the store lacks one.
    """
    final = store.root / "v1/layouts" / image.digest.replace(":", "-")
    if (final / "index.json").is_file():
        return final
    with store.work("layout") as work, os_errors_as(final):
        blobs = work / "layout/blobs/sha256"
        blobs.mkdir(parents=True)
        manifest = image.manifest
        for blob in {b.digest: b for b in (manifest.config, *manifest.layers)}.values():
            source = store.artifact(blob.sha256)
            if not is_complete(source, blob.size):
                what = "a layer of the base is not whole in the store"
                raise IntegrityError(what, where=source)
            link_or_copy(source, blobs / blob.sha256)
        (blobs / image.digest.removeprefix("sha256:")).write_bytes(image.raw)
        entry = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.raw)}
        index = {"schemaVersion": 2, "manifests": [entry]}
        write_text(work / "layout/oci-layout", '{"imageLayoutVersion":"1.0.0"}')
        write_text(work / "layout/index.json", msgspec.json.encode(index).decode())
        make_folder(final.parent)
        if final.exists():
            remove_tree(final)
        (work / "layout").rename(final)
    return final
