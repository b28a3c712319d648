"""The image that a verb is asked about, its recipe and lock, and whether it is that lock's image of today."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from envbuild.app.dev.layer import MountedLayer, image_elsewhere, mount_layer, record_path
from envbuild.build.image.origin import embedded_lock_digest
from envbuild.context import Context
from envbuild.errors import EnvbuildError, StaleLockError, UsageError
from envbuild.limits import readable
from envbuild.lock.cuda import cuda_of
from envbuild.lock.digest import lock_digest, same_image
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.recipe.model import JobSection, RunSection, Source
from envbuild.recipe.trees import PASSED_OVER, project_folder, read_source
from envbuild.records import frozen_record

SIF_MAGIC = (32, b"SIF_MAGIC")
"""Offset and bytes that every SIF has (SIF specification: behind the 32 bytes of its launch
line)."""


@frozen_record
class OldImage:
    """Why an image is not the one that its recipe asks for today, and the command that makes that."""

    reason: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class FoundImage:
    """An image file, or the folder of a sandbox, and its recipe: None for an image on its own.

    ``layer`` is where the record of its development layer is, if it has one; None for an image that
    was named by its path, which is taken as it is.  ``mounted`` is a layer that a run takes instead
    of that one.
    """

    path: Path
    source: Source | None
    layer: Path | None = None
    mounted: MountedLayer | None = None

    @property
    def name(self) -> str:
        """The name for what is made of the image: the recipe's, or that of the file."""
        return self.source.recipe.name if self.source else name_of_file(self.path)

    @property
    def run(self) -> RunSection:
        """The recipe's [run]; empty for an image on its own."""
        return self.source.recipe.run if self.source else RunSection()

    @property
    def job(self) -> JobSection:
        """The recipe's [job]; empty for an image on its own."""
        return self.source.recipe.job if self.source else JobSection()

    @cached_property
    def lock(self) -> Lock | None:
        """The recipe's lock, read once; None where there is none that can be read."""
        if self.source is None or not self.source.lock.is_file():
            return None
        try:
            return read_lock(self.source.lock)
        except EnvbuildError:
            return None  # whoever needs the lock says what is wrong with it

    @cached_property
    def origin(self) -> str | None:
        """The digest of the lock that the image says it was made from.

        None where it says nothing.
        """
        return embedded_lock_digest(self.path) if self.path.is_file() else None

    @property
    def state(self) -> str:
        """Return "old", "current", or "unknown" for an image that names no lock, or whose recipe has none."""
        if self.old is not None:
            return "old"
        return "unknown" if self.origin is None or self.lock is None else "current"

    @cached_property
    def old(self) -> OldImage | None:
        """Why the image is old; None where it is current, or where that cannot be known."""
        if self.source is None or self.lock is None or not self.path.is_file():
            return None
        name = self.source.recipe.name
        reasons = stale_reasons(self.source.recipe, self.lock)
        if reasons:
            reason = f"the recipe was changed: {'; '.join(reasons)}"
            return OldImage(reason=reason, remedy=f"envbuild lock {name} && envbuild make {name}")
        if self.origin is None or self.origin == lock_digest(self.lock):
            return None
        own = lock_inside(self.path)
        if own is not None and same_image(own, self.lock):
            return None
        reason = f"it was made from another lock than {self.source.lock.name}"
        return OldImage(reason=reason, remedy=f"envbuild make {name}")


def _image_at(name: str, context: Context) -> FoundImage:
    path = context.settings.cwd / name
    if path.exists():
        return FoundImage(path=path, source=None)
    hint = "envbuild list shows the images of this folder"
    if path.stem in recipe_files(context.settings):
        hint = f"envbuild make {path.stem}"
    elif ":" in name:
        hint = f"to show a folder inside: --bind {name} (-v is --verbose)"
    raise UsageError("there is no such image", where=name, hint=hint)


def _image_of_recipe(name: str | None, context: Context) -> FoundImage:
    cwd = context.settings.cwd
    source = _named_recipe(name, context)
    stem = str(name)
    # an image of that very name counts more than the name inside the recipe
    if source is not None and not (name is not None and (cwd / f"{name}.sif").exists()):
        stem = source.recipe.name
    path = cwd / f"{stem}.sif"
    if not path.exists():
        what = f"the image of {stem} is not built yet"
        raise UsageError(what, where=path, hint=f"envbuild make {stem}")
    return FoundImage(path=path, source=source, layer=record_path(cwd, stem))


def find_image(name: str | None, context: Context) -> FoundImage:
    """Return the image of a recipe (./NAME.sif; without a name the only recipe's), or the one at a path.

    Raises UsageError when there is none, naming the command that builds it, and for a file that is
    no image.
    """
    cwd = context.settings.cwd
    if name is not None and is_image_path(name):
        found = _image_at(name, context)
    elif name is not None and (elsewhere := image_elsewhere(cwd, name, context.store)):
        found = FoundImage(path=elsewhere, source=None, layer=record_path(cwd, name))
    else:
        found = _image_of_recipe(name, context)
    # a folder is a sandbox
    if not found.path.is_dir() and not (found.path.is_file() and _is_sif(found.path)):
        what = "this is not an image, or it is damaged"
        raise UsageError(what, where=found.path, hint="copy or build it again")
    return found


def find_layer(found: FoundImage, context: Context) -> MountedLayer | None:
    """Return the layer of a run: its own, else the development layer; None for an image alone.

    Raises what ``mount_layer`` raises.
    """
    if found.mounted is not None or found.layer is None:
        return found.mounted
    return mount_layer(found.path, found.layer, context)


def find_recipe_of_image(name: str | None, context: Context) -> Source | None:
    """Return the recipe that a name stands for (None: the only one), None for an image on its own."""
    return None if name is not None and is_image_path(name) else _named_recipe(name, context)


def _named_recipe(name: str | None, context: Context) -> Source | None:
    """Return the recipe of a name; None where only ./NAME.sif has it."""
    settings = context.settings
    if name is None or name in recipe_files(settings):
        return find_recipe(name, settings)
    return None if (settings.cwd / f"{name}.sif").exists() else find_recipe(name, settings)


def name_of_file(path: Path) -> str:
    """Return a name for an image file: what its own name has of plain letters."""
    plain = unicodedata.normalize("NFKD", path.stem).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:64] or "job"


def is_image_path(name: str) -> bool:
    """Whether the user's word for an image is a path, not the name of a recipe."""
    return "/" in name or name.endswith(".sif")


def _is_sif(path: Path) -> bool:
    offset, magic = SIF_MAGIC
    with readable(path), path.open("rb") as file:
        file.seek(offset)
        return file.read(len(magic)) == magic


def warn_of_old_image(found: FoundImage, context: Context) -> None:
    """Say so where an image is an old one."""
    if found.old is not None:
        text = (
            f"note: {found.path.name} is old: {found.old.reason}; for a new one: {found.old.remedy}"
        )
        context.report.say(text)
        return
    edited = _edited_module(found)
    if edited is not None and found.source is not None:
        name = found.source.recipe.name
        context.report.say(
            f"note: {edited} is newer than {found.path.name}, which has its own copy of this project; "
            f"for a new one: envbuild lock {name} && envbuild make {name}"
        )


def _edited_module(found: FoundImage) -> Path | None:
    """Return a module of a package that is locked as a folder, if it is younger than the image.

    Scripts beside packages do not count: they are not installed, and run as they are here.
    """
    sources = [package.source for package in found.lock.python] if found.lock else []
    folders = [read_source(source).folder for source in sources if source]
    if found.source is None or not any(folders) or not found.path.is_file():
        return None
    made = found.path.stat().st_mtime
    project = project_folder(found.source.path)
    for folder in filter(None, folders):
        for place, below, names in os.walk(project / folder):
            below[:] = [name for name in below if name not in PASSED_OVER]
            for name in names if "__init__.py" in names else ():
                path = Path(place, name)
                if name.endswith(".py") and path.is_file() and path.stat().st_mtime > made:
                    return path
    return None


def refuse_old_image(found: FoundImage, way_out: str) -> None:
    """Raise StaleLockError for an image that is old.

    ``way_out`` says how to go on with it as it is.
    """
    if found.old is not None:
        hint = f"{found.old.remedy}\n{way_out}"
        raise StaleLockError(
            f"the image is old: {found.old.reason}", where=found.path.name, hint=hint
        )


def cuda_of_image(found: FoundImage) -> str | None:
    """Return the CUDA of an image as its lock has it.

    None without CUDA, and where no lock says so.
    """
    if found.source is not None and found.source.recipe.base.cpu:
        return None
    lock = found.lock
    if found.source is None or not found.source.lock.is_file():
        lock = lock_inside(found.path)
    return cuda_of(lock) if lock else None


def lock_inside(image: Path) -> Lock | None:
    """Return the lock that an image carries, None where it has none that can be read."""
    from envbuild.build.image.embedded import read_embedded_info  # late: exec reads no image

    try:
        return read_embedded_info(image).lock
    except EnvbuildError:
        return None
