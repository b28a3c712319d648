"""Pack with the library that the lock names, also on a machine that has another version of it.

The wheel is code that would run here, outside of any container, so a lock alone is not believed:
the package index of this machine has to list the very file with the very hash.
"""

from __future__ import annotations

import io
import os
import zipfile
from importlib import util
from importlib.machinery import ExtensionFileLoader

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envbuild import limits
from envbuild.build.image_cache import fit_runtime, is_stored, locked_codec, reads_zstd
from envbuild.build.model import BuildSpec
from envbuild.build.modes import MODES
from envbuild.context import Context
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError
from envbuild.formats.block_codec import Codec, gzip_codec
from envbuild.formats.block_library import LIBRARY, library_here
from envbuild.limits import reading
from envbuild.lock.model import Lock, Packer, PackerFile
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.net.index import index_url, make_client, read_links
from envbuild.records import replace
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store
from envbuild.store.units import join_numbers

MODULE = f"{LIBRARY}.backend_c"


def open_codec(lock: Lock, context: Context) -> Codec:
    """Return the codec that a lock names, with its library loaded.

    Its wheel is downloaded where the store lacks it. Where the library cannot be had, that is said,
    and the codec packs with the installed one: the image then holds the same files in other bytes.
    """
    codec = locked_codec(lock.packer)
    if not needs_library(codec):
        return codec
    try:
        module = _load_module(_fetch_library(lock, context), codec.library)
    except (EnvbuildError, OSError, ImportError, zipfile.BadZipFile) as error:
        context.report.say(
            f"the lock packs with {codec.library}, which is not to be had here ({error}); {library_here()} packs the "
            "same files into other bytes"
        )
        return replace(codec, library=library_here())
    return replace(codec, module=module)


def needs_library(codec: Codec) -> bool:
    """Tell whether a codec packs with another library than the installed one."""
    return codec.compressor == "zstd" and codec.library != library_here()


def library_to_fetch(order: BuildSpec, store: Store) -> PackerFile | None:
    """Return the compressor's wheel that building would download, None where it downloads none."""
    if not needs_library(order.codec) or is_stored(order, store):
        return None
    try:
        item = _fitting_wheel(order.lock)
    except IntegrityError:
        return None  # the installed library packs then
    return None if store.artifact(item.sha256).is_file() else item


def settle_codec(order: BuildSpec, context: Context) -> BuildSpec:
    """Return the order with a codec that packs here; an image that the store has is only copied."""
    order = fit_runtime(order, context)
    if order.codec.compressor != order.lock.packer.compressor:
        return order
    if not MODES[order.mode].is_assembled or is_stored(order, context.store):
        return order
    return replace(order, codec=open_codec(order.lock, context))


def codec_of_image(packer: str, lock: Lock, context: Context) -> Codec:
    """Return the codec for what an image is compared with; ``packer`` is that of its note."""
    packed = gzip_codec()
    if packer == packed.name or not reads_zstd(context):
        return packed
    return open_codec(lock, context)


def running_codec(packer: Packer, context: Context) -> Codec:
    """Return the codec for what is only run on this machine."""
    return locked_codec(packer) if reads_zstd(context) else gzip_codec()


def _fetch_library(lock: Lock, context: Context) -> bytes:
    """Return the bytes of the library, after bringing its wheel where the store lacks it.

    The store may be a group's: what is loaded is hashed here, in memory, against what this
    machine's index lists.
    """
    item = _fitting_wheel(lock)
    # asked once per user, in a folder that nobody else can write to: what was listed stays trusted
    listed = context.settings.state / "packers" / item.sha256
    if not listed.is_file():
        _require_listed(item, context)
        write_bytes(listed, b"")
    wanted = Artifact(
        file=item.file, size=item.size, sha256=item.sha256, kind="python", project=LIBRARY
    )
    with context.report.stage(f"bring {item.name} {item.version}, which packs"):
        fetch_artifacts([wanted], context)
    if item.size > limits.LIBRARY:
        raise IntegrityError(f"{item.file} is of {item.size} bytes: too large for such a wheel")
    # read once into memory and hashed there: the file could be exchanged between hash and load
    with context.store.artifact(item.sha256).open("rb") as file:
        wheel = file.read(item.size + 1)
    if hash_bytes(wheel) != item.sha256:
        raise IntegrityError(
            f"{item.file} was changed in the store", hint="run: envbuild store verify"
        )
    with (
        reading("holds no compiled library", item.file),
        zipfile.ZipFile(io.BytesIO(wheel)) as archive,
    ):
        (member,) = (
            one for one in archive.infolist() if one.filename.startswith(f"{LIBRARY}/backend_c.")
        )
        if member.file_size > limits.LIBRARY:
            raise IntegrityError(
                f"{member.filename} is of {member.file_size} bytes", where=item.file
            )
        return archive.read(member)


def _fitting_wheel(lock: Lock) -> PackerFile:
    """Return the wheel for the Python that runs this.

    Raises IntegrityError where the lock lists none.
    """
    known = list(sys_tags())
    for item in lock.packers:
        try:
            name, _, _, tags = parse_wheel_filename(item.file)
        except InvalidWheelFilename:
            continue
        if name == LIBRARY and any(tag in tags for tag in known):
            return item
    raise IntegrityError("the lock lists no wheel of it for this Python")


def _require_listed(item: PackerFile, context: Context) -> None:
    with make_client(context.settings) as client:
        links = read_links(index_url(context), LIBRARY, client)
    if not any((link.file, link.sha256) == (item.file, item.sha256) for link in links):
        raise NetworkError(f"the package index lists no {item.file} with the hash of the lock")


def _load_module(code: bytes, library: str) -> object:
    """Load a library from memory.

    A file in a folder that others may write to could be another one by then.
    """
    # it stays open: the loader takes a second library under the name of the first for the same one
    handle = os.memfd_create(LIBRARY, os.MFD_CLOEXEC)
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(code)
    loader = ExtensionFileLoader(MODULE, f"/proc/self/fd/{handle}")
    spec = util.spec_from_loader(MODULE, loader)
    if spec is None:
        raise ImportError(f"{library} is no module")
    module = util.module_from_spec(spec)
    loader.exec_module(module)
    found = "zstd " + join_numbers(module.ZSTD_VERSION)
    if found != library:
        raise IntegrityError(f"the wheel holds {found}, the lock says {library}")
    return module
