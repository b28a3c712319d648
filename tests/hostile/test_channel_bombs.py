"""A channel's list of 200 kB that unpacks to gigabytes ends the process that reads it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from envbuild.conda.limited import choose_limited, newest_limited
from envbuild.conda.model import CondaRequest
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError
from envbuild.limits import CHANNEL_MEMORY
from tests.conda.asking import builds, context_of, user_of
from tests.conda.channels import Package, make_channel, serve

PIECE = 1 << 28
REQUEST = CondaRequest(specs=("a",), channels=("lab",), machine="x86_64", glibc="2.36")


def write_bomb(path: Path) -> None:
    """Write so many frames that they unpack to more than the limit; zstd reads them as one stream."""
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(PIECE))
    path.write_bytes(frame * (CHANNEL_MEMORY // PIECE + 1))
    assert path.stat().st_size < 1 << 20


@pytest.mark.parametrize(
    "ask",
    [
        lambda context: choose_limited(REQUEST, context),
        lambda context: newest_limited(REQUEST, ["a"], context),
    ],
)
def test_an_index_of_gigabytes(ask: Callable[[Context], object], tmp_path: Path) -> None:
    channel = make_channel(
        tmp_path / "served/lab", [Package(name="a")], shards=True, compressed=False
    )
    write_bomb(channel / "linux-64/repodata_shards.msgpack.zst")
    with serve(tmp_path / "served") as served:
        context = context_of(user_of(tmp_path, lab=f"{served.url}/lab"))
        with pytest.raises(IntegrityError, match="lists of these channels take more than 4 GiB"):
            ask(context)


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
