"""Check an image by its recipe and lock, and save the report in the store."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.app.dev.layer import merge_lock
from envbuild.app.image import find_image, find_layer
from envbuild.app.source import project_folder
from envbuild.app.verdict import check_script
from envbuild.base.digests import fresh_digest, known_digest
from envbuild.base.facts import cached_facts
from envbuild.build.image.verify import recorded_digest
from envbuild.build.model import BuildSpec, UnnamedImage
from envbuild.check.expected import CheckBasis
from envbuild.check.model import Level, Report
from envbuild.check.perform import CheckHost, ImageFile, check_image
from envbuild.check.reports.report import format_report, require_verdict, save_report
from envbuild.check.target import Target
from envbuild.context import Context
from envbuild.errors import CheckFailedError
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.project.code.imports import needed_modules
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.recipe.model import Source, asking_for
from envbuild.records import frozen_record, replace
from envbuild.store.hashing import digest_of
from envbuild.store.layout import Store

PROJECT_CHECKS = ("sources", "project-imports")
"""Checks that judge the project's own Python: they are reported, and refuse no image."""


@frozen_record
class CheckRequest:
    """How to check: how deep, whether a GPU must be seen, for which kind of node.

    ``with_project`` says that the current folder holds the user's own Python.
    """

    level: Level = "quick"
    require_gpu: bool = False
    node: Target | None = None
    with_project: bool = True


def check_named(target: str | None, request: CheckRequest, context: Context) -> Report:
    """Check ./NAME.sif of a recipe, or an image file on its own, and save the report."""
    found = find_image(target, context)
    image = found.path
    source = _recipe_of(target, context)
    lock = read_lock(source.lock) if source and source.lock.is_file() else None
    title = f"check {image.name}"
    layer = find_layer(found, context)
    if layer is not None and layer.record is not None:
        context = context.with_runtime(layer.on_runtime(context.runtime))
        lock = merge_lock(lock, layer.record) if lock else None
        source = asking_for(source, *layer.record.packages) if source else None
        title = f"{title} with its development layer"
        # of both together: the report is no verdict on the image
        digest = digest_of(f"{layer.record.image} {layer.record.layer}".encode())
        file = ImageFile(path=layer.image_for(image), digest=digest)
    else:
        file = ImageFile(path=image, recorded=recorded_digest(image, context.store))
    return check_and_save(file, source, lock, request, context, title=title)


def _recipe_of(target: str | None, context: Context) -> Source | None:
    """Return the recipe that a name stands for; an image on its own has none."""
    if target is not None and ("/" in target or target.endswith(".sif")):
        return None
    if target is not None and target not in recipe_files(context.settings):
        context.report.say(f'there is no recipe called "{target}": the image is checked on its own')
        return None
    return find_recipe(target, context.settings)


def check_and_save(
    image: ImageFile,
    source: Source | None,
    lock: Lock | None,
    request: CheckRequest,
    context: Context,
    *,
    title: str = "check",
) -> Report:
    """Check an image and save the report."""
    project = project_folder(source, context) if request.with_project else None
    needed = needed_modules(project) if project and _is_only_recipe(source) else {}
    read_digest = known_digest if image.recorded is None else fresh_digest
    image = replace(image, digest_of=lambda path: read_digest(path, context.store))
    basis = CheckBasis(
        recipe=source.recipe if source else None,
        lock=lock,
        script=check_script(source),
        records=_base_records(lock, context.store),
        target=request.node,
        project=project,
        needed=needed,
        level=request.level,
    )
    host = CheckHost(
        runtime=context.runtime,
        require_gpu=request.require_gpu,
        environment=context.settings.environment,
    )
    with context.report.stage(title) as stage:
        report = check_image(image, basis, host, context, stage)
    save_report(report, context.store)
    return report


def _is_only_recipe(source: Source | None) -> bool:
    """Tell whether a recipe is for the whole project: beside others it may be for a part of it."""
    return source is not None and sum(1 for _ in source.path.parent.glob("*.toml")) == 1


def check_new_image(
    image: UnnamedImage, spec: BuildSpec, source: Source, request: CheckRequest, context: Context
) -> Report:
    """Check an image that has no name yet; raises CheckFailedError where it should get none."""
    name = spec.recipe.name
    file = ImageFile(path=image.path, digest=image.digest)
    report = check_and_save(file, source, spec.lock, request, context)
    advice = "change the recipe as the findings above explain"
    if any(one.check == "direct-imports" and one.outcome == "failed" for one in report.findings):
        advice += f"; envbuild lock --prove {name} looks for versions that import"
    advice += "; envbuild make --no-check keeps the image as it is"
    require_passed(report, f"{name}: the image was built, but its check failed", advice)
    for line in describe_project_faults(report):
        context.report.say(line)
    return report


def _base_records(lock: Lock | None, store: Store) -> Mapping[str, str]:
    """Return the sha256 of the RECORD of each distribution that the base holds and the lock leaves as it is."""
    facts = cached_facts(lock.base.digest, store) if lock is not None else None
    if lock is None or facts is None:
        return {}
    replaced = {package.name for package in lock.python}
    return {
        dist.name: dist.record
        for dist in facts.dists
        if dist.record is not None and dist.name not in replaced
    }


def failed_checks(report: Report) -> str:
    """Return the names of the checks that failed."""
    names = [finding.check for finding in report.findings if finding.outcome == "failed"]
    return ", ".join(names)


def require_passed(report: Report, what: str, hint: str) -> None:
    """Raise CheckFailedError, with the whole report, for a check that failed or saw no GPU.

    What is wrong with the project's own Python says nothing against the image.
    """
    failed = [one for one in report.findings if one.outcome == "failed"]
    if any(one.check not in PROJECT_CHECKS for one in failed):
        names = failed_checks(report)
        raise CheckFailedError(f"{what}: {names}", hint=hint, details=format_report(report))
    require_verdict(report)


def describe_project_faults(report: Report) -> list[str]:
    """Say what is wrong with the project's own Python, with what to do."""
    lines = []
    for one in report.findings:
        if one.outcome == "failed" and one.check in PROJECT_CHECKS:
            hint = f"\n  {one.hint}" if one.hint else ""
            lines.append(f"{one.title}: {one.reason}{hint}")
    return lines
