"""Copies hold the same bytes whichever way they were made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild.errors import IntegrityError
from envbuild.formats import file_copy as copying
from envbuild.formats.file_copy import copy_extents, copy_into

PAGE = copying.PAGE
CONTENT = bytes(range(1, 252)) * 400
EXTENTS = st.lists(
    st.tuples(
        st.integers(0, 60_000), st.sampled_from([0, 1, 4095, PAGE, 3 * PAGE, 8 * PAGE, 30_001])
    ),
    max_size=5,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small copies go the way of large ones, through several buffers."""
    monkeypatch.setattr(copying, "PAST_CACHE_FROM", 1)
    monkeypatch.setattr(copying, "BUFFER", 4 * PAGE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@given(extents=EXTENTS, at=st.sampled_from([0, 7, PAGE, 5 * PAGE]))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
def test_ranges_come_to_lie_one_behind_the_other_and_nothing_else_changes(
    source: Path, extents: list[tuple[int, int]], at: int
) -> None:
    target, before = source.with_name("target"), b"\xff" * (40 * PAGE)
    target.write_bytes(before)
    with target.open("r+b") as out:
        copy_extents(source, out.fileno(), at, extents)
    wanted = b"".join(CONTENT[offset : offset + size] for offset, size in extents)
    found = target.read_bytes()
    assert found == before[:at] + wanted + before[at + len(wanted) :]


def test_a_file_system_that_refuses_to_be_written_past_its_cache_is_written_through_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    opened: list[int] = []

    def refusing(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            opened.append(real("/dev/full", os.O_WRONLY))
            return opened[-1]
        return real(path, flags, *rest)

    def pwrite(target: int, data: bytes, at: int) -> int:
        if target in opened:
            raise OSError(errno.EINVAL, "Invalid argument")
        return written(target, data, at)

    written = os.pwrite
    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(os, "pwrite", pwrite)
    target = source.with_name("target")
    with target.open("wb") as out:
        copy_into(source, out.fileno(), PAGE, len(CONTENT))
    assert opened
    assert target.read_bytes() == bytes(PAGE) + CONTENT


def test_a_file_that_is_shorter_than_recorded_is_told(source: Path) -> None:
    with (
        source.with_name("target").open("wb") as out,
        pytest.raises(IntegrityError, match="shorter than recorded"),
    ):
        copy_into(source, out.fileno(), 0, len(CONTENT) + 1)


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
def test_a_full_disk_is_an_error_of_the_system(source: Path) -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as out,
        pytest.raises(OSError, match="No space left"),
    ):
        copy_into(source, out.fileno(), 0, len(CONTENT))
