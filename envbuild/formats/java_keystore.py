"""Java keystores (JKS) without the times at which their certificates were added.

Debian's ca-certificates-java writes one when it is installed, each certificate with the current
time in it, so that two installations never have the same bytes. The format is described in
OpenJDK's ``sun/security/provider/JavaKeyStore.java`` (engineStore); all numbers are big-endian.
"""

from __future__ import annotations

import hashlib
import struct

MAGIC = struct.pack(">II", 0xFEEDFEED, 2)
TRUSTED_CERTIFICATE = 2
PASSWORD = "changeit"  # noqa: S105  (every Java has this one; such a keystore holds no secret)


def with_time(keystore: bytes, seconds: int) -> bytes:
    """Return a keystore of certificates with one time (since 1970) for all of them.

    What is no such keystore, or is sealed with another password, is returned unchanged.
    """
    digest = hashlib.sha1(usedforsecurity=False).digest_size
    body, seal = keystore[:-digest], keystore[-digest:]
    if not body.startswith(MAGIC) or _seal(body) != seal:
        return keystore
    changed = bytearray(body)
    try:
        for position in _times(body):
            struct.pack_into(">Q", changed, position, seconds * 1000)
    except (struct.error, ValueError):
        return keystore
    return bytes(changed) + _seal(changed)


def _times(body: bytes) -> list[int]:
    """Return where the times (milliseconds, 8 bytes) stand.

    Raises ValueError for another kind of entry.
    """
    (count,) = struct.unpack_from(">I", body, len(MAGIC))
    position = len(MAGIC) + 4
    found = []
    for _ in range(count):
        kind, name_length = struct.unpack_from(">IH", body, position)
        if kind != TRUSTED_CERTIFICATE:
            raise ValueError(kind)
        position += 6 + name_length
        found.append(position)
        position += 8
        (type_length,) = struct.unpack_from(">H", body, position)
        position += 2 + type_length
        (certificate_length,) = struct.unpack_from(">I", body, position)
        position += 4 + certificate_length
    if position != len(body):
        raise ValueError(position)
    return found


def _seal(body: bytes | bytearray) -> bytes:
    """Return the digest that ends a keystore.

    SHA-1 over the password, a constant and all before it.
    """
    password = PASSWORD.encode("utf-16-be")
    whole = password + b"Mighty Aphrodite" + body
    return hashlib.sha1(whole, usedforsecurity=False).digest()
