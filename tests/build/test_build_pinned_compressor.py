"""The library that a lock names is brought and packs; a lock alone cannot make this machine run code."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import msgspec
import pytest
import zstandard.backend_c

from envbuild.build import pinned_compressor as packer
from envbuild.build.image_cache import locked_codec
from envbuild.build.pinned_compressor import needs_library, open_codec
from envbuild.context import Context
from envbuild.formats import block_codec as codec
from envbuild.formats.block_library import library_here
from envbuild.lock.model import Lock, PackerFile
from envbuild.lock.read import read_lock
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store

SHIPPED = Path(__file__).parents[2] / "lockfiles" / "torch-mnist.lock"
HERE = library_here()
BLOCK = b"".join(hashlib.sha256(bytes([n % 251])).digest()[: n % 9] for n in range(20_000))[
    : codec.BLOCK
]


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A machine with another version of the library, and an index that has the usual one."""
    for module in (codec, packer):
        monkeypatch.setattr(module, "library_here", lambda: "zstd 0.0.1")
    index = tmp_path / "index/zstandard"
    index.mkdir(parents=True)
    wheel = index / "zstandard-0.25.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(zstandard.backend_c.__file__, "zstandard/backend_c.cpython.so")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (index / "index.html").write_text(f'<a href="{wheel.name}#sha256={sha256}">{wheel.name}</a>')
    env = {
        "HOME": str(tmp_path),
        "ENVBUILD_INDEX": f"file://{tmp_path}/index",
        "ENVBUILD_STORE": str(tmp_path / "s"),
    }
    settings = load_settings(env, tmp_path)
    store = Store(settings.store)
    return Context(settings=settings, runner=LocalRunner(), store=store, report=Told())


def lock_of(context: Context, library: str = HERE, sha256: str | None = None) -> Lock:
    wheel = next(context.settings.cwd.glob("index/zstandard/*.whl"))
    digest = sha256 or hashlib.sha256(wheel.read_bytes()).hexdigest()
    item = PackerFile(
        name="zstandard",
        version="0.25.0",
        file=wheel.name,
        size=wheel.stat().st_size,
        sha256=digest,
    )
    lock = read_lock(SHIPPED)
    return msgspec.structs.replace(
        lock, packer=msgspec.structs.replace(lock.packer, library=library), packers=(item,)
    )


def said(context: Context) -> list[str]:
    assert isinstance(context.report, Told)
    return context.report.said


def test_the_locked_library_packs_where_another_is_installed(context: Context) -> None:
    lock = lock_of(context)
    assert needs_library(locked_codec(lock.packer))
    found = open_codec(lock, context)
    assert said(context) == []
    assert found == locked_codec(lock.packer), "what the lock names decides the key, loaded or not"
    assert found.name == f"envbuild squashfs 1, {HERE}, level 3"
    assert found.pack(BLOCK)[0] == zstandard.ZstdCompressor(level=3).compress(BLOCK)


def test_a_second_time_needs_no_index(context: Context) -> None:
    lock = lock_of(context)
    open_codec(lock, context)
    next(context.settings.cwd.glob("index/zstandard/index.html")).unlink()
    found = open_codec(lock, context)
    assert (said(context), found.library) == ([], HERE)
    assert found.module is not None


def test_a_hash_that_the_index_does_not_list_is_not_run(context: Context) -> None:
    """A lock may come from anybody, and the store may hold a hostile wheel that some other lock brought."""
    hostile = b"not what the index has"
    sha256 = hashlib.sha256(hostile).hexdigest()
    kept = context.store.artifact(sha256)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(hostile)
    found = open_codec(lock_of(context, sha256=sha256), context)
    assert (found.library, found.module) == ("zstd 0.0.1", None)
    assert "with the hash of the lock" in said(context)[0]
    assert "packs the same files into other bytes" in said(context)[0]


def test_a_library_that_was_swapped_in_the_store_is_not_loaded(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member of the group writes to it, at the same size, once it is there."""
    lock = lock_of(context)
    kept = context.store.artifact(lock.packers[0].sha256)
    real = fetch_artifacts

    def fetch_then_swap(wanted: list[Artifact], own: Context) -> object:
        found = real(wanted, own)
        raw = kept.read_bytes()
        kept.unlink()
        kept.write_bytes(raw.replace(b"\x7fELF", b"\x7fELG"))
        return found

    monkeypatch.setattr(packer, "fetch_artifacts", fetch_then_swap)
    assert open_codec(lock, context).module is None
    assert "was changed in the store" in said(context)[-1]


def test_a_wheel_of_another_version_is_told(context: Context) -> None:
    found = open_codec(lock_of(context, library="zstd 9.9.9"), context)
    assert f"holds {HERE}, the lock says zstd 9.9.9" in said(context)[0]
    assert found.library == "zstd 0.0.1"


def test_a_lock_without_wheels_for_this_python(context: Context) -> None:
    lock = msgspec.structs.replace(lock_of(context), packers=())
    open_codec(lock, context)
    assert "the lock lists no wheel of it for this Python" in said(context)[0]


def test_old_locks_leave_it_open(context: Context) -> None:
    lock = read_lock(SHIPPED)
    lock = msgspec.structs.replace(
        lock, packer=msgspec.structs.replace(lock.packer, library=None), packers=()
    )
    assert (open_codec(lock, context).library, said(context)) == ("zstd 0.0.1", [])
