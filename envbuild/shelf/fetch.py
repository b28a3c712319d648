"""Fetch an entry from a shelf, and verify everything that it names before its use."""

from __future__ import annotations

import msgspec
from msgspec import structs

from envbuild.check.model import Report
from envbuild.errors import IntegrityError
from envbuild.limits import UNREADABLE
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import parse_lock
from envbuild.names import BY_PLATFORM
from envbuild.recipe.find import LOCKS, RECIPES
from envbuild.recipe.model import Recipe, Source
from envbuild.recipe.read import read_recipe
from envbuild.records import frozen_record
from envbuild.shelf.client import ShelfClient, StoredEntry
from envbuild.shelf.model import CheckSummary
from envbuild.shelf.policy import SCRIPT, refuse_lock, refuse_recipe
from envbuild.shelf.publish import summarize_entry, summarize_report
from envbuild.shelf.signatures import Signer
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import short_digest
from envbuild.store.layout import Store
from envbuild.toml import convert, parse_toml


@frozen_record
class VerifiedEntry:
    """A verified entry: its texts, what they mean, and who signed it (None: nobody)."""

    shelf: str
    stored: StoredEntry
    signer: Signer | None
    recipe: Recipe
    lock: Lock
    recipe_text: str
    lock_text: str
    definition: str
    script: bytes | None
    reports: tuple[Report, ...]

    @property
    def title(self) -> str:
        """The entry as people name it: SHELF/NAME@DIGEST."""
        return f"{self.shelf}/{self.stored.entry.name}@{short_digest(self.stored.digest)}"


def fetch_entry(library: ShelfClient, name: str, digest: str | None = None) -> VerifiedEntry:
    """Return a verified entry, the newest or the one whose digest begins so; remember it.

    Raises UsageError for one that is not there or that breaks the rules, IntegrityError for one
    that was changed, was put in another's place, is not signed as the shelf requires, or
    contradicts itself.
    """
    stored = library.find_entry(name, digest)
    signer = library.signer(stored)
    entry = stored.entry
    title = f"{library.name}/{name}@{short_digest(stored.digest)}"
    recipe_text = _decode_text(library.read_object(entry.recipe, "recipe"), title)
    lock_text = _decode_text(library.read_object(entry.lock, "lock"), title)
    refuse_recipe(recipe_text, f"{title}, its recipe")
    recipe = convert(
        parse_toml(recipe_text, title), Recipe, text=recipe_text, where=f"{title}, its recipe"
    )
    if recipe.name != name:
        raise IntegrityError(f"holds the recipe of {recipe.name!r}", where=title)
    if (recipe.check.script is None) != (entry.script is None):
        raise IntegrityError(
            "its check script is missing, or does not belong to its recipe", where=title
        )
    lock = parse_lock(lock_text, f"{title}, its lock")
    refuse_lock(recipe, lock, f"{title}, its lock")
    # what is worked out of a lock may be worked out otherwise by another envbuild
    copied = summarize_entry(recipe, lock)
    copied = structs.replace(copied, cuda=entry.about.cuda, packages=entry.about.packages)
    if lock_digest(lock) != entry.locked or copied != entry.about:
        raise IntegrityError("its card does not match its recipe and lock", where=title)
    reports = tuple(
        _read_report(library, one, entry.image.digest if entry.image else "", title)
        for one in entry.verdicts
    )
    taken = VerifiedEntry(
        shelf=library.name,
        stored=stored,
        signer=signer,
        recipe=recipe,
        lock=lock,
        recipe_text=recipe_text,
        lock_text=lock_text,
        definition=_decode_text(library.read_object(entry.definition, "definition"), title),
        script=library.read_object(entry.script, "check script") if entry.script else None,
        reports=reports,
    )
    library.remember_entry(stored)
    return taken


def project_files(taken: VerifiedEntry) -> dict[str, bytes]:
    """Return what an entry gives a project folder, by path: recipe, lock and check script."""
    name = taken.recipe.name
    suffix = BY_PLATFORM[taken.recipe.base.platform].lock_suffix
    files = {
        f"{RECIPES}/{name}.toml": taken.recipe_text.encode(),
        f"{LOCKS}/{name}{suffix}": taken.lock_text.encode(),
    }
    if taken.script is not None and taken.recipe.check.script is not None:
        assert SCRIPT.fullmatch(taken.recipe.check.script)  # noqa: S101  (refuse_recipe)
        files[f"{RECIPES}/{taken.recipe.check.script}"] = taken.script
    return files


def stored_source(taken: VerifiedEntry, store: Store) -> Source:
    """Write an entry's files into the store, and return them as a recipe to make."""
    folder = store.folder("shelf") / taken.stored.digest.removeprefix("sha256:")
    for path, data in project_files(taken).items():
        target = folder / path
        if not target.is_file() or target.is_symlink() or target.read_bytes() != data:
            write_bytes(target, data)
    recipe, lock = (folder / path for path in list(project_files(taken))[:2])
    read, text = read_recipe(recipe)
    return Source(recipe=read, path=recipe, text=text, lock=lock, shipped=True)


def _read_report(library: ShelfClient, one: CheckSummary, image: str, title: str) -> Report:
    data = library.read_object(one.report, "check report")
    try:
        report = msgspec.json.decode(data, type=Report)
    except UNREADABLE as error:
        what = f"a check report of it cannot be read: {error}"
        raise IntegrityError(what, where=title) from error
    if report.digest != image or summarize_report(one.report, report) != one:
        raise IntegrityError(
            "a verdict of it is about another image, or does not match its report",
            where=title,
        )
    return report


def _decode_text(data: bytes, title: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise IntegrityError("holds a file that is no text", where=title) from error
