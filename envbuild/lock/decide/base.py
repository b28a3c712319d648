"""Choose the base of a lock: an image, Debian packages or given facts; with its framework."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone

from msgspec import structs

from envbuild.base.debian.apt import (
    AptLists,
    InstalledPackage,
    choose_bootstrap,
    read_lists,
    resolve_debian,
)
from envbuild.base.debian.bootstrap import bootstrap_facts
from envbuild.base.debian.distribution import release_of
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.model import BaseFacts, DebianPackage, facts_digest
from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.lock.decide.framework import resolve_framework
from envbuild.lock.decide.options import LockTask
from envbuild.lock.model import Lock
from envbuild.names import BY_PLATFORM, Texts
from envbuild.progress import Stage
from envbuild.recipe.model import Recipe
from envbuild.records import replace
from envbuild.resolve.backends import PAGE, RESOLVERS
from envbuild.resolve.framework import bare_framework, with_framework
from envbuild.resolve.model import Request


def choose_base(task: LockTask) -> BaseDescription:
    """Return the recipe's base; the facts of a bootstrap come from its packages and framework."""
    if task.recipe.base.image is not None:
        return _described_image(task)

    reference = parse_reference(task.recipe.base.bootstrap or "")
    report = task.context.report
    with report.stage(f"choose the Debian packages ({reference.text})") as stage:
        bootstrap, debian = _choose_bootstrap(task, reference.name, stage)
    facts = bootstrap_facts(bootstrap, task.context)
    base = BaseDescription(
        facts=facts, digest=bootstrap.digest, epoch=bootstrap.epoch, debian=debian
    )
    return add_framework(base, task)


def given_base(facts: BaseFacts, task: LockTask) -> BaseDescription:
    """Take given facts for the whole base; they may hold the recipe's framework."""
    recipe = task.recipe
    base = _described_facts(facts)
    if recipe.base.image is not None:
        base = replace(base, debian=choose_system(facts, task))
    if recipe.base.framework is None:
        return base
    # "torch[x]>=2": the name ends where extras or bounds begin
    name = re.split(r"[^\w.-]", recipe.base.framework)[0]
    if facts.dist(name):
        return base
    return add_framework(base, task)


def add_framework(base: BaseDescription, task: LockTask, *, bounds: Texts = ()) -> BaseDescription:
    """Return the base with the recipe's framework, if any; ``bounds`` choose its release."""
    named = task.recipe.base.framework
    if named is None:
        return base

    request = Request(
        requirements=(named,),
        facts=base.facts,
        indexes=task.recipe.python.indexes,
        bounds=bounds,
        keep=task.options.kept_versions,
        upgrade=task.options.upgrade,
        refresh=task.options.refresh,
        hints=task.options.hints,
    )
    with task.context.report.stage(f"resolve the framework {named}", unit=PAGE) as stage:
        resolver = RESOLVERS["uv"](task.context, stage)
        resolution = resolve_framework(request, task.recipe, task.chosen_date, resolver, task.today)
    # what the framework merely allows (numpy) is chosen together with the project
    bare, protect = bare_framework(base.facts, resolution)
    return replace(
        base,
        facts=with_framework(base.facts, resolution),
        framework=resolution,
        under=base.facts,
        bare=bare,
        protect=protect,
    )


def _described_image(task: LockTask) -> BaseDescription:
    wanted = task.recipe.base
    reference = structs.replace(parse_reference(wanted.image or ""), platform=wanted.platform)
    base = _described_facts(describe_base(reference, task.context))
    return replace(base, debian=choose_system(base.facts, task))


def _described_facts(facts: BaseFacts) -> BaseDescription:
    """Take facts as the whole base: nothing in it is newer than its day of creation."""
    created = date.fromisoformat(facts.created or "1980-01-01")
    epoch = (created + timedelta(days=1) - date(1970, 1, 1)).days * 86400
    return BaseDescription(facts=facts, digest=facts.digest or facts_digest(facts), epoch=epoch)


def choose_system(facts: BaseFacts, task: LockTask) -> tuple[DebianPackage, ...]:
    """Return the packages of [system] over an image: the old lock's, else its release's.

    They come from the release as it was published, which mirrors keep.  Raises UsageError for a
    base that is neither Debian nor Ubuntu and for a name that its release lacks, NoSolutionError
    where the base's packages stand against.
    """
    names = _system_names(task.recipe)
    if not names:
        return ()
    # the same packages over the same image: nothing is to be chosen
    old = _kept_system(task)
    if old is not None and old.system == names and old.base.digest == facts.digest:
        return old.debian

    distribution, suite = release_of(facts.distro or "")
    title = f"choose the {distribution.title} packages ({suite})"
    with task.context.report.stage(title) as stage:
        lists = read_lists(
            suite,
            task.context,
            stage,
            machine=facts.machine,
            distribution=distribution,
            refresh=task.options.upgrade_system,
        )
        return _resolve_system(lists, task, facts.apt)


def _choose_bootstrap(
    task: LockTask, suite: str, stage: Stage
) -> tuple[Bootstrap, tuple[DebianPackage, ...]]:
    """Choose a base of Debian packages: the old lock's where nothing changed, else today's."""
    # Debian changes every day: what was locked stays until it is asked for anew
    wanted, old = task.recipe.base, _kept_system(task)
    if (
        old is not None
        and old.system == _system_names(task.recipe)
        and (old.base.reference, old.platform) == (wanted.bootstrap, wanted.platform)
    ):
        created = datetime.fromtimestamp(old.base.epoch, timezone.utc).date().isoformat()
        locked = Bootstrap(suite=suite, created=created, packages=old.base_packages)
        return locked, old.debian

    machine = BY_PLATFORM[wanted.platform].machine
    again = task.options.upgrade_system
    lists = read_lists(suite, task.context, stage, machine=machine, refresh=again)
    bootstrap = choose_bootstrap(lists, task.context)
    system = _resolve_system(lists, task, bootstrap.packages)
    return bootstrap, (*bootstrap.packages, *system)


def _resolve_system(
    lists: AptLists, task: LockTask, installed: tuple[InstalledPackage, ...]
) -> tuple[DebianPackage, ...]:
    """Return what [system] adds to the installed packages; what builds need may use the rest."""
    system, context = task.recipe.system, task.context
    run = resolve_debian(lists, system.packages, context, group="system", installed=installed)
    here = (*installed, *run)
    build = resolve_debian(lists, system.build_packages, context, group="build", installed=here)
    return (*run, *build)


def _system_names(recipe: Recipe) -> Texts:
    return (*recipe.system.packages, *recipe.system.build_packages)


def _kept_system(task: LockTask) -> Lock | None:
    """Return the old lock, unless its Debian packages are to be chosen anew."""
    return None if task.options.upgrade_system else task.options.old
