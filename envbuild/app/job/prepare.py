"""Put a job together: image, recipe's [job], options and site; and say what is odd."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from envbuild.app.enter import parse_bind, parse_variables
from envbuild.app.image import FoundImage, cuda_of_image, find_image, find_layer, warn_of_old_image
from envbuild.app.site import find_job_site
from envbuild.base.digests import known_digest
from envbuild.build.image.origin import embedded_lock_digest
from envbuild.caches import Caches, plan_caches
from envbuild.context import Context
from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.formats.sif_reader import read_sif
from envbuild.formats.squashfs.reader import read_compressor
from envbuild.job.compose import (
    JobDraft,
    check_visible,
    collect,
    compose_job,
    git_commit,
    read_env_file,
)
from envbuild.job.model import Image, Intent, Job
from envbuild.job.request.intent import Flags, check_flags, make_intent
from envbuild.job.request.table import fill_rows, plan_table
from envbuild.job.schedulers import features_of
from envbuild.job.schedulers.protocol import log_pattern
from envbuild.job.sites.fit import why_unfit
from envbuild.job.sites.site import Site
from envbuild.job.submit import check_project, copy_secrets, new_key, write_secrets
from envbuild.job.warnings import lonely_lightning, shared_sqlite
from envbuild.names import Texts
from envbuild.recipe.find import require_own_folder
from envbuild.records import field, frozen_record, replace
from envbuild.runtime import Bind
from envbuild.settings import Settings


@frozen_record
class JobRequest:
    """What the command line says of a job.

    ``image`` is the word for the image (None: the only recipe's), ``argv`` the command (empty: the
    recipe's own), ``flags`` go over the recipe's [job]; ``each`` is a CSV file, ``env_file`` a file of KEY=VALUE lines;
    ``grid``, ``variables`` and ``binds`` are as typed; ``packages`` are laid over the image for
    this job; ``alone`` is one process on one node, whatever the recipe's [job] says.
    """

    image: str | None
    argv: Texts = ()
    site: str | None = None
    flags: Flags = field(default_factory=Flags)
    name: str | None = None
    each: Path | None = None
    grid: Texts = ()
    variables: Texts = ()
    env_file: Path | None = None
    binds: Texts = ()
    packages: Texts = ()
    interactive: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        """Refuse wrong values of the flags, before an image is asked for."""
        check_flags(self.flags)


def plan_job(request: JobRequest, context: Context) -> tuple[Job, Site, FoundImage]:
    """Put the job together; its handed-on variables are left to ``hand_variables``.

    Says where the image is old or the site cannot run its CUDA.
    """
    settings = context.settings
    check_project(settings.cwd)
    named = find_job_site(request.site, context) if request.site else None
    found = find_image(request.image, context)  # what was typed is looked at before what was not
    site = named or find_job_site(None, context)
    warn_of_old_image(found, context)
    for told in _recipe_notes(found, settings):
        context.report.say(f"note: {told}")
    intent = _make_intent(request, site, found, context)
    if unfit := _find_unfit(found, intent, site):
        context.report.say(f"note: {unfit}")
    argv = _command_of_job(request, found)
    name = found.name if request.name is None else request.name
    if request.packages:
        from envbuild.app.dev.make import with_packages  # late: most jobs resolve nothing

        found = with_packages(found, request.packages, context)
    layer = find_layer(found, context)
    if layer is not None:
        found = replace(found, path=layer.image_for(found.path))
    editable = layer.binds_beside(settings.cwd) if layer else ()
    binds = (*editable, *(parse_bind(text, settings.cwd) for text in request.binds))
    table = plan_table(settings.cwd / request.each if request.each else None, request.grid)
    draft = JobDraft(
        name=name,
        argv=argv,
        intent=intent,
        image=image_of_job(found, context),
        table=table,
        rows=fill_rows(table, argv, str(request.each or "--grid")) if table else (),
        binds=binds,
        commit=git_commit(context),
        interactive=request.interactive,
    )
    job = compose_job(draft, site, settings)
    _require_own_log(job, request.flags, settings)
    caches = _plan_caches(job, found, request, context)
    overlay = layer.overlay if layer else None
    shown = _shown_path(overlay, context) if overlay else None
    job = replace(job, caches=caches, layer=shown)
    for told in _job_warnings(job, site, settings, binds):
        context.report.say(f"note: {told}")
    return job, site, found


def _command_of_job(request: JobRequest, found: FoundImage) -> Texts:
    """Return what the job runs: what was asked for, else a shell to sit in, or the recipe's own."""
    if request.argv:
        return request.argv
    if request.interactive:
        return ("bash",)
    return _recipe_command(found, request.image or "NAME")


def _job_warnings(
    job: Job, site: Site, settings: Settings, binds: tuple[Bind, ...]
) -> Iterator[str]:
    """Yield what may go wrong in a job: what it cannot see, and what its ranks may spoil."""
    for warning in check_visible(job, site, settings, binds):
        yield f"{warning} (--bind shows it)"
    shared = None
    if job.intent.array or job.intent.launcher != "single":
        shared = shared_sqlite(job, settings.cwd)
    yield from filter(None, (shared, lonely_lightning(job, site, settings.cwd)))


def _recipe_notes(found: FoundImage, settings: Settings) -> Iterator[str]:
    """Say what a recipe asks of the user for its job, which may be somebody else's recipe."""
    wanted = found.job
    given = [name for name in wanted.environment if name in settings.environment]
    if given:
        yield f"the recipe hands these variables of yours on to the job: {', '.join(given)}"
    outside = [path for path in wanted.stage if not _is_inside(path, settings.cwd)]
    if outside:
        paths = ", ".join(outside)
        yield f"the recipe copies this to the node, from outside of the project: {paths}"


def _require_own_log(job: Job, flags: Flags, settings: Settings) -> None:
    """Raise UsageError for a log that a recipe, or a link of the project, leads out of the project.

    What a job prints is its recipe's word: in a new file of ~/.bashrc.d or beside Python's modules
    it would be code of the user.
    """
    pattern = log_pattern(job)
    _refuse_linked_log(pattern, settings)
    if flags.output is not None or _is_inside(pattern, settings.cwd):
        return
    hint = "--output PATTERN takes the place that you say"
    if job.intent.output is not None:
        what = f"{pattern!r} lies outside of the project: a recipe does not choose that"
        raise UsageError(what, where="[job] output", hint=hint)
    require_own_folder(settings.cwd / pattern, settings, hint)


def _refuse_linked_log(pattern: str, settings: Settings) -> None:
    """Raise IntegrityError where a link stands in the place of a later job's log.

    Numbers of jobs are easy to guess: a copied project may have links for thousands of them.
    """
    if pattern.startswith("/"):
        return  # a place that the user has named
    parts = re.sub(r"\{\w+\}", "[0-9]*", pattern).split("/")
    names = ("/".join(parts[:count]) for count, part in enumerate(parts, 1) if "*" in part)
    found = itertools.chain.from_iterable(map(settings.cwd.glob, names))
    for path in filter(Path.is_symlink, found):
        where = path.relative_to(settings.cwd)
        what = "is a link, and a job would write its log through it"
        raise IntegrityError(what, where=where, hint=f"rm {shlex.quote(str(where))}")


def _is_inside(path: str, folder: Path) -> bool:
    return Path(os.path.realpath(folder / path)).is_relative_to(folder.resolve())


def hand_variables(job: Job, request: JobRequest, context: Context) -> tuple[Job, str]:
    """Write the handed-on variables where only their owner can read them.

    Returns the job, which knows the file, and the key of its files.
    """
    settings = context.settings
    key = new_key(job.name)
    given = request.variables or request.env_file
    if job.secrets is not None and not given and Path(job.secrets).is_file():
        # of a job that is repeated
        return replace(job, secrets=copy_secrets(Path(job.secrets), key)), key
    from_file = read_env_file(settings.cwd / request.env_file) if request.env_file else {}
    named = parse_variables(request.variables, settings.environment)
    values = collect(job.intent.environment, {**from_file, **named}, settings.environment)
    secrets = write_secrets(values, settings, key)
    intent = replace(job.intent, environment=tuple(values))
    return replace(job, secrets=secrets, intent=intent), key


def _recipe_command(found: FoundImage, name: str) -> Texts:
    command = found.run.command
    if not command:
        hint = f"envbuild submit {shlex.quote(name)} -- python train.py"
        raise UsageError("which command?", where=name, hint=hint)
    return command


def _find_unfit(found: FoundImage, intent: Intent, site: Site) -> str | None:
    """Say why a job's image does not start at the site, or computes on no GPU there."""
    runtime = site.runtime_without_zstd
    if runtime is not None and _compressor_of(found.path) == "zstd":
        return f"{runtime} at {site.name} cannot open an image that is packed with zstd"
    cuda = cuda_of_image(found) if intent.gpus else None
    return why_unfit(cuda, site, intent.partition) if cuda else None


def _compressor_of(image: Path) -> str | None:
    """Return what an image's root was packed with, None for a file that is no image."""
    try:
        primary = read_sif(image).primary
        return read_compressor(image, primary.offset) if primary else None
    except (EnvbuildError, OSError):
        return None


def refuse_unfit(found: FoundImage, intent: Intent, site: Site) -> None:
    """Raise UsageError for an image that does not start at the site, or uses no GPU there."""
    unfit = _find_unfit(found, intent, site)
    if unfit is None:
        return
    if "zstd" in unfit:
        hint = f'write sites = ["{site.name}"] under [target] of the recipe, then: envbuild make'
        raise UsageError(unfit, where=found.path.name, hint=hint)
    hint = (
        f"envbuild base suggest --driver {site.host.driver or 'VERSION'} names bases that fit\n"
        "or correct the site file, if the nodes are others by now: "
        f"envbuild site probe --on {site.name}"
    )
    raise UsageError(unfit, where=found.path.name, hint=hint)


def _make_intent(request: JobRequest, site: Site, found: FoundImage, context: Context) -> Intent:
    """Join recipe and flags; an image with CUDA gets a GPU a node where neither says how many."""
    flags = request.flags
    partition = (request.site or "").partition(":")[2]
    if partition and flags.partition is None:
        flags = replace(flags, partition=partition)
    wanted = found.job
    if request.alone:
        wanted = structs.replace(wanted, array=None, launcher="single", tasks=None, nodes=None)
    if request.alone or request.interactive:
        # whoever sits before it starts it again
        wanted = structs.replace(wanted, warn=None, requeue=None)
    intent = make_intent(wanted, flags)
    if flags.gpus is not None or wanted.gpus is not None:
        return intent
    cuda = cuda_of_image(found)
    if cuda is None:
        return intent
    image = found.path.name
    if features_of(site).queues and site.resources.gpu == "none":
        context.report.say(
            f"note: {image} has CUDA {cuda}, and {site.name} has no GPUs: the job gets none"
        )
        return intent
    gpus = intent.nodes or 1
    if intent.tasks and intent.launcher in ("torchrun", "lightning"):
        gpus = intent.tasks  # they start one process per GPU
    count = "one GPU" if gpus == 1 else f"{gpus} GPUs"
    context.report.say(
        f"the job gets {count}, as {image} has CUDA {cuda} (--gpus N, or gpus in [job])"
    )
    return replace(intent, gpus=gpus)


def _plan_caches(job: Job, found: FoundImage, request: JobRequest, context: Context) -> Caches:
    """Return what outlives the job of its HOME; variables that anybody sets are left alone."""
    run = found.run
    named = {text.partition("=")[0] for text in request.variables}
    taken = {*named, *run.environment, *job.intent.environment}
    return plan_caches(found.path, context.settings, wanted=run.caches, taken=taken)


def image_of_job(found: FoundImage, context: Context) -> Image:
    """Return the image as the job sees it: a path below the project stays relative."""
    path = found.path
    if path.is_dir():
        raise UsageError(
            "a job needs an image file, not a sandbox", where=path, hint="envbuild make"
        )
    return Image(
        path=_shown_path(path, context),
        digest=known_digest(path, context.store),
        lock=embedded_lock_digest(path),
    )


def _shown_path(path: Path, context: Context) -> str:
    """Return a path as the job sees it, whose folder is the project's."""
    cwd = context.settings.cwd
    return str(path.relative_to(cwd) if path.is_relative_to(cwd) else path)
