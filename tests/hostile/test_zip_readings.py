"""Archives in which one program sees other files than another: what was looked at is not what is installed."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

import pytest

from envbuild.errors import IntegrityError
from envbuild.formats.fast_zip import open_zip
from envbuild.resolve.sources.metadata import member_names

END = b"PK\x05\x06"


def zipped(text: str, *, extra: bytes = b"", comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("demo.py")
        info.extra = extra
        archive.writestr(info, text)
        archive.comment = comment
    return out.getvalue()


def with_two_tables() -> bytes:
    """The record of ZIP64 names one table, the old one another."""
    parts = []
    for data in (zipped("one"), zipped("other")):
        end = data.rindex(END)
        start = struct.unpack_from("<I", data, end + 16)[0]
        parts.append((data[:start], bytearray(data[start:end])))
    (files, table), (other_files, other_table) = parts
    struct.pack_into("<I", other_table, 42, len(files))
    first = len(files) + len(other_files)
    second, wide = first + len(table), first + len(table) + len(other_table)
    return b"".join(
        (
            files, other_files, table, other_table,
            struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(other_table), second),
            struct.pack("<4sIQI", b"PK\6\7", 0, wide, 1),
            struct.pack("<4sHHHHIIH", END, 0, 0, 1, 1, len(table), first, 0),
        )
    )  # fmt: skip


def other_name(name: bytes) -> bytes:
    """The extra field that some readers take for the name."""
    return struct.pack("<HHBI", 0x7075, 5 + len(name), 1, zlib.crc32(b"demo.py")) + name


CASES: dict[str, Callable[[], bytes]] = {
    "one behind the other": lambda: zipped("one") + zipped("other"),
    "content before it": lambda: b"#!/bin/sh\n" + zipped("one"),
    "content behind it": lambda: zipped("one") + b"more",
    "one in the comment of another": lambda: zipped("one", comment=b"x" + END + b"y" * 30),
    "two tables": with_two_tables,
    "two names": lambda: zipped("one", extra=other_name(b"evil.py")),
    "a name with an end in it": lambda: zipped("one").replace(b"demo.py", b"dem\0.py"),
}


@pytest.mark.parametrize("case", CASES)
def test_of_two_kinds_are_refused(case: str) -> None:
    data = CASES[case]()
    with pytest.raises(zipfile.BadZipFile):
        open_zip(io.BytesIO(data))
    with pytest.raises(IntegrityError, match="is not a wheel"):
        member_names(io.BytesIO(data), "demo-1-py3-none-any.whl")


@pytest.mark.parametrize(
    "data",
    [zipped("one"), zipped("one", comment=b"said"), zipped("one", extra=other_name(b"demo.py"))],
)
def test_honest_ones_are_read(data: bytes) -> None:
    assert open_zip(io.BytesIO(data)).namelist() == ["demo.py"]
