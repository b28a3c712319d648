"""What verbs do with shelves: find the one that is meant, get, and make from what was published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.context import Context
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.build.model import BuildSpec
    from envbuild.build.modes.assembled import Check
    from envbuild.recipe.model import Source
    from envbuild.shelf.client import ShelfClient
    from envbuild.shelf.fetch import VerifiedEntry

REFERENCE = re.compile(
    r"(?:(?P<shelf>[A-Za-z0-9][A-Za-z0-9_-]*)/)?(?P<name>[^/@]+)(?:@(?P<digest>[^/@]+))?"
)


def libraries(context: Context) -> list[ShelfClient]:
    """Open all shelves of this user.  Raises UsageError where there is none."""
    from envbuild.shelf.config import open_shelf, read_shelves

    known = read_shelves(context.settings)
    if not known:
        raise UsageError("you have no shelf yet", hint="envbuild shelf add NAME URL")
    return [open_shelf(name, context.settings, context.runner) for name in known]


def reachable(context: Context) -> list[ShelfClient]:
    """Open all shelves of this user that can be reached, and tell of the others.  Raises when none can be."""
    from envbuild.errors import HostError, NetworkError

    def why_not(library: ShelfClient) -> HostError | NetworkError | None:
        try:
            _ = library.numbers
        except (HostError, NetworkError) as error:
            return error
        return None

    every = [(library, why_not(library)) for library in libraries(context)]
    failed = [(library, error) for library, error in every if error is not None]
    if len(failed) == len(every):
        raise failed[0][1]
    for library, error in failed:
        context.report.say(f"the shelf {library.name} is left out: {error}")
    return [library for library, error in every if error is None]


def one_library(context: Context, shelf: str | None) -> ShelfClient:
    """Open the shelf of that name, or the only one there is.  Raises UsageError where there are several."""
    from envbuild.shelf.config import open_shelf

    if shelf is not None:
        return open_shelf(shelf, context.settings, context.runner)
    every = libraries(context)
    if len(every) > 1:
        raise UsageError(
            "you have several shelves", hint=f"name one of: {', '.join(one.name for one in every)}"
        )
    return every[0]


def split_name(text: str) -> tuple[str | None, str, str | None]:
    """Take SHELF/NAME@DIGEST apart; shelf and digest may be left out."""
    found = REFERENCE.fullmatch(text)
    if found is None:
        raise UsageError(
            "is no name on a shelf", where=text, hint="write NAME, SHELF/NAME or SHELF/NAME@DIGEST"
        )
    return found["shelf"], found["name"], found["digest"]


def find_library(context: Context, text: str) -> tuple[ShelfClient, str, str | None]:
    """Return the shelf that holds a name, the name and the digest that was given.

    Raises UsageError where no shelf, or more than one, has the name.
    """
    from envbuild.shelf.config import open_shelf

    shelf, name, digest = split_name(text)
    if shelf is not None:
        return open_shelf(shelf, context.settings, context.runner), name, digest
    every = reachable(context)
    having = [
        library
        for library in every
        if name in library.numbers or name in library.last_verified.read_heads()
    ]
    if len(having) > 1:
        names = ", ".join(f"{library.name}/{name}" for library in having)
        raise UsageError(f'several shelves have "{name}"', hint=f"name one: {names}")
    if not having and len(every) > 1:
        searched = ", ".join(library.name for library in every)
        raise UsageError(
            f'there is no "{name}" on any of your shelves ({searched})',
            hint="envbuild shelf search",
        )
    return (having or every)[0], name, digest


def on_shelf(name: str | None, context: Context) -> VerifiedEntry | None:
    """Return the entry that SHELF/NAME stands for; None for a recipe's name or path."""
    if (
        name is None
        or name.endswith(".toml")
        or name.count("/") != 1
        or (context.settings.cwd / name).exists()
    ):
        return None
    from envbuild.shelf.config import read_shelves
    from envbuild.shelf.fetch import fetch_entry
    from envbuild.shelf.sanitize import sanitize_text

    if name.split("/")[0] not in read_shelves(context.settings):
        return None
    library, bare, digest = find_library(context, name)
    taken = fetch_entry(library, bare, digest)
    context.report.say(f"{taken.title}: {signed_by(taken)}")
    for line in taken.recipe.system.post:
        context.report.say(f"  runs as root in its build: {sanitize_text(line)}")
    return taken


def source_named(name: str | None, context: Context) -> Source:
    """Return a recipe by its name or path, or a published one by SHELF/NAME."""
    return source_in(on_shelf(name, context), name, context)


def source_in(taken: VerifiedEntry | None, name: str | None, context: Context) -> Source:
    """Return the recipe of an entry of a shelf; without one, that of a name or path."""
    if taken is None:
        from envbuild.recipe.find import find_recipe

        return find_recipe(name, context.settings)
    from envbuild.shelf.fetch import stored_source

    return stored_source(taken, context.store)


def signed_by(taken: VerifiedEntry) -> str:
    """Return who vouches for an entry."""
    from envbuild.shelf.sanitize import sanitize_text

    if taken.signer is None:
        return "not signed"
    who = taken.signer.principal
    return (
        f"signed by {sanitize_text(who)}"
        if who
        else f"signed by {taken.signer.key}, which no pinned file names"
    )


def get(context: Context, name: str, *, with_image: bool, force: bool) -> list[str]:
    """Write an entry's files into the project folder and return their paths, relative to it."""
    from envbuild.shelf.fetch import fetch_entry, project_files
    from envbuild.store.atomic import write_bytes

    library, bare, digest = find_library(context, name)
    taken = fetch_entry(library, bare, digest)
    cwd = context.settings.cwd
    files = project_files(taken)
    other = [
        path
        for path, data in files.items()
        if (cwd / path).exists() and (cwd / path).read_bytes() != data
    ]
    if other and not force:
        raise UsageError(
            f"{', '.join(other)} {'are' if len(other) > 1 else 'is'} here already and different",
            hint="move them away, or replace them with --force",
        )
    context.report.say(f"{taken.title}: {signed_by(taken)}")
    for path, data in files.items():
        write_bytes(cwd / path, data)
    adopt(taken, context)
    if with_image:
        target = cwd / f"{bare}.sif"
        with context.store.beside(target) as partial:
            bring(taken, library, partial, context)
            put_in_place(partial, target)
    return [*files, f"{bare}.sif"] if with_image else [*files]


def bring(taken: VerifiedEntry, library: ShelfClient, target: Path, context: Context) -> None:
    """Bring an entry's image into a file without a final name, verified.  Raises UsageError where there is none."""
    from envbuild.build.image.verify import read_embedded_info
    from envbuild.errors import IntegrityError
    from envbuild.lock.digest import lock_digest
    from envbuild.shelf.pieces import fetch_image, require_flat

    weight, pieces = taken.stored.entry.image, library.backend.pieces
    if weight is None or weight.pieces is None or pieces is None:
        hint = f"envbuild make {taken.shelf}/{taken.recipe.name} builds it from its lock"
        raise UsageError("no image of it is on the shelf", where=taken.title, hint=hint)
    fetch_image(
        weight, library.read_object(weight.pieces, "list of pieces"), pieces, target, context.report
    )
    require_flat(target)
    carried = read_embedded_info(target)
    if carried.lock is not None and lock_digest(carried.lock) != taken.stored.entry.locked:
        raise IntegrityError("its image was made from another lock", where=taken.title)


def put_in_place(partial: Path, target: Path) -> None:
    """Give a finished image its name."""
    from envbuild.store.atomic import os_errors_as, sync_folder

    with os_errors_as(target):
        partial.chmod(0o755)
        partial.replace(target)
        sync_folder(target.parent)


def has_image(taken: VerifiedEntry) -> bool:
    """Tell whether the shelf keeps the bytes of an entry's image."""
    image = taken.stored.entry.image
    return image is not None and image.pieces is not None


def adopt(taken: VerifiedEntry, context: Context) -> None:
    """Keep the published verdicts as if they had been made here: where a pinned key signed them, and there are none."""
    from envbuild.check.report import kept_reports, save

    if taken.signer is None or taken.signer.principal is None or not taken.reports:
        return
    if not kept_reports(taken.reports[-1].digest, context.store):
        for report in taken.reports:
            save(report, context.store)


def make_from_shelf(taken: VerifiedEntry, order: BuildSpec, context: Context, check: Check) -> bool:
    """Put the published image under its name and return True; False where it lies there.  ``check`` sees it before.

    A verdict that a pinned signer published counts like one of this machine's own; anybody else's is made again.
    """
    from envbuild.build.output_record import matching_output, record_output
    from envbuild.shelf.config import open_shelf

    weight = taken.stored.entry.image
    assert weight is not None  # noqa: S101  (has_image)
    adopt(taken, context)
    key = f"shelf {weight.sha256}"
    if matching_output(order.target, context.store, key) is not None:
        check(order.target, weight.digest)
        context.report.say(f"{order.target.name} is up to date")
        return False
    library = open_shelf(taken.shelf, context.settings, context.runner)
    with context.store.beside(order.target) as partial:
        bring(taken, library, partial, context)
        check(partial, weight.digest)
        put_in_place(partial, order.target)
    record_output(order.target, context.store, key, weight.digest)
    return True


def compare_built(taken: VerifiedEntry, order: BuildSpec, context: Context) -> None:
    """Say whether the image that was built here is the one that was published."""
    from envbuild.base.digests import known_digest

    weight = taken.stored.entry.image
    if weight is None:
        return
    same = known_digest(order.target, context.store) == weight.digest
    what = (
        "the same bytes as published"
        if same
        else "the same lock, but other bytes than were published"
    )
    context.report.say(f"{order.target.name}: {what} ({weight.digest[7:19]})")
