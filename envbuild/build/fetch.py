"""Fetch what a lock names.

Every file into the store, and the Debian roots that are made from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from msgspec import structs

from envbuild.base.debian.bootstrap import debian_artifacts
from envbuild.base.debian.distribution import DEBIAN, mirror_of, release_of
from envbuild.base.debian.package_set import Bootstrap
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.errors import HostError, IntegrityError
from envbuild.lock.model import Lock, LockedFiles, PythonPackage
from envbuild.net.fetch import Artifact, fetch_artifacts, missing_artifacts
from envbuild.net.partial import is_complete
from envbuild.store.layout import Store


def wanted_files(lock: Lock) -> tuple[Artifact, ...]:
    """Return every file of a lock as something to fetch; source trees are packed, not fetched."""
    python = (
        Artifact(
            file=p.file, size=p.size, sha256=p.sha256, kind="python", project=p.name, index=p.index
        )
        for p in lock.python
        if p.source is None
    )
    conda = (
        Artifact(
            file=p.file,
            size=p.size,
            sha256=p.sha256,
            kind="conda",
            project=p.name,
            index=p.channel,
            path=f"{p.subdir}/{p.file}",
        )
        for p in lock.conda
    )
    return (*debian_artifacts(lock.debian), *python, *conda)


def assembled_files(lock: Lock, store: Store) -> tuple[Artifact, ...]:
    """Return the files that putting an image together needs.

    Tools of the written definition are none of them. A Debian root that is there needs no packages.
    """
    left_out = set() if any(p.is_sdist for p in lock.installed) else {"build"}
    debian = [p for p in lock.debian if p.group not in left_out]
    if lock.is_bootstrap and left_out:
        root = store.base(locked_bootstrap(lock, ("base", "system")).digest)
        debian = [] if root.is_file() else debian
    python = tuple(p for p in lock.python if p.group not in left_out)
    return wanted_files(structs.replace(lock, debian=tuple(debian), python=python))


def fetch_files(lock: Lock, context: Context, wanted: tuple[Artifact, ...] | None = None) -> None:
    """Download what the store lacks of a lock, or of those of its files that are wanted.

    Raises HostError for files of the project that it lacks: only verbs that know the project can
    pack them again.
    """
    own: list[PythonPackage | LockedFiles] = []
    own += [package for package in lock.python if package.source is not None]
    for item in (*own, *lock.files):
        if not is_complete(context.store.artifact(item.sha256), item.size):
            what = f"the store lacks the project's own {item.source}"
            hint = f"run in its project: envbuild make {lock.name}"
            raise HostError(what, where=item.sha256[:12], hint=hint)
    wanted = wanted_files(lock) if wanted is None else wanted
    todo = missing_artifacts(wanted, context.store)
    if not todo:
        context.report.detail(f"all {len(wanted)} files are in the store")
        return
    # finding the mirror starts apt: only where something is missing
    found = _debian_mirror(lock, context) if any(item.kind == "debian" for item in todo) else None
    fetch_artifacts(wanted, context, debian_mirror=found)


def _debian_mirror(lock: Lock, context: Context) -> str:
    bootstrapped = lock.is_bootstrap
    distribution = DEBIAN if bootstrapped else release_of(lock.base.distro)[0]
    return mirror_of(distribution, context)


def locked_bootstrap(lock: Lock, groups: Sequence[str] = ("base",)) -> Bootstrap:
    """Return the bootstrap of these groups of Debian packages, each installed over those before."""
    created = datetime.fromtimestamp(lock.base.epoch, timezone.utc).date().isoformat()
    found: Bootstrap | None = None
    # each group is installed over the root of those before, so that recipes share the base's
    for group in groups:
        own = tuple(structs.replace(p, group="base") for p in lock.debian if p.group == group)
        if own or found is None:
            packages = (*(found.packages if found else ()), *own)
            suite = lock.base.reference.partition(":")[2]
            found = Bootstrap(suite=suite, created=created, packages=packages, over=found)
    assert found is not None  # noqa: S101  (nobody asks for no group)
    return found


def require_base_digest(order: BuildSpec) -> None:
    """Raise IntegrityError where the base's digest is not that of the locked packages."""
    found = locked_bootstrap(order.lock).digest
    if found != order.lock.base.digest:
        raise IntegrityError(
            f"the base's digest is {found}, the lock says {order.lock.base.digest}",
            hint="the lock was changed by hand; run: envbuild lock " + order.recipe.name,
        )
