"""A lock in the form that another tool reads."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.app.query.outdated import conda_request
from envbuild.build.fetch import wanted_files
from envbuild.build.image.metadata import write_sbom
from envbuild.conda.limited import find_locked, find_pixi_lock
from envbuild.conda.model import LockedWheel, PixiQuestion
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.conda_export import (
    conda_lock_text,
    environment_text,
    explicit_text,
    licenses_text,
)
from envbuild.lock.conda_order import install_order
from envbuild.lock.export import pylock_text, requirements_text
from envbuild.lock.model import Lock
from envbuild.names import BY_MACHINE
from envbuild.net.channels import channel_urls
from envbuild.net.fetch import locate_files
from envbuild.net.index import index_url
from envbuild.net.redact import without_token, without_user
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition, plan_dockerfile
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.recipe.model import Recipe
from envbuild.store.units import count_noun


def export_lock(form: str, recipe: Recipe, lock: Lock, context: Context) -> str:
    """Return a lock as another tool reads it.  Raises UsageError for what that cannot name."""
    if form == "sbom":
        return write_sbom(recipe.name, lock).decode() + "\n"
    if form == "def":
        return render_definition(plan_definition(recipe, lock))
    if form == "dockerfile":
        return render_dockerfile(plan_dockerfile(recipe, lock))
    if form in CONDA_FORMATS:
        return _conda_text(form, lock, context)
    trees = [
        f"{package.name} ({package.source})"
        for package in lock.python
        if package.source is not None
    ]
    if trees:
        raise UsageError(
            f"{', '.join(trees)}: a source tree is on no index, so {form} cannot name it",
            where=recipe.name,
        )
    if lock.conda:
        count = count_noun(len(lock.conda), "conda package is", "conda packages are")
        context.report.say(f"{count} not in it: --format conda-explicit")
    if form == "pylock":
        return pylock_text(lock, _locate_wheels(lock, context))
    return _requirements_text(lock, context)


CONDA_FORMATS = ("conda-lock", "conda-explicit", "pixi", "environment", "licenses")


def _conda_text(form: str, lock: Lock, context: Context) -> str:
    if not lock.conda:
        raise UsageError(f"{lock.name} has no conda packages", hint="--format pylock is for wheels")
    if lock.base.conda_prefix is not None and form != "licenses":
        raise UsageError(
            f"the base's own environment ({lock.conda_prefix}) is extended: the lock has what "
            "is new in it, which is no whole environment",
            where=lock.name,
            hint="envbuild export --format sbom or licenses; or a definition: envbuild def",
        )
    if form in ("environment", "licenses"):
        return environment_text(lock) if form == "environment" else licenses_text(lock)
    # addresses are this machine's, and whoever reads the file has a token of his own
    first = {name: channel_urls(context.settings, name)[0] for name in lock.channels}
    channels = {name: without_token(url) for name, url in first.items()}
    if form == "conda-explicit":
        return explicit_text(lock, channels)
    wheels = _locate_wheels(lock, context) if lock.conda_python else {}
    sums = {package.file: package.sha256 for package in install_order(lock.conda)}
    request = conda_request(lock)
    with context.report.stage("ask the channels what each package requires"):
        if form == "conda-lock":
            found = find_locked(request, sums, context)
            return conda_lock_text(lock, found, channels, wheels)
        pixi = PixiQuestion(
            platform=BY_MACHINE[lock.base.machine].conda,
            virtual=lock.conda_virtual,
            channels=tuple(channels.values()),
            wheels=_wheels_on_top(lock, wheels),
        )
        return find_pixi_lock(request, sums, pixi, context)


def _wheels_on_top(lock: Lock, urls: Mapping[str, str]) -> tuple[LockedWheel, ...]:
    if not lock.conda_python:
        return ()
    return tuple(
        LockedWheel(name=p.name, version=p.version, sha256=p.sha256, url=urls[p.sha256])
        for p in lock.installed
    )


def _locate_wheels(lock: Lock, context: Context) -> Mapping[str, str]:
    kept = {package.sha256 for package in lock.installed}
    wanted = [item for item in wanted_files(lock) if item.sha256 in kept]
    if not wanted:
        return {}
    with context.report.stage(f"look up where {count_noun(len(wanted), 'file is', 'files are')}"):
        return locate_files(wanted, context)


def _requirements_text(lock: Lock, context: Context) -> str:
    names = sorted({package.index for package in lock.installed if package.index})
    return requirements_text(
        lock,
        {name: without_user(index_url(context, name)) for name in names},
    )
