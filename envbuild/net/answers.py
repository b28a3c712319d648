"""Read a server's answer within limits, whatever it is packed to and whatever it is for."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, cast

from envbuild import limits
from envbuild.errors import IntegrityError, NetworkError
from envbuild.net.redact import redact

if TYPE_CHECKING:
    import httpx

PACKED = {"gzip", "x-gzip", "deflate", "br", "zstd", "compress"}
"""Encodings of an answer's content (RFC 9110, 8.4.1); only the first is asked for."""


def read_bounded(response: httpx.Response, most: int) -> bytes:
    """Return a streamed answer's content.

    Raises IntegrityError for more than ``most`` bytes, NetworkError for one that takes longer than
    limits.ANSWER_SECONDS, or is packed in a way that nobody asked for.
    """
    seconds = limits.ANSWER_SECONDS
    deadline = time.monotonic() + seconds
    where = redact(str(response.url))
    unpacker = _find_unpacker(response, where)
    body = bytearray()
    for chunk in response.iter_raw():
        if unpacker is None:
            body += chunk
        elif not unpacker.eof:
            # httpx would unpack the whole chunk: gigabytes, where it is packed twice
            body += unpacker.decompress(chunk, most + 1 - len(body))
        if len(body) > most:
            raise IntegrityError(
                f"sends more than {most} bytes: too much for such an answer", where=where
            )
        if time.monotonic() > deadline:
            raise NetworkError(f"took longer than {seconds:.0f} s over one answer", where=where)
    if unpacker and response.num_bytes_downloaded and not unpacker.eof:
        raise NetworkError("ends in the middle of its packed content", where=where)
    return bytes(body)


def _find_unpacker(response: httpx.Response, where: str) -> zlib._Decompress | None:
    named = response.headers.get("Content-Encoding", "").lower().split(",")
    ways = [word.strip() for word in named if word.strip() in PACKED]
    if not ways:
        return None
    if ways not in (["gzip"], ["x-gzip"]):
        what = f"answers with content that is packed by {', '.join(ways)[:60]}, not by gzip alone"
        raise NetworkError(what, where=where)
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def drop_body(nothing: httpx.ByteStream, response: httpx.Response) -> None:
    """Put ``nothing`` in the place of what comes with a redirect or a question who asks.

    httpx would keep all of it.
    """
    if not response.has_redirect_location and response.status_code != 401:
        return
    stream, size = cast("httpx.SyncByteStream", response.stream), 0
    # a short one is read to its end: then the connection serves for the next request too
    for chunk in stream:
        size += len(chunk)
        if size > limits.REFUSAL:
            break
    stream.close()
    response.stream = nothing
