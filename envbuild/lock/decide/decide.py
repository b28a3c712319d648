"""Decide a lock: base, framework, project and build requirements, from a recipe to exact files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.debian.apt import choose_bootstrap, read_lists, resolve_debian
from envbuild.base.debian.bootstrap import bootstrap_facts
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.model import BaseFacts, DebianPackage, facts_digest
from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base
from envbuild.conda.model import NO_TARGET, CondaOptions, GivenArchive, GpuTarget
from envbuild.context import Context
from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.decide.assemble import assemble_lock
from envbuild.lock.decide.base_description import BaseDescription, brought_alone, framework_packages
from envbuild.lock.decide.compiling import with_compiling
from envbuild.lock.decide.conda import (
    find_linker,
    put_conda,
    refuse_conda,
    refuse_double_cuda,
    require_channels,
    with_conda,
)
from envbuild.lock.decide.framework import (
    other_release,
    refuse_line,
    require_framework,
    resolve_framework,
)
from envbuild.lock.decide.libraries import refuse_removal, require_cuda
from envbuild.lock.decide.project_files import take_files
from envbuild.lock.decide.python import refuse_no_python, require_python
from envbuild.lock.decide.source_trees import take_trees, with_sources
from envbuild.lock.decide.system import choose_system
from envbuild.lock.model import (
    Lock,
    Packer,
    PackerFile,
)
from envbuild.lock.packer import find_packers, packer_here
from envbuild.lock.staleness import refuse_changed_files
from envbuild.names import BY_PLATFORM
from envbuild.progress import SilentStage, Stage
from envbuild.recipe.model import Recipe, Source
from envbuild.resolve.backends import PAGE, RESOLVERS
from envbuild.resolve.dates import default_as_of
from envbuild.resolve.framework import bare_framework, with_framework
from envbuild.resolve.model import Request, Resolution, Resolver
from envbuild.resolve.uv.installer import find_installer
from envbuild.toml import closest


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOptions:
    """How to lock: ``as_of`` over the recipe's, what to refresh; ``old`` is the last lock.

    ``keep`` are names and versions to prefer beside those of ``old``.
    ``bounds`` are constraints that no recipe has: those of the search for a lock that imports.
    ``resolver`` is the backend for the project's requirements; the framework and the installer are
    always uv's to find.  ``target`` are the nodes that conda's packages are chosen for,
    ``given`` conda packages that another tool has locked.
    """

    as_of: str | None = None
    upgrade: tuple[str, ...] = ()
    upgrade_all: bool = False
    upgrade_system: bool = False
    old: Lock | None = None
    keep: tuple[tuple[str, str], ...] = ()
    bounds: tuple[str, ...] = ()
    resolver: str = "uv"
    target: GpuTarget = NO_TARGET
    given: tuple[GivenArchive, ...] = ()

    @property
    def refresh(self) -> bool:
        """Whether the index is to be asked even where its answer is still fresh."""
        return self.upgrade_all or bool(self.upgrade)


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
    recipe = source.recipe
    resolver = _uv_resolver(context, SilentStage())
    # what can be refused without the network comes first
    refuse_removal(recipe)
    refuse_conda(recipe)
    if facts is None and not recipe.conda.dependencies:
        require_python(recipe)
    # what a lock already has is mostly in the store
    if facts is None and options.old is None:
        require_channels(recipe, context)
    if facts is not None:
        base = _given_base(facts, recipe, options, context, today)
    else:
        base = _describe_base(recipe, options, context, today)
    base, conda = with_conda(base, recipe, _conda_options(options), context)
    require_python(recipe, base.facts.python)
    refuse_no_python(recipe, base.facts.python)
    # from here on a tree is a requirement with a name and an exact version
    lines, trees = take_trees(source, base.facts, options.old, options.upgrade, context)
    request = Request(
        requirements=lines,
        archives=tuple((tree.file, str(tree.path)) for tree in trees),
        facts=base.facts,
        indexes=recipe.python.indexes,
        upgrade=options.upgrade,
        refresh=options.refresh,
        bounds=options.bounds,
        from_source=recipe.python.from_source,
    )
    if base.facts.python:
        base, resolution = _resolve_project(
            request, base, recipe, options, context=context, today=today
        )
    else:
        resolution = Resolution(packages=())
    _refuse_unused(source, resolution)
    require_framework(recipe, base.facts, [found.name for found in resolution.packages])
    brought = (*framework_packages(base, resolution), *resolution.packages)
    cuda_notes = require_cuda(recipe, base.under or base.facts, brought)
    installer = find_linker(base, recipe, context)
    if base.facts.python:
        installer = (*find_installer(resolver, base.facts, context), *installer)
    packing = _choose_packer(options, base.facts.machine, context)
    resolution = replace(resolution, notes=(*resolution.notes, *cuda_notes))
    resolution = with_compiling(resolution, recipe, base, brought, context.store)
    refuse_double_cuda(conda, base.facts, resolution.packages)
    lock = with_sources(assemble_lock(source, base, resolution, installer, packing), trees)
    lock = put_conda(lock, recipe, conda)
    if recipe.files:
        lock = structs.replace(lock, files=take_files(source, context))
    refuse_changed_files(options.old, lock)
    return lock


def _resolve_project(
    request: Request,
    base: BaseDescription,
    recipe: Recipe,
    options: LockOptions,
    *,
    context: Context,
    today: date,
) -> tuple[BaseDescription, Resolution]:
    """Return the project's resolution and the base, perhaps with another framework release.

    Raises NoSolutionError about the first one.
    """
    make_resolver = RESOLVERS[options.resolver]
    whole = _whole_request(request, base, recipe, options, today)
    title = "resolve the requirements" + (f" as of {whole.as_of}" if whole.as_of else "")
    with context.report.stage(title, unit=PAGE) as stage:
        try:
            return base, make_resolver(context, stage)(whole)
        except NoSolutionError as refusal:
            first = refusal

    # the framework was chosen by itself: another release of its line may suit the project
    try:
        pin = other_release(whole, base, make_resolver(context, SilentStage()))
    except NoSolutionError as refusal:
        raise refuse_line(first, refusal, whole.framework or "") from None
    if pin is None or base.under is None:
        raise first
    try:
        other = _with_framework(
            replace(base, facts=base.under), recipe, options, context, today, bounds=(pin,)
        )
        title = f"resolve the requirements with {pin}"
        with context.report.stage(title, unit=PAGE) as stage:
            again = _whole_request(request, other, recipe, options, today)
            resolution = make_resolver(context, stage)(again)
    except NoSolutionError:
        raise first from None
    note = (
        f"{pin} is taken, not {base.facts.framework}: the requirements have no solution with that "
        "one"
    )
    return other, replace(resolution, notes=(note, *resolution.notes))


def _whole_request(
    request: Request, base: BaseDescription, recipe: Recipe, options: LockOptions, today: date
) -> Request:
    """Return the project's request with all that depends on the release of the framework."""
    chosen = options.as_of or recipe.python.as_of
    # a date that nobody chose may be moved; one of the recipe or the command line may not
    latest = today.isoformat() if chosen is None else None
    framework = recipe.base.framework if base.framework else None
    return replace(
        request,
        facts=base.bare or base.facts,
        as_of=_as_of(chosen, base.facts, today),
        latest=latest,
        keep=(*brought_alone(base, request.requirements), *_kept_versions(options)),
        protect=base.protect,
        framework=framework,
    )


def _refuse_unused(source: Source, resolution: Resolution) -> None:
    """Raise UsageError for a name in from-source that is none of the packages."""
    known = {found.name for found in resolution.packages}
    for name in source.recipe.python.from_source:
        if canonicalize_name(name) not in known:
            raise UsageError(
                f'[python] from-source names "{name}", which no requirement brings'
                f"{closest(canonicalize_name(name), known)}",
                where=str(source.path),
                hint="write it into dependencies too, or leave it out",
            )


def _uv_resolver(context: Context, stage: Stage) -> Resolver:
    return RESOLVERS["uv"](context, stage)


def _describe_base(
    recipe: Recipe, options: LockOptions, context: Context, today: date
) -> BaseDescription:
    """Read the base's facts; a bootstrap's come from its packages and framework."""
    if recipe.base.image is not None:
        return _described_image(recipe, options, context)

    reference = parse_reference(recipe.base.bootstrap or "")
    with context.report.stage(f"choose the Debian packages ({reference.text})") as stage:
        bootstrap, debian = _debian_packages(
            recipe, reference.name, options, context=context, stage=stage
        )
    facts = bootstrap_facts(bootstrap, context)
    base = BaseDescription(
        facts=facts, digest=bootstrap.digest, epoch=bootstrap.epoch, debian=debian
    )
    return _with_framework(base, recipe, options, context, today)


def _given_base(
    facts: BaseFacts, recipe: Recipe, options: LockOptions, context: Context, today: date
) -> BaseDescription:
    """Take given facts for the whole base; they may hold the recipe's framework."""
    base = _described_facts(facts)
    if recipe.base.image is not None:
        base = replace(base, debian=_system_packages(recipe, facts, options, context))
    if recipe.base.framework is None:
        return base
    # "torch[x]>=2": the name ends where extras or bounds begin
    name = re.split(r"[^\w.-]", recipe.base.framework)[0]
    if facts.dist(name):
        return base
    return _with_framework(base, recipe, options, context, today)


def _with_framework(
    base: BaseDescription,
    recipe: Recipe,
    options: LockOptions,
    context: Context,
    today: date,
    *,
    bounds: tuple[str, ...] = (),
) -> BaseDescription:
    """Return the base with the recipe's framework, if any; ``bounds`` choose its release."""
    if recipe.base.framework is None:
        return base

    named = recipe.base.framework
    request = Request(
        requirements=(named,),
        facts=base.facts,
        indexes=recipe.python.indexes,
        bounds=bounds,
        keep=_kept_versions(options),
        upgrade=options.upgrade,
        refresh=options.refresh,
    )
    chosen = options.as_of or recipe.python.as_of
    with context.report.stage(f"resolve the framework {named}", unit=PAGE) as stage:
        resolver = _uv_resolver(context, stage)
        resolution = resolve_framework(request, recipe, chosen, resolver, today)
    # what the framework merely allows (numpy) is chosen together with the project
    bare, protect = bare_framework(base.facts, resolution)
    whole = with_framework(base.facts, resolution)
    return replace(
        base,
        facts=whole,
        framework=resolution,
        under=base.facts,
        bare=bare,
        protect=protect,
    )


def _described_image(recipe: Recipe, options: LockOptions, context: Context) -> BaseDescription:
    reference = structs.replace(
        parse_reference(recipe.base.image or ""), platform=recipe.base.platform
    )
    base = _described_facts(describe_base(reference, context))
    return replace(base, debian=_system_packages(recipe, base.facts, options, context))


def _system_packages(
    recipe: Recipe, facts: BaseFacts, options: LockOptions, context: Context
) -> tuple[DebianPackage, ...]:
    if not (recipe.system.packages or recipe.system.build_packages):
        return ()

    old = None if options.upgrade_system else options.old
    return choose_system(recipe, facts, old, context)


def _described_facts(facts: BaseFacts) -> BaseDescription:
    """Take facts as the whole base: nothing in it is newer than its day of creation."""
    created = date.fromisoformat(facts.created or "1980-01-01")
    epoch = (created + timedelta(days=1) - date(1970, 1, 1)).days * 86400
    return BaseDescription(facts=facts, digest=facts.digest or facts_digest(facts), epoch=epoch)


def _debian_packages(
    recipe: Recipe, suite: str, options: LockOptions, *, context: Context, stage: Stage
) -> tuple[Bootstrap, tuple[DebianPackage, ...]]:
    """Choose the Debian packages: the old lock's where nothing changed, else today's."""
    # Debian changes every day: what was locked stays until it is asked for anew
    wanted = (*recipe.system.packages, *recipe.system.build_packages)
    old = options.old
    if (
        old is not None
        and not options.upgrade_system
        and old.system == wanted
        and _same_base(recipe, old)
    ):
        packages = old.base_packages
        created = datetime.fromtimestamp(old.base.epoch, timezone.utc).date().isoformat()
        return Bootstrap(suite=suite, created=created, packages=packages), old.debian
    machine = BY_PLATFORM[recipe.base.platform].machine
    lists = read_lists(suite, context, stage, machine=machine)
    bootstrap = choose_bootstrap(lists, context)
    here: tuple[DebianPackage, ...] = bootstrap.packages
    here += resolve_debian(lists, recipe.system.packages, context, group="system", installed=here)
    here += resolve_debian(
        lists, recipe.system.build_packages, context, group="build", installed=here
    )
    return bootstrap, here


def _same_base(recipe: Recipe, old: Lock) -> bool:
    return old.base.reference == recipe.base.bootstrap and old.platform == recipe.base.platform


def _as_of(chosen: str | None, facts: BaseFacts, today: date) -> str | None:
    if chosen is not None:
        return None if chosen == "none" else chosen
    return default_as_of(facts, today)


def _kept_versions(options: LockOptions) -> tuple[tuple[str, str], ...]:
    if options.old is None or options.upgrade_all:
        return options.keep
    return (*((p.name, p.version) for p in options.old.installed), *options.keep)


def _conda_options(options: LockOptions) -> CondaOptions:
    old = () if options.old is None or options.upgrade_all else options.old.conda
    kept = frozenset(package.file for package in old if package.name not in options.upgrade)
    return CondaOptions(target=options.target, as_of=options.as_of, keep=kept, given=options.given)


def _choose_packer(
    options: LockOptions, machine: str, context: Context
) -> tuple[Packer, tuple[PackerFile, ...]]:
    """Return the last lock's packer, so that images keep their bytes; else today's."""
    old = options.old
    if old is not None and not options.upgrade_all and old.packer.library is not None:
        return old.packer, old.packers
    return packer_here(), find_packers(machine, context)
