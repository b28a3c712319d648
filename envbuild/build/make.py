"""From a lock to a checked image under its final name, by one of the ways to build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from envbuild.build.fetch import bootstrap_of, fetch_files, require_base, root_tar, wanted_files
from envbuild.build.image_cache import ASSEMBLED, key_of, stored_image
from envbuild.build.in_base.exchange import take_file
from envbuild.build.local_base import bytes_to_bring, with_local_base
from envbuild.build.model import BuildRequest, Estimate, Order, Workshop
from envbuild.build.modes.assembled import Check, make_assembled
from envbuild.build.modes.builders import BUILDERS
from envbuild.build.modes.estimate import assembly, by_engine, check_space, estimate, tree
from envbuild.build.modes.perform import new_log, perform, supplied_files
from envbuild.build.output_record import note_delivery
from envbuild.net.fetch import missing
from envbuild.quota import quotas_of
from envbuild.store.atomic import clone, sync_folder, telling
from envbuild.store.sealed import commit_sealed, is_sealed
from envbuild.store.units import human_bytes

MODES = (*ASSEMBLED, *BUILDERS)
SHAPES: dict[str, Callable[[Estimate], Estimate]] = {"sandbox": tree, "docker": by_engine}
"""Ways from the definition that put their bytes elsewhere than a build with fakeroot does."""


def plan_work(order: Order, shop: Workshop) -> Estimate:
    """Estimate what making the image will take, given what the store has; checks the room for it.

    Raises SpaceError where a file system is too small, or a quota.
    """
    wanted = wanted_files(order.lock)
    base = bytes_to_bring(order.lock, shop.store)
    to_download = base + sum(item.size for item in missing(wanted, shop.store))
    left = estimate(order.lock, to_download=to_download)
    shape = assembly if order.mode in ASSEMBLED else SHAPES.get(order.mode)
    if shape is not None:
        left = shape(left)
    check_space(
        (
            (shop.store.root, left.store, "ENVBUILD_STORE"),
            (shop.settings.tmpdir, left.temporary, "TMPDIR"),
            (order.target.parent, left.image, "-o"),
        ),
        lambda folder: quotas_of(folder, shop.runner),
    )
    return left


def make_image(order: Order, shop: Workshop, check: Check) -> bool:
    """Make the image under its final name and return whether it had to be built.

    ``check`` sees it before.  One process builds, others that want the same image wait for it.  Whatever ``check``
    raises leaves no image.
    """
    if order.mode in ASSEMBLED:
        return make_assembled(order, shop, check)
    return _make_from_definition(order, shop, check)


def _make_from_definition(order: Order, shop: Workshop, check: Check) -> bool:
    kept = stored_image(order, shop.store)
    with shop.store.lock(kept.stem, shop.report):
        built = not is_sealed(kept)
        if built:
            _build(order, shop, check, kept)
        else:
            check(kept, None)
    with (
        shop.report.stage(f"write {order.target.name}"),
        shop.store.beside(order.target) as partial,
        telling(order.target),
    ):
        with partial.open("xb") as out:
            clone(kept, out)
        partial.chmod(0o755)
        partial.replace(order.target)
        sync_folder(order.target.parent)
    note_delivery(order.target, shop.store, key_of(order), "")
    return built


def _build(order: Order, shop: Workshop, check: Check, kept: Path) -> None:
    with requested(order, shop) as request:
        with shop.report.stage("install and pack"):
            perform(
                request,
                mode=order.mode,
                runtime=shop.runtime,
                runner=shop.runner,
                report=shop.report,
            )
        with shop.store.work("image") as own:
            image = own / request.target.name
            take_file(request.target.parent, request.target.name, image)
            check(image, None)
            commit_sealed(image, shop.store.own(kept))


@contextmanager
def requested(order: Order, shop: Workshop, target: Path | None = None) -> Iterator[BuildRequest]:
    """Bring all that a build from the definition needs and lend the request; without ``target`` in a working folder."""
    fetch_files(order.lock, shop)
    root = None
    if order.recipe.base.bootstrap is not None:
        require_base(order)
        root = root_tar(bootstrap_of(order.lock), shop)
    definition = order.definition
    if order.mode != "docker":  # an engine pulls its base itself
        definition = with_local_base(
            order.definition,
            order.lock,
            settings=shop.settings,
            runner=shop.runner,
            store=shop.store,
            report=shop.report,
        )
    with (
        shop.store.work("build") as work,
        shop.store.outside(shop.settings.tmpdir) as temporary,
        supplied_files(order.lock, shop.store) as files,
    ):
        yield BuildRequest(
            name=order.recipe.name,
            lock=order.lock,
            plan=order.plan,
            definition=definition,
            files=files,
            root=root,
            target=target or work / f"{order.recipe.name}.sif",
            scratch=scratch_folder(work),
            tmpdir=temporary,
            log=new_log(order.recipe.name, shop.store),
        )


def scratch_folder(work: Path) -> Path:
    """Make the folder that a build sees as /tmp: writable for every user id of its namespace."""
    folder = work / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def told(left: Estimate) -> str:
    """Return the estimate as a sentence."""
    minutes = max(1, round(left.seconds / 60))
    download = (
        f"{human_bytes(left.download)} to download" if left.download else "nothing to download"
    )
    return f"{download}, an image of about {human_bytes(left.image)}, about {minutes} min"
