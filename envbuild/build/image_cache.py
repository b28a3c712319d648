"""What is known of an image without making it.

Its key, whether the store has it, whether it is where it should be. A ``make`` that finds nothing
to do ends here, so nothing that builds is imported.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from envbuild.build.model import BuildSpec, ImageRecord
from envbuild.build.modes import MODES
from envbuild.build.output_record import OutputRecord, matching_output
from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.formats.block_codec import Codec, gzip_codec, installed_library, opens_zstd
from envbuild.limits import decode_kept
from envbuild.lock.digest import image_key
from envbuild.lock.model import Packer
from envbuild.parts.counters import FORMATS
from envbuild.records import replace
from envbuild.store.hashing import digest_of
from envbuild.store.layout import Store


def choose_mode(asked: str) -> str:
    """Return the way to build; "auto" is flat, which every recipe allows."""
    return "flat" if asked == "auto" else asked


def locked_codec(packer: Packer) -> Codec:
    """Return the codec that a lock names.

    Where the lock leaves the library open, with the installed one.
    """
    named = packer.library if packer.compressor == "zstd" else None
    library = named or installed_library(packer.compressor)
    return Codec(compressor=packer.compressor, level=packer.level, library=library)


def key_of(order: BuildSpec) -> str:
    """Return the key of an image in the store.

    Over its lock, mode and definition, and what packs it, if we do.
    """
    key = image_key(order.lock, order.mode, order.definition)
    as_locked = order.codec.compressor == order.lock.packer.compressor
    if not MODES[order.mode].is_assembled and as_locked:
        return key
    # the same lock packed by another library, or in other formats, is another image
    parts = [key, order.codec.name, FORMATS]
    encoded = msgspec.json.encode(parts, order="sorted")
    return digest_of(encoded)


def read_record(key: str, store: Store) -> ImageRecord | None:
    """Return what the store remembers of an image.

    None where it knows nothing or its note is damaged.
    """
    return decode_kept(store.record(key), ImageRecord)


def is_stored(order: BuildSpec, store: Store) -> bool:
    """Tell whether the store has this image, or all that it is put together from."""
    if MODES[order.mode].is_assembled:
        return read_record(key_of(order), store) is not None
    return stored_image(order, store).is_file()


def stored_image(order: BuildSpec, store: Store) -> Path:
    """Return where the store keeps, or will keep, an image that was built from its definition."""
    return store.image(key_of(order))


def up_to_date(order: BuildSpec, store: Store) -> OutputRecord | None:
    """Return the note of the target where it is this very image already, else None."""
    return matching_output(order.target, store, key_of(order))


def fit_runtime(order: BuildSpec, context: Context) -> BuildSpec:
    """Return the order packed with gzip where this machine's runtime reads no zstd."""
    if order.codec.compressor != "zstd" or reads_zstd(context):
        return order
    fitting = replace(order, codec=gzip_codec())
    if not is_stored(fitting, context.store):
        runtime = f"{context.runtime.name} {context.runtime.version_text}"
        context.report.say(f"{order.recipe.name}: packed with gzip, as {runtime} reads no zstd")
    return fitting


def reads_zstd(context: Context) -> bool:
    """Tell whether the runtime of this machine opens images packed with zstd."""
    try:
        runtime = context.runtime
    except HostError:
        return True  # nothing runs here, so what the lock says counts
    return opens_zstd(runtime.name, runtime.version)
