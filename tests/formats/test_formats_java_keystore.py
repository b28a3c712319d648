"""Java keystores lose the time of their making, and nothing else."""

from __future__ import annotations

import hashlib
import io
import struct

import pytest

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.file_tree import TreeEntry
from envbuild.formats.java_keystore import with_time
from envbuild.parts.from_tar import JAVA_CERTIFICATES, without_clock

CERTIFICATES = {
    "debian:ca_one.pem": b"0\x03\x02\x01\x05",
    "debian:ca_two.pem": b"0\x03\x02\x01\x06",
}


def keystore(times: list[int], sealed_with: str = "changeit", kind: int = 2) -> bytes:
    body = struct.pack(">III", 0xFEEDFEED, 2, len(times))
    for (name, certificate), time in zip(CERTIFICATES.items(), times, strict=True):
        body += struct.pack(">IH", kind, len(name)) + name.encode() + struct.pack(">Q", time)
        body += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
    return body + seal(body, sealed_with)


def seal(body: bytes, password: str) -> bytes:
    whole = password.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return hashlib.sha1(whole, usedforsecurity=False).digest()


def test_two_installations_give_the_same_bytes() -> None:
    first, second = keystore([1752192000123, 1752192000456]), keystore([1, 2])
    assert with_time(first, 1700000000) == with_time(second, 1700000000)
    assert with_time(first, 1700000000) == keystore([1700000000000, 1700000000000])


def test_what_is_no_keystore_of_certificates_stays_as_it_is() -> None:
    other_magic = b"\xce\xce\xce\xce" + keystore([1, 2])[4:-20]
    others = [
        other_magic + seal(other_magic, "changeit"),
        b"",
        b"text",
        keystore([1, 2], sealed_with="another"),
        keystore([1, 2], kind=1),
        keystore([1, 2])[:-1],
    ]
    for other in others:
        assert with_time(other, 1700000000) == other


def test_a_keystore_that_ends_early_stays_as_it_is() -> None:
    whole = keystore([1, 2])[:-20]
    for end in range(8, len(whole)):
        cut = whole[:end] + seal(whole[:end], "changeit")
        assert with_time(cut, 1700000000) == cut


def test_a_file_that_is_too_large_for_certificates_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size == limits.KEYSTORE + 1
            return bytes(size)

    entry = TreeEntry(JAVA_CERTIFICATES, "f", 0o644, mtime=1)
    with pytest.raises(IntegrityError, match="too large for a file of certificates"):
        without_clock(entry, Endless())
