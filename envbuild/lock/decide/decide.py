"""Decide a lock: base, framework, project and build requirements, from a recipe to exact files."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from msgspec import structs

from envbuild.base.model import BaseFacts
from envbuild.conda.model import CondaSolution
from envbuild.context import Context
from envbuild.host import require_tmpdir
from envbuild.lock.decide.assemble import assemble_lock
from envbuild.lock.decide.base import choose_base, given_base
from envbuild.lock.decide.base_description import BaseDescription, framework_packages
from envbuild.lock.decide.compiling import with_compiling
from envbuild.lock.decide.conda import (
    find_linker,
    put_conda,
    refuse_conda,
    refuse_double_cuda,
    require_channels,
    with_conda,
)
from envbuild.lock.decide.framework import require_framework
from envbuild.lock.decide.libraries import refuse_removal, require_cuda
from envbuild.lock.decide.options import LockOptions, LockTask
from envbuild.lock.decide.project import refuse_unused, resolve_project
from envbuild.lock.decide.project_files import take_files
from envbuild.lock.decide.python import refuse_no_python, require_python
from envbuild.lock.decide.source_trees import take_trees, with_sources
from envbuild.lock.model import Lock, Packer, PackerFile
from envbuild.lock.packer import find_packers, packer_here
from envbuild.lock.staleness import refuse_changed_files
from envbuild.names import Texts
from envbuild.progress import SilentStage
from envbuild.recipe.model import Recipe, Source
from envbuild.records import replace
from envbuild.resolve.backends import RESOLVERS
from envbuild.resolve.model import Found, Resolution
from envbuild.resolve.stubs import base_distributions
from envbuild.resolve.uv.answer_checks.undeclared_imports import missing_imports
from envbuild.resolve.uv.installer import find_installer


def decide_lock(
    source: Source,
    options: LockOptions,
    context: Context,
    today: date,
    *,
    facts: BaseFacts | None = None,
) -> Lock:
    """Return the lock of a recipe; with ``facts`` no image is looked at.

    Raises NoSolutionError in the user's words, NetworkError, HostError, UsageError.
    """
    require_tmpdir(context.settings.tmpdir)
    task = LockTask(source, options, context, today)
    _refuse_early(task, facts)
    base, conda = _choose_base(task, facts)
    # from here on a tree is a requirement with a name and an exact version
    lines, trees = take_trees(source, base.facts, options.old, options.upgrade, context)
    base, resolution = resolve_project(task, base, lines, trees)
    resolution = _complete(task, base, resolution)
    refuse_double_cuda(conda, base.facts, resolution.packages)
    installers = _find_installers(task, base)
    packing = _choose_packer(options, base.facts.machine, context)
    lock = assemble_lock(source, base, resolution, installers, packing)
    lock = put_conda(with_sources(lock, trees), source.recipe, conda)
    if source.recipe.files:
        lock = structs.replace(lock, files=take_files(source, context))
    refuse_changed_files(options.old, lock)
    return lock


def _refuse_early(task: LockTask, facts: BaseFacts | None) -> None:
    """Refuse what can be refused before an image is looked at, which takes minutes."""
    recipe = task.recipe
    refuse_removal(recipe)
    refuse_conda(recipe)
    if facts is None and not recipe.conda.dependencies:
        require_python(recipe)
    # what a lock already has is mostly in the store
    if facts is None and task.options.old is None:
        require_channels(recipe, task.context)


def _choose_base(task: LockTask, facts: BaseFacts | None) -> tuple[BaseDescription, CondaSolution]:
    """Return the base with its framework, and conda's packages; it has the Python asked for."""
    recipe = task.recipe
    base = choose_base(task) if facts is None else given_base(facts, task)
    base, conda = with_conda(base, recipe, task.options.for_conda, task.context)
    require_python(recipe, base.facts.python)
    refuse_no_python(recipe, base.facts.python)
    return base, conda


def _complete(task: LockTask, base: BaseDescription, resolution: Resolution) -> Resolution:
    """Refuse a resolution without what the recipe asks for; add what is needed to compile it."""
    recipe = task.recipe
    refuse_unused(task.source, resolution)
    require_framework(recipe, base.facts, [found.name for found in resolution.packages])
    brought = (*framework_packages(base, resolution), *resolution.packages)
    notes = (
        *require_cuda(recipe, base.under or base.facts, brought),
        *_import_notes(recipe, base.facts, brought),
    )
    resolution = replace(resolution, notes=(*resolution.notes, *notes))
    return with_compiling(resolution, recipe, base, brought, task.context.store)


def _import_notes(recipe: Recipe, facts: BaseFacts, brought: Collection[Found]) -> Texts:
    """Return notes about packages that import what nothing brings."""
    return tuple(
        missing_imports(
            {found.name: found.version for found in brought},
            base_distributions(facts),
            {**facts.environment, **recipe.run.environment},
        )
    )


def _find_installers(task: LockTask, base: BaseDescription) -> tuple[Found, ...]:
    """Return the wheels that install packages in a build from the definition."""
    linker = find_linker(base, task.recipe, task.context)
    if not base.facts.python:
        return linker
    resolver = RESOLVERS["uv"](task.context, SilentStage())
    return (*find_installer(resolver, base.facts, task.context), *linker)


def _choose_packer(
    options: LockOptions, machine: str, context: Context
) -> tuple[Packer, tuple[PackerFile, ...]]:
    """Return the last lock's packer, so that images keep their bytes; else today's."""
    old = options.old
    if old is not None and not options.upgrade_all and old.packer.library is not None:
        return old.packer, old.packers
    return packer_here(), find_packers(machine, context)
