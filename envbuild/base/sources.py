"""Facts of any base: the one place that knows which functions read which kind of base."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.base.debian.apt import resolve_bootstrap
from envbuild.base.debian.bootstrap import bootstrap_facts
from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.base.oci.archive import DOCKER_ENGINE, DOCKER_FILE, OCI_FILE, OCI_FOLDER, ArchiveForm
from envbuild.base.oci.docker import describe_docker, describe_oras, fetch_docker, fetch_oras
from envbuild.base.sif import describe_sif, fetch_sif
from envbuild.context import Context
from envbuild.records import frozen_record


def _describe_debian(reference: BaseReference, context: Context) -> BaseFacts:
    """Return the facts of a bootstrap as it would be locked now."""
    return bootstrap_facts(resolve_bootstrap(reference.name, context), context)


@frozen_record
class BaseSource:
    """How one kind of base is read.

    ``describe`` returns its facts, read once per digest.  ``fetch`` makes sure that the locked
    image is here and returns the header of a definition that starts from it; None for a bootstrap,
    which is made from packages.
    """

    describe: Callable[[BaseReference, Context], BaseFacts]
    fetch: Callable[[BaseReference, Context], Header] | None = None


def _archive_source(form: ArchiveForm) -> BaseSource:
    return BaseSource(describe=form.describe, fetch=form.fetch)


SOURCES: dict[str, BaseSource] = {
    "debian": BaseSource(describe=_describe_debian),
    "sif": BaseSource(describe=describe_sif, fetch=fetch_sif),
    "docker": BaseSource(describe=describe_docker, fetch=fetch_docker),
    "oras": BaseSource(describe=describe_oras, fetch=fetch_oras),
    "oci": _archive_source(OCI_FOLDER),
    "oci-archive": _archive_source(OCI_FILE),
    "docker-archive": _archive_source(DOCKER_FILE),
    "docker-daemon": _archive_source(DOCKER_ENGINE),
}
"""By the names of BASE_KINDS."""


def describe_base(reference: BaseReference, context: Context) -> BaseFacts:
    """Return the facts of a base, read out of it once per digest."""
    return SOURCES[reference.kind.name].describe(reference, context)


def fetch_base(reference: BaseReference, context: Context) -> Header:
    """Make sure that the locked image is here, and return the header that starts from it.

    ``reference`` has the locked digest, and is none of a bootstrap.
    """
    fetch = SOURCES[reference.kind.name].fetch
    if fetch is None:
        raise ValueError(f"{reference.text} is made from packages, not fetched")
    return fetch(reference, context)
