"""The recipe that a verb is asked about: by name or path, or an entry of a shelf by SHELF/NAME."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import Source
from envbuild.store.atomic import refuse_special

if TYPE_CHECKING:
    from envbuild.shelf.fetch import VerifiedEntry


def find_entry(name: str | None, context: Context) -> VerifiedEntry | None:
    """Return the entry that SHELF/NAME stands for; None for a recipe's name or path."""
    if name is None or name.endswith(".toml") or name.count("/") != 1:
        return None
    if (context.settings.cwd / name).exists():
        return None
    from envbuild.app.shelf.entry import open_entry  # late: only for SHELF/NAME

    return open_entry(name, context)


def find_source(name: str | None, entry: VerifiedEntry | None, context: Context) -> Source:
    """Return the recipe of an entry of a shelf; without one, that of a name or path."""
    if entry is None:
        return find_recipe(name, context.settings)
    from envbuild.shelf.fetch import stored_source  # late: only for SHELF/NAME

    return stored_source(entry, context.store)


def require_place(target: Path) -> None:
    """Raise UsageError where no new file can be written under a name."""
    if not target.parent.is_dir():
        raise UsageError("there is no such folder", where=target.parent)
    refuse_special(target)
    # a file that is there may be the very one that is asked for
    if not target.exists() and not os.access(target.parent, os.W_OK):
        hint = "name a file in a folder of yours"
        raise UsageError("you may not write in this folder", where=target.parent, hint=hint)


def project_folder(source: Source | None, context: Context) -> Path | None:
    """Return the folder with the user's own Python, the current one.

    None without a recipe, for one that envbuild ships, and in the home folder.
    """
    settings = context.settings
    if source is None or source.shipped or settings.cwd.resolve() == settings.home.resolve():
        return None
    # a clone of envbuild holds the shipped recipes, and no project of the user's
    own = settings.shipped / "recipes" / source.path.name
    if own.is_file() and own.read_text("utf-8") == source.text:
        return None
    return settings.cwd


def find_named_source(name: str | None, context: Context) -> Source:
    """Return a recipe by its name or path, or a published one by SHELF/NAME."""
    return find_source(name, find_entry(name, context), context)
