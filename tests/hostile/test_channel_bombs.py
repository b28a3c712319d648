"""A small list of a channel that unpacks to gigabytes ends the process that reads it, and nothing else."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from envbuild.conda.growing_limits import count_received
from envbuild.conda.limited import choose_limited, find_locked, find_pixi_lock, newest_limited
from envbuild.conda.model import CondaRequest, PixiQuestion
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError
from envbuild.limits import CHANNEL_LIST, CHANNEL_MEMORY, MIB
from tests.conda.asking import builds, context_of, user_of
from tests.conda.channels import Package, make_channel, serve

PIECE = 1 << 28
REQUEST = CondaRequest(specs=("a",), channels=("lab",), machine="x86_64", glibc="2.36")
SUMS = {"a-1.0-0.conda": "0" * 64}
PIXI = PixiQuestion(platform="linux-64", virtual=(), channels=(), wheels=())


def write_bomb(path: Path) -> None:
    """Write so many frames that they unpack to more than the limit; zstd reads them as one stream."""
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(PIECE))
    path.write_bytes(frame * (CHANNEL_MEMORY // PIECE + 1))
    assert path.stat().st_size < 1 << 20


def list_of(*depends: str) -> bytes:
    """Return a channel's list with one package that requires these."""
    record = {
        "name": "a",
        "version": "1.0",
        "build": "0",
        "build_number": 0,
        "depends": depends,
        "sha256": "0" * 64,
        "size": 3,
        "subdir": "linux-64",
    }
    listed = {"packages": {}, "packages.conda": {"a-1.0-0.conda": record}}
    return json.dumps({"info": {"subdir": "linux-64"}, **listed}).encode()


@pytest.mark.parametrize(
    "ask",
    [
        lambda context: choose_limited(REQUEST, context),
        lambda context: newest_limited(REQUEST, ["a"], context),
        lambda context: find_locked(REQUEST, SUMS, context),
        lambda context: find_pixi_lock(REQUEST, SUMS, PIXI, context),
    ],
)
def test_an_index_of_gigabytes(ask: Callable[[Context], object], tmp_path: Path) -> None:
    channel = make_channel(
        tmp_path / "served/lab", [Package(name="a")], shards=True, compressed=False
    )
    write_bomb(channel / "linux-64/repodata_shards.msgpack.zst")
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        with pytest.raises(IntegrityError, match="more memory or time than their size allows"):
            ask(context)


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (list_of("b" * 2 * CHANNEL_LIST), "a list unpacks to more than its size allows"),
        (list_of(*["b"] * 10_000_000), "more memory or time than their size allows"),
    ],
    ids=["a list that is too long", "one that fits and takes gigabytes of memory"],
)
def test_a_list_of_a_few_kilobytes(listed: bytes, told: str, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "served/lab", [Package(name="a")])
    packed = zstandard.compress(listed)
    assert len(packed) < MIB
    (channel / "linux-64/repodata.json.zst").write_bytes(packed)
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        with pytest.raises(IntegrityError, match=told):
            choose_limited(REQUEST, context)


def test_a_long_list_is_read_because_as_much_was_sent(tmp_path: Path) -> None:
    """A list of 90 MB that packs to a quarter is no bomb; the first limit alone would refuse it."""
    channel = make_channel(tmp_path / "served/lab", [Package(name="a")])
    noise = random.Random(7).randbytes(CHANNEL_LIST * 7 // 10).hex()  # noqa: S311
    (channel / "linux-64/repodata.json.zst").write_bytes(zstandard.compress(list_of(noise)))
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        assert "a" in newest_limited(REQUEST, ["a"], context)


def test_received_bytes_are_counted() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as there,
        server.accept()[0] as here,
    ):
        here.sendall(b"x" * 1000)
        assert len(there.recv(1000, socket.MSG_WAITALL)) == 1000
        assert count_received()[os.fstat(there.fileno()).st_ino] == 1000


def test_an_honest_channel_and_its_errors_come_through(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "lab", [Package(name="a"), Package(name="b")])
    context = context_of(user_of(tmp_path, lab=channel.as_uri()))
    assert builds(choose_limited(REQUEST, context)) == {"a": "0"}
    assert newest_limited(REQUEST, ["a", "b"], context) == {"a": "1.0", "b": "1.0"}
    nothing = CondaRequest(specs=("c",), channels=("lab",), machine="x86_64", glibc="2.36")
    with pytest.raises(NoSolutionError, match="No candidates were found for c"):
        choose_limited(nothing, context)
    gone = context_of(user_of(tmp_path, lab="http://127.0.0.1:9/lab"))
    with pytest.raises(NetworkError, match="a channel cannot be read") as told:
        choose_limited(REQUEST, gone)
    assert told.value.where == "lab"


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "lab", [Package(name="a")])
    context = context_of(user_of(tmp_path, lab=channel.as_uri()))
    for name in ("rattler.py", "msgspec.py", "envbuild.py"):
        (context.settings.cwd / name).write_text("raise SystemExit('harm')")
    assert builds(choose_limited(REQUEST, context)) == {"a": "0"}
