"""What verbs do with shelves: find an entry, write its files, fetch its image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.model import UnnamedImage
from envbuild.build.output_record import matching_output, record_output
from envbuild.check.reports.report import kept_reports, save_report
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, IntegrityError, NetworkError, UsageError
from envbuild.lock.digest import lock_digest
from envbuild.recipe.find import require_own_folder
from envbuild.shelf.client import ShelfClient
from envbuild.shelf.config import open_shelf, read_shelves
from envbuild.shelf.fetch import VerifiedEntry, fetch_entry, project_files
from envbuild.shelf.model import ImageDescriptor
from envbuild.shelf.pieces import fetch_image, require_flat
from envbuild.shelf.sanitize import sanitize_text
from envbuild.store.atomic import publish, write_bytes

REFERENCE = re.compile(
    r"(?:(?P<shelf>[A-Za-z0-9][A-Za-z0-9_-]*)/)?(?P<name>[^/@]+)(?:@(?P<digest>[^/@]+))?"
)


def _open_all(context: Context) -> list[ShelfClient]:
    """Open all shelves of this user.  Raises UsageError where there is none."""
    known = read_shelves(context.settings)
    if not known:
        raise UsageError("you have no shelf yet", hint="envbuild shelf add SHELF URL")
    return [open_shelf(name, context) for name in known]


def open_reachable(context: Context) -> list[ShelfClient]:
    """Open all shelves of this user that can be reached, and name the others.

    Raises the first error where none can be reached.
    """
    reachable: list[ShelfClient] = []
    failures: list[tuple[str, EnvbuildError]] = []
    for library in _open_all(context):
        failure = _reading_failure(library)
        if failure is None:
            reachable.append(library)
        else:
            failures.append((library.name, failure))
    if not reachable:
        raise failures[0][1]
    for name, failure in failures:
        context.report.say(f"the shelf {name} is left out: {failure}")
    return reachable


def _reading_failure(library: ShelfClient) -> EnvbuildError | None:
    try:
        _ = library.numbers  # read from the shelf here
    except (HostError, NetworkError) as error:
        return error
    return None


def open_only_shelf(context: Context, shelf: str | None) -> ShelfClient:
    """Open the shelf of that name, or the only one there is.  Raises UsageError for several."""
    if shelf is not None:
        return open_shelf(shelf, context)
    every = _open_all(context)
    if len(every) > 1:
        names = ", ".join(library.name for library in every)
        raise UsageError("you have several shelves", hint=f"name one of: {names}")
    return every[0]


def _split_name(text: str) -> tuple[str | None, str, str | None]:
    """Take SHELF/NAME@DIGEST apart; shelf and digest may be left out."""
    found = REFERENCE.fullmatch(text)
    if found is None:
        raise UsageError(
            "is not a name on a shelf",
            where=text,
            hint="write NAME, SHELF/NAME or SHELF/NAME@DIGEST",
        )
    return found["shelf"], found["name"], found["digest"]


def find_library(context: Context, text: str) -> tuple[ShelfClient, str, str | None]:
    """Return the shelf that holds a name, the name and the digest that was given.

    Raises UsageError where no shelf, or more than one, has the name.
    """
    shelf, name, digest = _split_name(text)
    if shelf is not None:
        return open_shelf(shelf, context), name, digest
    reachable = open_reachable(context)
    having = [
        library
        for library in reachable
        if name in library.numbers or name in library.last_verified.read_heads()
    ]
    if len(having) > 1:
        names = ", ".join(f"{library.name}/{name}" for library in having)
        raise UsageError(f'several shelves have "{name}"', hint=f"name one: {names}")
    if not having and len(reachable) > 1:
        searched = ", ".join(library.name for library in reachable)
        raise UsageError(
            f'there is no "{name}" on any of your shelves ({searched})',
            hint="envbuild shelf search",
        )
    return (having or reachable)[0], name, digest


def open_entry(name: str, context: Context) -> VerifiedEntry | None:
    """Return the entry that SHELF/NAME stands for, verified; None where no shelf has that name."""
    if name.split("/", maxsplit=1)[0] not in read_shelves(context.settings):
        return None
    library, bare, digest = find_library(context, name)
    entry = fetch_entry(library, bare, digest)
    context.report.say(f"{entry.title}: {signed_by(entry)}")
    for line in entry.recipe.system.post:
        context.report.say(f"  runs as root in its build: {sanitize_text(line)}")
    return entry


def signed_by(entry: VerifiedEntry) -> str:
    """Return who vouches for an entry."""
    if entry.signer is None:
        return "not signed"
    who = entry.signer.principal
    if who:
        return f"signed by {sanitize_text(who)}"
    return f"signed by {entry.signer.key}, which no pinned file names"


def _holds(path: Path, data: bytes) -> bool:
    """Tell whether a plain file holds just this; nobody waits for a pipe in its place."""
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def write_entry(context: Context, name: str, *, with_image: bool, force: bool) -> list[str]:
    """Write an entry's files into the project folder and return their paths, relative to it."""
    library, bare, digest = find_library(context, name)
    entry = fetch_entry(library, bare, digest)
    cwd = context.settings.cwd
    files = project_files(entry)
    for path in files:
        require_own_folder(cwd / path, context.settings)
    there = {path: data for path, data in files.items() if (cwd / path).exists()}
    changed = [path for path, data in there.items() if not _holds(cwd / path, data)]
    if changed and not force:
        verb = "are" if len(changed) > 1 else "is"
        raise UsageError(
            f"{', '.join(changed)} {verb} here already and different",
            hint="move them away, or replace them with --force",
        )
    context.report.say(f"{entry.title}: {signed_by(entry)}")
    for path, data in files.items():
        write_bytes(cwd / path, data)
    _adopt_verdicts(entry, context)
    if not with_image:
        return [*files]
    target = cwd / f"{bare}.sif"
    with context.store.beside(target) as partial:
        fetch_entry_image(entry, library, partial, context)
        publish(partial, target)
    return [*files, target.name]


def fetch_entry_image(
    entry: VerifiedEntry, library: ShelfClient, target: Path, context: Context
) -> None:
    """Fetch an entry's image, verified, into a file without a final name.

    Raises UsageError where the shelf has none.
    """
    described, pieces = entry.stored.entry.image, library.backend.pieces
    if described is None or described.pieces is None or pieces is None:
        hint = f"envbuild make {entry.shelf}/{entry.recipe.name} builds it from its lock"
        raise UsageError("no image of it is on the shelf", where=entry.title, hint=hint)
    listed = library.read_object(described.pieces, "list of pieces")
    fetch_image(described, listed, pieces, target, context.report)
    require_flat(target)
    embedded = read_embedded_info(target)
    if embedded.lock is not None and lock_digest(embedded.lock) != entry.stored.entry.locked:
        raise IntegrityError("its image was made from another lock", where=entry.title)


def _adopt_verdicts(entry: VerifiedEntry, context: Context) -> None:
    """Keep the published verdicts as if they had been made here.

    Only where a pinned key signed them, and there are none.
    """
    if entry.signer is None or entry.signer.principal is None or not entry.reports:
        return
    if not kept_reports(entry.reports[-1].digest, context.store):
        for report in entry.reports:
            save_report(report, context.store)


def published_before(entry: VerifiedEntry, target: Path, context: Context) -> UnnamedImage | None:
    """Return the file as an image where it is the published one already, else None."""
    described = entry.stored.entry.image
    _adopt_verdicts(entry, context)
    if described is None or not matching_output(target, context.store, _output_key(described)):
        return None
    return UnnamedImage(path=target, digest=described.digest, built=False)


@contextmanager
def fetching_image(entry: VerifiedEntry, target: Path, context: Context) -> Iterator[UnnamedImage]:
    """Fetch an entry's image and yield it; it gets its final name at the end of the block."""
    described = entry.stored.entry.image
    assert described is not None  # noqa: S101  (the caller asks first)
    library = open_shelf(entry.shelf, context)
    with context.store.beside(target) as partial:
        fetch_entry_image(entry, library, partial, context)
        yield UnnamedImage(path=partial, digest=described.digest, built=False)
        publish(partial, target)
    record_output(target, context.store, _output_key(described), described.digest)


def _output_key(described: ImageDescriptor) -> str:
    return f"shelf {described.sha256}"
