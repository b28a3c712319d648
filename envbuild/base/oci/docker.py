"""``docker://`` and ``oras://``: images and SIFs of a registry as a base."""

from __future__ import annotations

from msgspec import structs

from envbuild.base.facts import keep_facts, kept_facts
from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.base.oci.image import image_facts, lay_out, stored_image
from envbuild.base.sif import describe_sif
from envbuild.formats.image_name import parse_image_name
from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.settings import Settings
from envbuild.store.layout import Store


def describe_docker(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> BaseFacts:
    """Return the facts of a registry's image; only the first look at a digest downloads its layers."""
    from envbuild.base.oci.registry import bring_layers, resolve

    name = parse_image_name(reference.name)
    with report.stage(f"ask the registry for {name.short}"):
        image = resolve(
            name, reference.platform, settings=settings, runner=runner, store=store, report=report
        )

    def bring() -> None:
        bring_layers(name, image, settings=settings, runner=runner, store=store, report=report)

    return image_facts(reference, image, bring, store, report)


def bring_docker(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> Header:
    """Bring the image with the locked digest into the store, whatever its tag means now; nothing where it is there.

    Returns the header that starts from the store's copy.
    """
    from envbuild.base.oci.registry import bring_layers, resolve

    name = parse_image_name(reference.name).with_digest(reference.digest or "")
    image = stored_image(reference.digest or "", store)
    if image is None:
        image = resolve(
            name, reference.platform, settings=settings, runner=runner, store=store, report=report
        )
    bring_layers(name, image, settings=settings, runner=runner, store=store, report=report)
    return (("Bootstrap", "oci"), ("From", str(lay_out(image, store))))


def describe_oras(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> BaseFacts:
    """Return the facts of a SIF in a registry, kept by its manifest's digest."""
    from envbuild.base.oci.registry import bring_sif, resolve_sif

    name = parse_image_name(reference.name)
    with report.stage(f"ask the registry for {name.short}"):
        image = resolve_sif(name, settings=settings, runner=runner, store=store, report=report)
    kept = kept_facts(image.digest, store)
    if kept is not None:
        return structs.replace(kept, image=reference.text)
    path = bring_sif(name, image, settings=settings, runner=runner, store=store, report=report)
    local = BaseReference(kind="sif", name=str(path), text=reference.text)
    facts = structs.replace(
        describe_sif(local, settings, runner, store, report), digest=image.digest
    )
    keep_facts(facts, image.digest, store)
    return facts


def bring_oras(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> Header:
    """Bring the SIF with the locked digest into the store; returns the header that starts from there."""
    from envbuild.base.oci.registry import bring_sif, resolve_sif

    name = parse_image_name(reference.name).with_digest(reference.digest or "")
    image = stored_image(reference.digest or "", store, sif=True)
    if image is None:
        image = resolve_sif(name, settings=settings, runner=runner, store=store, report=report)
    path = bring_sif(name, image, settings=settings, runner=runner, store=store, report=report)
    return (("Bootstrap", "localimage"), ("From", str(path)))
