"""From a lock to a checked image under its final name, by one of the ways to build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envbuild.base.debian.bootstrap import make_root
from envbuild.build.fetch import (
    assembled_files,
    fetch_files,
    locked_bootstrap,
    require_base_digest,
    wanted_files,
)
from envbuild.build.image_cache import key_of, stored_image
from envbuild.build.in_base.exchange import take_file
from envbuild.build.local_base import base_download_size, with_local_base
from envbuild.build.model import BuildSpec, DefinitionBuild, Estimate, UnnamedImage
from envbuild.build.modes import MODES
from envbuild.build.modes.assembled import assembling
from envbuild.build.modes.estimate import SpaceNeed, check_space, estimate_build
from envbuild.build.modes.perform import run_build, supplied_files
from envbuild.build.output_record import record_output
from envbuild.context import Context
from envbuild.net.fetch import missing_artifacts
from envbuild.quota import quotas_of
from envbuild.store.atomic import clone_file, os_errors_as, publish
from envbuild.store.sealed import commit_sealed, is_sealed
from envbuild.store.units import human_bytes


def plan_work(order: BuildSpec, context: Context) -> Estimate:
    """Estimate what making the image will take, given what the store has; checks the room for it.

    Raises SpaceError where a file system is too small, or a quota.
    """
    is_assembled = MODES[order.mode].is_assembled
    lock = order.lock
    wanted = assembled_files(lock, context.store) if is_assembled else wanted_files(lock)
    base = base_download_size(order.lock, context.store)
    to_download = base + sum(item.size for item in missing_artifacts(wanted, context.store))
    left = estimate_build(order.lock, MODES[order.mode], to_download=to_download)
    check_space(
        (
            SpaceNeed(context.store.root, left.store, "ENVBUILD_STORE"),
            SpaceNeed(context.settings.tmpdir, left.temporary, "TMPDIR"),
            SpaceNeed(order.target.parent, left.image, "-o"),
        ),
        lambda folder: quotas_of(folder, context.runner),
    )
    return left


@contextmanager
def building(order: BuildSpec, context: Context) -> Iterator[UnnamedImage]:
    """Build an image and yield it; it gets its final name at the end of the block.

    One process builds, others that want the same image wait for it. Whatever the block raises
    leaves no image.
    """
    build = assembling if MODES[order.mode].is_assembled else _building_from_definition
    with build(order, context) as image:
        yield image


@contextmanager
def _building_from_definition(order: BuildSpec, context: Context) -> Iterator[UnnamedImage]:
    store = context.store
    kept = stored_image(order, store)
    with store.lock(kept.stem, context.report):
        if is_sealed(kept):
            yield UnnamedImage(path=kept, digest=None, built=False)
        else:
            with _built_from_definition(order, context) as path:
                yield UnnamedImage(path=path, digest=None, built=True)
                commit_sealed(path, store.own(kept))
    with (
        context.report.stage(f"write {order.target.name}", total=kept.stat().st_size) as stage,
        store.beside(order.target) as partial,
        os_errors_as(order.target),
    ):
        with partial.open("xb") as out:
            # a copy or a reflink, never a hard link:
            # signing the image would change the store's file
            clone_file(kept, out, stage.advance)
        publish(partial, order.target)
    record_output(order.target, store, key_of(order), "")


@contextmanager
def _built_from_definition(order: BuildSpec, context: Context) -> Iterator[Path]:
    """Run the builder and yield the image in a folder of the store that is removed afterwards."""
    with prepare_build(order, context) as request:
        with context.report.stage("install and pack") as stage:
            run_build(request, mode=order.mode, context=context, stage=stage)
        with context.store.work("image") as own:
            path = own / request.target.name
            take_file(request.target.parent, request.target.name, path)
            yield path


@contextmanager
def prepare_build(
    order: BuildSpec, context: Context, target: Path | None = None
) -> Iterator[DefinitionBuild]:
    """Fetch all that a build from the definition needs and yield the request.

    Without ``target`` in a working folder.
    """
    fetch_files(order.lock, context)
    root = None
    if order.lock.is_bootstrap:
        require_base_digest(order)
        root = make_root(locked_bootstrap(order.lock), context)
    definition = order.definition
    if not MODES[order.mode].by_engine:  # an engine pulls its base itself
        definition = with_local_base(order.definition, order.lock, context)
    with (
        context.store.work("build") as work,
        context.store.outside(context.settings.tmpdir) as temporary,
        supplied_files(order.lock, context) as files,
    ):
        yield DefinitionBuild(
            name=order.recipe.name,
            lock=order.lock,
            codec=order.codec,
            plan=order.plan,
            definition=definition,
            files=files,
            root=root,
            target=target or work / f"{order.recipe.name}.sif",
            scratch=_scratch_folder(work),
            tmpdir=temporary,
            log=context.store.new_log(order.recipe.name),
        )


def _scratch_folder(work: Path) -> Path:
    """Make the folder that a build sees as /tmp: writable for every user id of its namespace."""
    folder = work / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def describe_estimate(left: Estimate) -> str:
    """Return the estimate as a sentence."""
    minutes = max(1, round(left.seconds / 60))
    download = (
        f"{human_bytes(left.download)} to download" if left.download else "nothing to download"
    )
    return f"{download}, an image of about {human_bytes(left.image)}, about {minutes} min"
