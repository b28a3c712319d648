"""The development layer of an image: packages beside it, which every way to enter it lays over it.

``NAME.dev.json`` beside ``NAME.sif`` says what is in the layer and which image it was made over.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, structs

from envbuild.base.digests import known_digest, known_sha256
from envbuild.context import Context
from envbuild.errors import HostError, IntegrityError, SpaceError, StaleLockError, UsageError
from envbuild.limits import UNREADABLE, open_plain
from envbuild.lock.model import Digest, Lock
from envbuild.names import NAME
from envbuild.recipe.model import Words
from envbuild.records import frozen_record, replace
from envbuild.store.atomic import clear_partials, os_errors_as, write_bytes
from envbuild.store.layout import DEV_RECORD, LAYER_FILE, Store, claim_folder
from envbuild.store.own_records import is_own, note_own

if TYPE_CHECKING:
    from envbuild.runtime import Bind, Runtime

SCHEMA = 1
MOST = 16 * 1024 * 1024
"""Bytes of a record at most."""
FileName = Annotated[str, Meta(pattern=rf"^{NAME}{LAYER_FILE}\Z")]
Folder = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f\x7f]*\Z", max_length=4096)]


class EditableFolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A project that is imported from its own folder."""

    name: str
    folder: Folder


class DevRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a layer holds: ``image`` is the digest of the image below, ``layer`` the file beside it.

    ``size`` (bytes) and ``sha256`` are the layer's, ``packages`` are the requirements as written, ``lock`` has all
    that they brought; ``over`` is the path of an image that lies elsewhere ("": beside this file).
    """

    schema: int = SCHEMA
    image: Digest
    layer: FileName
    size: int
    sha256: Digest
    lock: Lock
    packages: Words = ()
    editable: tuple[EditableFolder, ...] = ()
    over: str = ""


@frozen_record
class MountedLayer:
    """A layer as a run takes it: its file, and the folders of editable projects.

    Where nothing can be laid over an image the file is a whole image, which is taken in its place.
    ``record`` is None for a layer of one run.
    """

    path: Path
    binds: tuple[Bind, ...] = ()
    record: DevRecord | None = None

    @property
    def overlay(self) -> Path | None:
        """The squashfs to lay over the image; None for a whole image."""
        return None if self.path.suffix == ".sif" else self.path

    def image_for(self, image: Path) -> Path:
        """Return the image to start: the layer's own where it is a whole one."""
        return image if self.overlay else self.path

    def binds_beside(self, shown: Path) -> tuple[Bind, ...]:
        """Return the binds of what does not lie in a folder that is shown anyway."""
        return tuple(bind for bind in self.binds if not bind[0].is_relative_to(shown.resolve()))

    def on_runtime(self, runtime: Runtime) -> Runtime:
        """Return the runtime that lays this layer over every image it starts."""
        return replace(runtime, overlays=(self.path,)) if self.overlay else runtime


def runtime_with(layer: MountedLayer | None, context: Context) -> Runtime:
    """Return the runtime, with a layer over every image where there is one."""
    return layer.on_runtime(context.runtime) if layer else context.runtime


def require_name(name: str) -> None:
    """Raise UsageError for a text that cannot name a recipe or layer."""
    if not re.fullmatch(NAME, name):
        hint = "letters, digits, dot, underscore and hyphen make a name"
        raise UsageError("a layer belongs to a name", where=repr(name), hint=hint)


def record_path(folder: Path, name: str) -> Path:
    """Return where the record of a name's layer is kept."""
    return folder / f"{name}{DEV_RECORD}"


def read_record(path: Path) -> DevRecord | None:
    """Return the record of a layer; None where there is none.

    Raises IntegrityError for a damaged one, naming the command that removes it.
    """
    raw = _read_raw(path)
    return None if raw is None else _decode_record(raw, path)


def read_own_record(path: Path, store: Store) -> DevRecord | None:
    """Return the record of a layer that this user, or whoever shares the store, has made.

    A record binds folders and names code that runs, and comes along with a copied project: one
    that the store does not know raises IntegrityError. None where there is none.
    """
    raw = _read_raw(path)
    if raw is None:
        return None
    if not is_own(raw, store):
        name = path.name.removesuffix(DEV_RECORD)
        raise IntegrityError(
            "this development layer came with the folder: nobody who uses this store has made it",
            where=path,
            hint=_ways_out(name),
        )
    return _decode_record(raw, path)


def _read_raw(path: Path) -> bytes | None:
    try:
        with open_plain(path) as file:
            return file.read(MOST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise IntegrityError(what, where=path) from error


def _decode_record(raw: bytes, path: Path) -> DevRecord:
    try:
        if len(raw) > MOST:
            raise ValueError("it is too large")  # noqa: TRY301  (told below, as other damage is)
        record = msgspec.json.decode(raw, type=DevRecord)
    except (ValueError, *UNREADABLE) as error:
        raise IntegrityError(
            f"this record of a development layer cannot be read: {error}",
            where=path,
            hint=f"remove it: envbuild dev {path.name.removesuffix(DEV_RECORD)} --clear",
        ) from error
    if record.schema > SCHEMA:
        raise UsageError("was written by a newer envbuild", where=path, hint="update envbuild")
    return record


def _ways_out(name: str) -> str:
    return (
        f"make it again over this image: envbuild add --dev {name}\n"
        f"or work without it: envbuild dev {name} --clear"
    )


def write_record(record: DevRecord, path: Path, store: Store) -> None:
    """Write the record of a layer, whole or not at all; the store knows it from then on."""
    raw = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    note_own(raw, store)
    clear_partials(path)
    write_bytes(path, raw)


def image_elsewhere(folder: Path, name: str, store: Store) -> Path | None:
    """Return the image that lies elsewhere and has a layer of this name here; None for no such one.

    Raises UsageError where that image is gone, and what ``read_own_record`` raises.
    """
    if (folder / f"{name}.sif").exists() or not record_path(folder, name).is_file():
        return None
    record = read_own_record(record_path(folder, name), store)
    if record is None or not record.over:
        return None
    image = Path(record.over)
    if not image.is_file():
        hint = f"envbuild dev {name} --clear"
        raise UsageError(f"the image below the layer {name} is gone", where=record.over, hint=hint)
    return image


def mount_layer(image: Path, path: Path, context: Context) -> MountedLayer | None:
    """Return the layer that the record at ``path`` names for an image; None where there is none.

    Raises StaleLockError where it was made over another image, IntegrityError where its file is
    gone or another one, UsageError where the folder of an editable project is gone, and what
    ``read_own_record`` raises.
    """
    record = read_own_record(path, context.store)
    if record is None:
        return None
    name = path.name.removesuffix(DEV_RECORD)
    if known_digest(image, context.store) != record.image:
        raise StaleLockError(
            "the development layer was made over another image",
            where=f"{path.name}, {image.name}",
            hint=_ways_out(name),
        )
    layer = path.with_name(record.layer)
    if not layer.is_file() or known_sha256(layer, context.store) != record.sha256:
        raise IntegrityError(
            "the file of the development layer is gone or damaged",
            where=layer,
            hint=_ways_out(name),
        )
    return MountedLayer(path=layer, binds=editable_binds(record.editable, name), record=record)


def merge_lock(lock: Lock, record: DevRecord) -> Lock:
    """Return what is installed where a layer lies over the image of a lock."""
    names = {package.name for package in record.lock.installed}
    kept = [package for package in lock.python if package.name not in names]
    return structs.replace(
        lock,
        python=(*kept, *record.lock.installed),
        direct=(*lock.direct, *record.packages),
    )


def editable_binds(editable: tuple[EditableFolder, ...], name: str) -> tuple[Bind, ...]:
    """Return the binds of editable projects, read-only: their code is changed outside.

    Raises UsageError for a folder that is gone.
    """
    for one in editable:
        if not Path(one.folder).is_dir():
            raise UsageError(
                f"the folder of {one.name}, which is used from there (-e), is gone",
                where=one.folder,
                hint=f"bring it back, or start again: envbuild dev {name} --clear",
            )
    return tuple((Path(one.folder), one.folder, False) for one in editable)


def layer_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a name's layers, those that others have replaced included."""
    ours = re.compile(re.escape(name) + LAYER_FILE)
    return sorted(path for path in folder.iterdir() if ours.fullmatch(path.name))


def clear_layer(folder: Path, name: str, store: Store) -> list[Path]:
    """Remove a name's record, then its layers; return what was removed.

    The store remembers them meanwhile, so that ``store gc`` removes what a killed process left. A
    full or read-only store remembers nothing: this is how a user makes room.
    """
    found = [record_path(folder, name), *layer_files(folder, name)]
    removed = [path for path in found if path.exists()]
    with ExitStack() as stack:
        with suppress(SpaceError, HostError):
            for path in removed:
                stack.enter_context(claim_folder(store.folder("tmp"), "removed", remember=path))
        for path in removed:
            with os_errors_as(path):
                path.unlink()
    return removed
