"""Zip archives inflated by isal give what zipfile gives, and damage is told."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild.formats.fast_zip import FastZipFile, open_zip

pytest.importorskip("isal", reason="isal is not installed: zipfile inflates")

TEXT = b"the same words again and again, " * 40_000
NOISE = random.Random(3).randbytes(700_000)  # noqa: S311


def archive(folder: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return path


@given(
    st.dictionaries(st.text("abc/", min_size=1, max_size=5), st.binary(max_size=400), max_size=6),
    st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_archive_reads_as_with_zipfile(
    tmp_path: Path, members: dict[str, bytes], deflated: bool
) -> None:
    path = archive(tmp_path, members, zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)
    with open_zip(path) as fast:
        assert isinstance(fast, FastZipFile)
        assert {name: fast.read(name) for name in fast.namelist()} == members


def test_large_members_that_are_read_in_turns(tmp_path: Path) -> None:
    with FastZipFile(archive(tmp_path, {"text": TEXT, "noise": NOISE})) as fast:
        streams = {name: fast.open(name) for name in ("text", "noise")}
        found = dict.fromkeys(streams, b"")
        while any(found[name] != whole for name, whole in (("text", TEXT), ("noise", NOISE))):
            before = sum(map(len, found.values()))
            for name, stream in streams.items():
                found[name] += stream.read(50_001)
            assert sum(map(len, found.values())) > before
        assert all(stream.read() == b"" for stream in streams.values())


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9])
def test_a_flipped_bit_is_told(tmp_path: Path, where: float) -> None:
    path = archive(tmp_path, {"text": TEXT[:3000] + NOISE[:3000]})
    data = bytearray(path.read_bytes())
    data[40 + int(where * 3000)] ^= 4
    path.write_bytes(data)
    with FastZipFile(path) as fast, pytest.raises(zipfile.BadZipFile):
        fast.read("text")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("header_offset", 7, "text has no local header"),
        ("header_offset", 1 << 40, "text is cut off"),
        ("compress_size", 10, "Bad CRC-32"),
        ("file_size", len(TEXT) + 1, "Bad CRC-32"),
        ("CRC", 1, "Bad CRC-32"),
    ],
)
def test_wrong_sizes_sums_and_places_are_told(
    field: str, value: int, said: str, tmp_path: Path
) -> None:
    with FastZipFile(archive(tmp_path, {"text": TEXT, "more": NOISE})) as fast:
        setattr(fast.getinfo("text"), field, value)
        with pytest.raises(zipfile.BadZipFile, match=said):
            fast.read("text")


def test_more_than_the_archive_says_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, {"text": TEXT})
    with FastZipFile(path) as fast:
        fast.getinfo("text").file_size = 1000
        with pytest.raises(zipfile.BadZipFile, match="text is longer than the archive says"):
            fast.read("text")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_no_memory_is_asked_for_a_member_larger_than_its_archive(
    method: int, tmp_path: Path
) -> None:
    with FastZipFile(archive(tmp_path, {"text": NOISE}, method)) as fast:
        fast.getinfo("text").compress_size = 1 << 62
        with pytest.raises(zipfile.BadZipFile, match="text is cut off"):
            fast.read("text")
