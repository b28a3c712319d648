"""``docker://`` and ``oras://``: images and SIFs of a registry as a base."""

from __future__ import annotations

from msgspec import structs

from envbuild.base.facts import cached_facts, keep_facts
from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.base.oci.image import image_facts, lay_out, stored_image
from envbuild.base.oci.registry import download_layers, download_sif, resolve_image, resolve_sif
from envbuild.base.sif import describe_sif
from envbuild.context import Context
from envbuild.formats.image_name import parse_image_name
from envbuild.names import BASE_KINDS


def describe_docker(reference: BaseReference, context: Context) -> BaseFacts:
    """Return the facts of a registry's image; layers are downloaded once per digest."""
    name = parse_image_name(reference.name)
    with context.report.stage(f"ask the registry for {name.short}"):
        image = resolve_image(name, reference.platform, context)

    def download_missing() -> None:
        download_layers(name, image, context)

    return image_facts(reference, image, download_missing, context)


def fetch_docker(reference: BaseReference, context: Context) -> Header:
    """Download the image with the locked digest where the store lacks it.

    Returns the header that starts from the store's copy.
    """
    name = parse_image_name(reference.name).with_digest(reference.digest or "")
    stored = stored_image(reference.digest or "", context.store)
    image = stored or resolve_image(name, reference.platform, context)
    download_layers(name, image, context)
    return (("Bootstrap", "oci"), ("From", str(lay_out(image, context.store))))


def describe_oras(reference: BaseReference, context: Context) -> BaseFacts:
    """Return the facts of a SIF in a registry, kept by its manifest's digest."""
    name = parse_image_name(reference.name)
    with context.report.stage(f"ask the registry for {name.short}"):
        image = resolve_sif(name, context)
    kept = cached_facts(image.digest, context.store)
    if kept is not None:
        return structs.replace(kept, image=reference.text)
    path = download_sif(name, image, context)
    local = BaseReference(kind=BASE_KINDS["sif"], name=str(path), text=reference.text)
    facts = structs.replace(describe_sif(local, context), digest=image.digest)
    keep_facts(facts, image.digest, context.store)
    return facts


def fetch_oras(reference: BaseReference, context: Context) -> Header:
    """Download the SIF with the locked digest; return the header that starts from it."""
    name = parse_image_name(reference.name).with_digest(reference.digest or "")
    stored = stored_image(reference.digest or "", context.store, sif=True)
    image = stored or resolve_sif(name, context)
    path = download_sif(name, image, context)
    return (("Bootstrap", "localimage"), ("From", str(path)))
