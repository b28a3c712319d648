"""``envbuild shelf publish``: gather what is known of a recipe and its image, and put it on a shelf."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.app.shelf import open_only_shelf
from envbuild.cli.output import print_json
from envbuild.context import Context
from envbuild.errors import CheckFailedError, IntegrityError, UsageError

if TYPE_CHECKING:
    from envbuild.check.model import Report
    from envbuild.lock.model import Lock
    from envbuild.recipe.model import Source
    from envbuild.shelf.client import ShelfClient, StoredEntry
    from envbuild.shelf.model import Entry, ImageDescriptor


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOptions:
    """How to publish: with the image's bytes, signed with a key, on which shelf, and although its check failed."""

    with_image: bool = False
    key: Path | None = None
    shelf: str | None = None
    failed: bool = False


def publish(
    context: Context, name: str | None, wish: PublishOptions, *, as_json: bool = False
) -> None:
    """Publish a recipe and say what was added."""
    from msgspec.structs import replace

    from envbuild.app.lock import require_fresh_lock
    from envbuild.recipe.find import find_recipe
    from envbuild.shelf.model import digest_of
    from envbuild.shelf.publish import draft_entry, with_earlier_checks
    from envbuild.store.units import human_bytes

    library = open_only_shelf(context, wish.shelf)
    if wish.with_image and library.backend.pieces is None:
        raise UsageError(
            f"the shelf {library.name} takes no images",
            hint="publish without --image: its digest is published anyway",
        )
    if library.require_signed and wish.key is None:
        raise UsageError(
            f"the shelf {library.name} takes signed entries only",
            where="publish",
            hint="--sign KEY",
        )
    source = find_recipe(name, context.settings)
    lock = require_fresh_lock(source)
    library.backend.refresh()
    image, weight, reports = _image(source, lock, context, needed=wish.with_image)
    if not wish.failed:
        _ask_about_failed(reports)
    made = draft_entry(source, lock, who=_who(context), image=weight, reports=reports)
    entry, objects, new = made.entry, dict(made.objects), 0
    head = _vouched(library, entry.name, signed=wish.key is not None)
    if weight is not None and wish.with_image and library.backend.pieces is not None:
        from envbuild.shelf.pieces import store_image

        listed, new = store_image(image, weight, library.backend.pieces, context.report)
        objects[digest_of(listed)] = listed
        weight = replace(weight, pieces=digest_of(listed))
    elif (
        weight is not None
        and head is not None
        and head.image is not None
        and head.image.digest == weight.digest
    ):
        weight = replace(weight, pieces=head.image.pieces)  # the bytes are there already
    entry = with_earlier_checks(replace(entry, image=weight), head)
    new += library.missing_bytes(objects)
    notary, signing = library.signatures, context.settings.cwd / wish.key if wish.key else None
    stored, added = library.append_entry(
        entry, objects, (lambda data: notary.sign(data, signing)) if signing else None
    )
    if as_json:
        print_json(
            {
                "shelf": library.name,
                "name": entry.name,
                "digest": stored.digest,
                "new": added,
                "bytes": new,
            }
        )
        return
    if not added:
        context.report.say(f"{library.name}/{entry.name}@{stored.digest[7:19]} says this already")
        return
    after = f", after {stored.entry.number - 1} earlier" if stored.entry.number > 1 else ""
    click.echo(
        f"{library.name}/{entry.name}@{stored.digest[7:19]}: published{after}, {human_bytes(new)} new"
    )
    if weight is None:
        context.report.say(
            f"no image of this lock is here, so no verdict is published (envbuild make {entry.name})"
        )


def _vouched(library: ShelfClient, name: str, *, signed: bool) -> Entry | None:
    """Return the newest entry of a name whose verdicts may be kept: a signature vouches for none but known keys."""

    def vouched(stored: StoredEntry) -> bool:
        try:
            signer = library.signer(stored)
        except IntegrityError:
            return False
        return not signed or (signer is not None and signer.principal is not None)

    history = library.history(name) if name in library.numbers else ()
    return next((stored.entry for stored in reversed(history) if vouched(stored)), None)


def _image(
    source: Source, lock: Lock, context: Context, *, needed: bool
) -> tuple[Path, ImageDescriptor | None, tuple[Report, ...]]:
    """Return ./NAME.sif with what an entry says of it and its verdicts, where it is the image of this lock."""
    from envbuild.check.report import kept_reports
    from envbuild.lock.digest import lock_digest
    from envbuild.shelf.pieces import describe_image

    path = context.settings.cwd / f"{source.recipe.name}.sif"
    if not path.is_file():
        if needed:
            raise UsageError(
                "is not built yet", where=str(path), hint=f"envbuild make {source.recipe.name}"
            )
        return path, None, ()
    if not _is_of_lock(path, source, lock, context):
        if needed:
            hint = f"envbuild make {source.recipe.name}"
            raise UsageError(
                "is no image of this lock, as far as can be told", where=str(path), hint=hint
            )
        context.report.say(f"{path.name} is no image of this lock: published without it")
        return path, None, ()
    with context.report.stage(f"hash {path.name}"):
        weight = describe_image(path, lock_digest(lock), context.store)
    return path, weight, kept_reports(weight.digest, context.store)


def _ask_about_failed(reports: tuple[Report, ...]) -> None:
    """Ask before a failed check is published; raises CheckFailedError where nobody can answer, or says no."""
    import sys

    failed = [report for report in reports if report.verdict == "failed"]
    if not failed:
        return
    told = "; ".join(
        f"level {one.level}{f' for {one.target}' if one.target else ''}" for one in failed
    )
    if sys.stdin.isatty() and click.confirm(
        f"its check failed ({told}). Publish all the same?", err=True
    ):
        return
    hint = "mend it and check again; --failed publishes it as it is"
    raise CheckFailedError(f"its check failed ({told})", where="publish", hint=hint)


def _is_of_lock(path: Path, source: Source, lock: Lock, context: Context) -> bool:
    """Tell whether an image says, or the store remembers, that it was made from this lock."""
    from envbuild.app.spec import build_spec
    from envbuild.build.image.verify import read_embedded_info
    from envbuild.build.image_cache import up_to_date
    from envbuild.build.modes import MODES
    from envbuild.lock.digest import lock_digest

    carried = read_embedded_info(path)
    if carried.lock is not None:
        return lock_digest(carried.lock) == lock_digest(lock)
    return any(up_to_date(build_spec(source, lock, path, mode), context.store) for mode in MODES)


def _who(context: Context) -> str:
    """Return what this user calls himself: the login name, as far as it is a line of text."""
    import os
    import pwd

    from envbuild.shelf.sanitize import sanitize_text

    env = context.settings.environment
    try:
        return sanitize_text(
            env.get("LOGNAME") or env.get("USER") or pwd.getpwuid(os.getuid()).pw_name
        )[:200]
    except KeyError:
        return f"user {os.getuid()}"
