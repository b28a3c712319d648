"""How blocks are packed.

The compressor, its level, and the exact library, which decides the bytes.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any, Literal

from envbuild.errors import IntegrityError
from envbuild.formats.block_library import LAYOUT, library_here
from envbuild.limits import reading
from envbuild.records import field, frozen_record

BLOCK = 131072
"""Bytes of a block, squashfs' own default.

32 K starts programs 10 % faster and makes images 9 % larger.
"""
STORED = 1 << 24
"""Bit of a squashfs block size that marks a block stored as it is."""

GZIP_LEVEL = 4
"""Of zlib: 82 MB of libraries and modules become 34.5 MB in 1.5 s.

Level 6: 33.6 MB in 3.0 s; zstd 3: 34.8 MB in 0.3 s.
"""


@frozen_record
class Codec:
    """One way to pack blocks; may be used from any thread.

    ``library`` is what compresses, with its version; ``module`` is that version of the module
    zstandard, None where it is the installed one.
    """

    compressor: Literal["zstd", "gzip"]
    level: int
    library: str
    module: Any = field(default=None, repr=False, compare=False)
    _local: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Return what decides the bytes, for people.

        The layout, the library with its version, the level.
        """
        return f"envbuild squashfs {LAYOUT}, {self.library}, level {self.level}"

    @property
    def key(self) -> str:
        """Return what decides the bytes, as it goes into the key of a cached part.

        The compressor too.
        """
        return f"{self.compressor}: {self.name}"

    def pack(self, raw: bytes) -> tuple[bytes, int]:
        """Return a block's bytes in the file, and its squashfs size."""
        packed = self._compress(raw)
        # squashfs.rst, "File data": a block that would grow is stored as it is
        if len(packed) < len(raw):
            return packed, len(packed)
        return raw, len(raw) | STORED

    def _compress(self, raw: bytes) -> bytes:
        if self.compressor == "gzip":
            return zlib.compress(raw, min(self.level, 9))
        compressor: Any = getattr(self._local, "zstd", None)
        if compressor is None:
            import zstandard  # late: an image that is up to date packs nothing

            module = self.module or zstandard
            compressor = self._local.zstd = module.ZstdCompressor(level=self.level)
        packed: bytes = compressor.compress(raw)
        return packed


def installed_library(compressor: str) -> str:
    """Return the library that packs with this compressor here, with its version."""
    return library_here() if compressor == "zstd" else f"zlib {zlib.ZLIB_RUNTIME_VERSION}"


READS_ZSTD = {"apptainer": (1, 4)}
"""Oldest runtimes that open an image packed with zstd (pkg/image/squashfs.go of both projects).

No SingularityCE does, up to 4.5.1: "corrupted image: unknown compression algorithm value 6".
"""


def opens_zstd(runtime: str, version: tuple[int, ...]) -> bool:
    """Tell whether a container runtime opens images packed with zstd."""
    first = READS_ZSTD.get(runtime)
    return first is not None and version >= first


def gzip_codec() -> Codec:
    """Return the codec for runtimes that read no zstd."""
    return Codec(compressor="gzip", level=GZIP_LEVEL, library=installed_library("gzip"))


def unpack_block(data: bytes, compressor: str, limit: int) -> bytes:
    """Return a block's content, at most ``limit`` bytes.

    Raises IntegrityError for damaged data and for a compressor that is not known.
    """
    with reading("a block is damaged", compressor):
        if compressor == "zstd":
            return _unpack_zstd(data, limit)
        if compressor == "gzip":
            return zlib.decompressobj().decompress(data, limit)
        if compressor == "xz":
            import lzma  # late: no image of ours is packed with it

            return lzma.LZMADecompressor(memlimit=2**28).decompress(data, limit)
    raise IntegrityError(
        f"its file system is packed with {compressor}, which this version cannot read"
    )


def _unpack_zstd(data: bytes, limit: int) -> bytes:
    import zstandard  # late: an image that is up to date unpacks nothing

    # it would be believed, and so many bytes asked for
    if zstandard.frame_content_size(data) > limit:
        raise IntegrityError("a block is damaged: it says that it is larger than any")
    unpacked: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=limit)
    return unpacked
