"""Facts of any base: the one place that knows which source reads which kind of reference."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.base.debian.apt import resolve_bootstrap
from envbuild.base.debian.bootstrap import bootstrap_facts
from envbuild.base.model import BaseFacts, BaseReference, Header
from envbuild.base.oci.archive import bring_archive, describe_archive
from envbuild.base.oci.docker import bring_docker, bring_oras, describe_docker, describe_oras
from envbuild.base.sif import bring_sif, describe_sif
from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.settings import Settings
from envbuild.store.layout import Store

Source = Callable[[BaseReference, Settings, Runner, Store, Reporter], BaseFacts]
Bringer = Callable[[BaseReference, Settings, Runner, Store, Reporter], Header]


def describe_debian(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> BaseFacts:
    """Return the facts of a bootstrap as it would be locked now."""
    bootstrap = resolve_bootstrap(reference.name, settings, runner, store, report)
    return bootstrap_facts(bootstrap, settings, runner, store, report)


SOURCES: dict[str, Source] = {
    "debian": describe_debian,
    "sif": describe_sif,
    "docker": describe_docker,
    "oras": describe_oras,
    "oci": describe_archive,
    "oci-archive": describe_archive,
    "docker-archive": describe_archive,
    "docker-daemon": describe_archive,
}
BRINGERS: dict[str, Bringer] = {
    "sif": bring_sif,
    "docker": bring_docker,
    "oras": bring_oras,
    "oci": bring_archive,
    "oci-archive": bring_archive,
    "docker-archive": bring_archive,
    "docker-daemon": bring_archive,
}
"""Where the base is an image: what makes sure that the locked one is here, and tells how a build starts from it."""


def describe(
    reference: BaseReference, settings: Settings, runner: Runner, store: Store, report: Reporter
) -> BaseFacts:
    """Return the facts of a base, read out of it once per digest."""
    return SOURCES[reference.kind](reference, settings, runner, store, report)
