"""Publish a recipe on a shelf: gather what is known of it and its image, then write the entry."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from msgspec.structs import replace

from envbuild.app.ready_lock import require_fresh_lock
from envbuild.app.shelf.entry import open_only_shelf
from envbuild.app.spec import build_spec
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.image_cache import up_to_date
from envbuild.build.modes import MODES
from envbuild.check.model import Report
from envbuild.check.reports.report import kept_reports
from envbuild.context import Context
from envbuild.errors import CheckFailedError, IntegrityError, UsageError
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import Source
from envbuild.records import frozen_record
from envbuild.shelf.client import ShelfClient, StoredEntry
from envbuild.shelf.model import Entry, ImageDescriptor
from envbuild.shelf.pieces import describe_image, store_image
from envbuild.shelf.publish import draft_entry, with_earlier_checks
from envbuild.shelf.sanitize import sanitize_text
from envbuild.store.hashing import digest_of


@frozen_record
class Publication:
    """What is to be published: the recipe, its lock, and ./NAME.sif with its verdicts where it is that lock's image.

    ``with_image`` says that the image's bytes go to the shelf too; ``key`` is the ssh key that
    signs.
    """

    library: ShelfClient
    source: Source
    lock: Lock
    path: Path
    image: ImageDescriptor | None
    reports: tuple[Report, ...]
    with_image: bool
    key: Path | None

    @property
    def failed(self) -> str:
        """The levels of checks that failed, for people; empty where none did."""
        levels = []
        for report in self.reports:
            if report.verdict == "failed":
                target = f" for {report.target}" if report.target else ""
                levels.append(f"level {report.level}{target}")
        return "; ".join(levels)


@frozen_record
class Published:
    """What was published: ``added`` is False where the shelf said all of it already.

    ``size`` are the new bytes.
    """

    library: ShelfClient
    stored: StoredEntry
    added: bool
    size: int
    has_image: bool


def gather_publication(
    name: str | None, context: Context, *, shelf: str | None, with_image: bool, key: Path | None
) -> Publication:
    """Read what is known of a recipe and its image.  Raises UsageError for what the shelf does not take."""
    library = open_only_shelf(context, shelf)
    if with_image and library.backend.pieces is None:
        raise UsageError(
            f"the shelf {library.name} takes no images",
            hint="publish without --image: its digest is published anyway",
        )
    if library.require_signed and key is None:
        raise UsageError(
            f"the shelf {library.name} takes signed entries only",
            where="publish",
            hint="--sign KEY",
        )
    source = find_recipe(name, context.settings)
    lock = require_fresh_lock(source)
    library.backend.refresh()
    path = context.settings.cwd / f"{source.recipe.name}.sif"
    image = None
    if _has_image(path, source, lock, context, needed=with_image):
        # for the image's own digest, and for the file's sha256
        total = 2 * path.stat().st_size
        with context.report.stage(f"hash {path.name}", total=total) as stage:
            image = describe_image(path, lock_digest(lock), context.store, stage.advance)
    return Publication(
        library=library,
        source=source,
        lock=lock,
        path=path,
        image=image,
        reports=kept_reports(image.digest, context.store) if image else (),
        with_image=with_image,
        key=context.settings.cwd / key if key else None,
    )


def _has_image(path: Path, source: Source, lock: Lock, context: Context, *, needed: bool) -> bool:
    """Whether ./NAME.sif is the image of this lock.

    Raises UsageError where it is needed and is not.
    """
    hint = f"envbuild make {source.recipe.name}"
    if not path.is_file():
        if needed:
            raise UsageError("is not built yet", where=path, hint=hint)
        return False
    if _is_of_lock(path, source, lock, context):
        return True
    if needed:
        what = "is no image of this lock, as far as can be told"
        raise UsageError(what, where=path, hint=hint)
    context.report.say(f"{path.name} is no image of this lock: published without it")
    return False


def _is_of_lock(path: Path, source: Source, lock: Lock, context: Context) -> bool:
    """Whether an image says, or the store remembers, that it was made from this lock."""
    embedded = read_embedded_info(path)
    if embedded.lock is not None:
        return lock_digest(embedded.lock) == lock_digest(lock)
    specs = [build_spec(source, lock, path, mode, context) for mode in MODES]
    return any(up_to_date(spec, context.store) for spec in specs)


def refuse_failed(publication: Publication) -> None:
    """Raise CheckFailedError for an image whose check failed."""
    if publication.failed:
        hint = "mend it and check again; --failed publishes it as it is"
        what = f"its check failed ({publication.failed})"
        raise CheckFailedError(what, where="publish", hint=hint)


def publish(publication: Publication, context: Context) -> Published:
    """Write the entry, and the image's bytes where they are asked for."""
    library, image, key = publication.library, publication.image, publication.key
    made = draft_entry(
        publication.source,
        publication.lock,
        who=_user_name(context),
        image=image,
        reports=publication.reports,
    )
    objects, size = dict(made.objects), 0
    head = _newest_vouched(library, made.entry.name, signed=key is not None)
    if image is not None and publication.with_image and library.backend.pieces is not None:
        listed, size = store_image(publication.path, image, library.backend.pieces, context.report)
        objects[digest_of(listed)] = listed
        image = replace(image, pieces=digest_of(listed))
    elif image is not None and head and head.image and head.image.digest == image.digest:
        image = replace(image, pieces=head.image.pieces)  # the bytes are there already
    entry = with_earlier_checks(replace(made.entry, image=image), head)
    size += library.missing_bytes(objects)
    sign = None if key is None else lambda data: library.signatures.sign(data, key)
    stored, added = library.append_entry(entry, objects, sign)
    return Published(
        library=library, stored=stored, added=added, size=size, has_image=image is not None
    )


def _newest_vouched(library: ShelfClient, name: str, *, signed: bool) -> Entry | None:
    """Return the newest entry of a name whose verdicts may be kept.

    A signature vouches for none but entries of known keys.
    """
    if name not in library.numbers:
        return None
    for stored in reversed(library.history(name)):
        if _is_vouched(library, stored, signed=signed):
            return stored.entry
    return None


def _is_vouched(library: ShelfClient, stored: StoredEntry, *, signed: bool) -> bool:
    try:
        signer = library.signer(stored)
    except IntegrityError:
        return False
    return not signed or (signer is not None and signer.principal is not None)


def _user_name(context: Context) -> str:
    """Return the login name of this user, as far as it is a line of text."""
    env = context.settings.environment
    try:
        name = env.get("LOGNAME") or env.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
    return sanitize_text(name)[:200]
