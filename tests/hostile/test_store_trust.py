"""What lies in a store is hashed before it is used; what is damaged is told and made again (docs/security.md)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from envbuild.base.digests import known_sha256
from envbuild.base.facts import cached_facts, keep_facts
from envbuild.base.model import BaseFacts
from envbuild.base.oci.image import stored_config, stored_image
from envbuild.build.output_record import last_output, record_output
from envbuild.build.packages.from_wheel import unpack_wheel
from envbuild.cli import run_cli
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import Codec
from envbuild.lock.model import Packer
from envbuild.lock.read import read_lock
from envbuild.lock.write import write_lock
from envbuild.parts.from_tar import tar_contents
from envbuild.parts.writer import PartWriter
from envbuild.store.atomic import write_bytes
from envbuild.store.gc import collect_garbage, remove_files
from envbuild.store.layout import Store
from envbuild.store.sealed import (
    SETTLED_SECONDS,
    commit_sealed,
    is_sealed,
    read_sealed,
    seal_path,
    write_sealed,
)
from envbuild.store.verify import is_sound, verify_artifacts
from tests.base.ociimages import image_of, tar_of
from tests.build.test_build_from_wheel import SCHEME, make_wheel

SHIPPED = Path(__file__).parents[2] / "lockfiles" / "torch-mnist.lock"
DIGEST = "sha256:" + "0" * 64


def flip(path: Path) -> None:
    """Change one bit, as a disk does: neither size nor time tells."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def sealed_root(store: Store, folder: Path) -> Path:
    (folder / "root").write_bytes(b"a root" * 100)
    commit_sealed(folder / "root", store.base(DIGEST))
    return store.base(DIGEST)


class TestSealed:
    def test_a_flipped_bit_is_seen(self, tmp_path: Path) -> None:
        path = sealed_root(Store(tmp_path / "s"), tmp_path)
        assert is_sealed(path)
        flip(path)
        assert not is_sealed(path)

    def test_a_bit_that_flips_after_the_file_was_hashed_is_seen(self, tmp_path: Path) -> None:
        path = sealed_root(Store(tmp_path / "s"), tmp_path)
        assert is_sealed(path)
        time.sleep(SETTLED_SECONDS + 0.1)
        # from now on the hash is remembered
        assert is_sealed(path)
        found = path.stat()
        flip(path)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        assert not is_sealed(path)

    def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(self, tmp_path: Path) -> None:
        """Another member of the group may put one there."""
        store = Store(tmp_path / "s")
        kept = store.artifact("ab" * 32)
        kept.parent.mkdir(parents=True)
        os.mkfifo(kept)
        (item,) = verify_artifacts(store)
        assert not is_sound(item, lambda _size: None)

    @pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
    def test_nor_in_that_of_a_record(self, put: Callable[[Path], None], tmp_path: Path) -> None:
        store, image = Store(tmp_path / "s"), tmp_path / "small.sif"
        image.write_bytes(b"image")
        record_output(image, store, "key", DIGEST)
        facts = store.facts(DIGEST)
        write_sealed(facts, b"{}")
        for path in [*store.root.rglob("*.json"), *store.root.rglob("*.sha256")]:
            path.unlink()
            put(path)
        assert last_output(image, store) is None
        assert read_sealed(facts) is None
        assert not is_sealed(facts)
        assert known_sha256(image, store).startswith("sha256:")

    def test_without_its_seal_nothing_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "facts.json"
        write_sealed(path, b"{}")
        assert read_sealed(path) == b"{}"
        seal_path(path).unlink()
        assert read_sealed(path) is None
        assert not is_sealed(path)

    def test_damaged_facts_are_asked_for_again(self, tmp_path: Path) -> None:
        store = Store(tmp_path / "s")
        facts = BaseFacts(image="x", python="3.11.2", machine="x86_64", glibc="2.36")
        keep_facts(facts, DIGEST, store)
        assert cached_facts(DIGEST, store) == facts
        told = store.facts(DIGEST).read_bytes().replace(b"3.11.2", b"3.11.3")
        write_bytes(store.facts(DIGEST), told)
        assert cached_facts(DIGEST, store) is None

    def test_a_damaged_one_in_a_store_below_is_made_again_in_ours(self, tmp_path: Path) -> None:
        lab, mine = Store(tmp_path / "lab"), Store(tmp_path / "mine", below=(tmp_path / "lab",))
        path = sealed_root(lab, tmp_path)
        assert mine.base(DIGEST) == path
        assert mine.own(mine.base(DIGEST)) == tmp_path / "mine/v1/bases" / path.name

    def test_verify_finds_and_removes_what_is_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store = Store(tmp_path / "s")
        monkeypatch.setenv("ENVBUILD_STORE", str(store.root))
        paths = [
            sealed_root(store, tmp_path),
            store.facts(DIGEST),
            store.built("a"),
            store.image("b"),
        ]
        for path in paths[1:]:
            write_sealed(path, b"something of some bytes")
        assert run_cli(["store", "verify"]) == 0
        capsys.readouterr()
        for path in paths:
            flip(path)
        assert run_cli(["store", "verify", "--json"]) == 6
        told = json.loads(capsys.readouterr().out)
        assert sorted(told["damaged"]) == sorted(map(str, paths))
        assert not [path for path in paths if path.exists() or seal_path(path).exists()]


class TestHashedOnUse:
    def test_a_wheel(self, tmp_path: Path) -> None:
        wheel = make_wheel(tmp_path / "demo-1.0-py3-none-any.whl", {"demo.py": b"x = 1\n"})
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        flip(wheel)
        with ThreadPoolExecutor(1) as pool, (tmp_path / "blob").open("wb") as out:
            writer = PartWriter(
                out, codec=Codec(compressor="zstd", level=1, library="here"), pool=pool
            )
            with pytest.raises(IntegrityError, match="was changed in the store"):
                unpack_wheel(wheel, wheel.name, SCHEME, writer, sha256=sha256)

    def test_an_archive_of_files(self, tmp_path: Path) -> None:
        (tmp_path / "tar").write_bytes(tar_of({"a": b"x"}))
        with pytest.raises(IntegrityError, match="was changed in the store"):
            list(tar_contents(tmp_path / "tar", "0" * 64))

    def test_an_image_s_configuration(self, tmp_path: Path) -> None:
        store, image = Store(tmp_path / "s"), image_of(tar_of({"a": b"x"}))
        for digest, data in {**image.blobs, image.digest: image.manifest}.items():
            write_bytes(store.artifact(digest.removeprefix("sha256:")), data)
        found = stored_image(image.digest, store)
        assert found is not None
        assert stored_config(found, store).architecture == "amd64"
        flip(store.artifact(found.manifest.config.sha256))
        with pytest.raises(IntegrityError, match="copy of the image's configuration is damaged"):
            stored_config(found, store)


class TestKeysOfParts:
    def test_they_name_the_compressor(self) -> None:
        keys = {
            Codec(compressor=one, level=3, library="zstd 1.5.7").key for one in ("zstd", "gzip")
        }
        assert len(keys) == 2

    @pytest.mark.parametrize(
        ("compressor", "library"), [("gzip", "zstd 1.5.7"), ("zstd", "zlib 1.3")]
    )
    def test_a_lock_whose_library_is_another_compressor_s(
        self, compressor: Literal["zstd", "gzip"], library: str, tmp_path: Path
    ) -> None:
        packer = Packer(
            name="envbuild", version="1", compressor=compressor, level=3, library=library
        )
        path = tmp_path / "x.lock"
        path.write_text(write_lock(msgspec.structs.replace(read_lock(SHIPPED), packer=packer)))
        with pytest.raises(
            IntegrityError, match=f"packs with {compressor}, but names the library {library}"
        ):
            read_lock(path)


def test_gc_killed_at_any_step_leaves_nothing_that_counts_and_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "s"))
    store = Store(tmp_path / "s")
    sealed_root(store, tmp_path)
    for name in ("a.blob", "a.index"):
        write_bytes(store.root / "v1/layers" / name, b"x")
    for removal in collect_garbage(store, keep_days=-1):
        remove_files(removal)
        whole = [
            path
            for path in (store.root / "v1/layers").glob("*.index")
            if not path.with_suffix(".blob").exists()
        ]
        assert not whole
        assert not store.base(DIGEST).exists() or is_sealed(store.base(DIGEST))
