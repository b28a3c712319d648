"""The base of a build.

An image's layers from the store, so that the build itself needs no network.
"""

from __future__ import annotations

from msgspec import structs

from envbuild.base.model import BaseReference, Header
from envbuild.base.oci.image import missing_bytes, stored_image
from envbuild.base.reference import parse_reference
from envbuild.base.sources import fetch_base
from envbuild.context import Context
from envbuild.lock.model import Lock
from envbuild.plan.apptainer import with_header
from envbuild.plan.definition import is_before_cuda_key
from envbuild.progress import Reporter
from envbuild.store.layout import Store


def base_download_size(lock: Lock, store: Store) -> int:
    """Return how much of the base is still to be downloaded."""
    kind = locked_reference(lock).kind
    if not kind.in_registry:
        return 0
    image = stored_image(lock.base.digest, store, sif=kind.is_sif)
    return lock.base.size if image is None else missing_bytes(image, store)


def with_local_base(definition: str, lock: Lock, context: Context) -> str:
    """Fetch the locked base into the store and return the definition that starts from there.

    That of a bootstrap comes back as it was.
    """
    header = fetch_locked_base(lock, context)
    return with_header(definition, header) if header else definition


def fetch_locked_base(lock: Lock, context: Context) -> Header:
    """Fetch the locked base into the store, and return the header that starts from there.

    The header of a bootstrap is empty: its packages are fetched with all others.
    """
    reference = locked_reference(lock)
    if reference.kind.is_bootstrap:
        return ()
    report_old_cuda(lock, context.report)
    return fetch_base(reference, context)


def locked_reference(lock: Lock) -> BaseReference:
    """Return the reference to the very base that a lock names."""
    reference = parse_reference(lock.base.reference)
    return structs.replace(reference, platform=lock.platform, digest=lock.base.digest)


def report_old_cuda(lock: Lock, report: Reporter) -> bool:
    """Say so, and return True, where the base's CUDA package source has to be switched off."""
    # apt-get update fails in such images until the source is off
    old = is_before_cuda_key(lock.base)
    if old:
        report.say(
            f"the base is of {lock.base.created}, before NVIDIA's new key: its CUDA package source is switched off"
        )
    return old
