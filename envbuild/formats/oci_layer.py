"""Read the tar of an OCI image's layer in one pass: plain, gzip or zstd (image-spec, layer.md)."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.limits import Room
from envbuild.tarread import open_tar

# image-spec, layer.md, "Whiteouts": ".wh.NAME" hides NAME of lower layers,
# the second one all of its folder
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
CHUNK = 1024 * 1024
# RFC 8878, 3.1.1: the magic number of a zstd frame
ZSTD = b"\x28\xb5\x2f\xfd"
# RFC 1952, 2.3.1
GZIP = b"\x1f\x8b"


class HashedStream:
    """A stream that hashes what is read from it; it came out of a file of ``size`` bytes."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._room = Room(limits.most_content(size), "it unpacks to")
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read at most that many bytes.  Raises IntegrityError where it does not end."""
        data = self._stream.read(size)
        self._room.take(len(data))
        self.digest.update(data)
        return data


def read_mark(path: str) -> Literal["o", "w"] | None:
    """Return what a name is as a mark: "o" empties its folder, "w" hides one name; None: it is no mark.

    Raises IntegrityError for a mark that hides the folder itself or the one above.
    """
    name = path.rpartition("/")[2]
    if not name.startswith(WHITEOUT):
        return None
    if name.removeprefix(WHITEOUT) in ("", ".", ".."):
        raise IntegrityError(f"holds the mark {name!r}, which hides no file")
    return "o" if name == OPAQUE else "w"


@contextmanager
def open_layer(path: Path) -> Iterator[tuple[HashedStream, tarfile.TarFile]]:
    """Yield a layer's tar (plain, gzip or zstd) for one pass, and the stream under it."""
    with path.open("rb") as raw:
        size = path.stat().st_size
        stream = HashedStream(_open_decompressed(raw), size)
        with open_tar(stream, size, mode="r|") as tar:
            yield stream, tar


def finish_layer(stream: HashedStream, diff_id: str | None, what: str, where: str) -> None:
    """Read to the end.  Raises IntegrityError for a layer whose content is not ``diff_id``."""
    while stream.read(CHUNK):
        pass
    if diff_id is not None and f"sha256:{stream.digest.hexdigest()}" != diff_id:
        raise IntegrityError(
            f"{what} holds other files than the image's configuration names", where=where
        )


def _open_decompressed(raw: IO[bytes]) -> Any:
    """Return a stream of the tar inside, by its first bytes: media types lie."""
    start = raw.read(4)
    raw.seek(0)
    if start.startswith(GZIP):
        from isal import igzip  # late: it takes 20 ms; it inflates 2 to 3 times as fast as zlib

        opened: Any = igzip
        return opened.open(raw)
    if start == ZSTD:
        import zstandard  # late: facts of most images need no zstd

        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return raw
