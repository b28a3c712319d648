"""Wheels are unpacked by their specification, and hostile ones nowhere else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import resource
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from envbuild.build.in_base.bytecode import WheelPart, module_sources
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.packages.from_wheel import unpack_wheel
from envbuild.errors import IntegrityError
from envbuild.formats.file_tree import Part
from envbuild.parts.cache import CachedPart
from envbuild.parts.writer import PartWriter
from envbuild.store.sealed import require_hash
from tests.build.packing import ZSTD, read_file_system, write_file_system
from tests.hostile.caged import confine

SCHEME = Scheme(
    site="usr/local/lib/python3.11/dist-packages",
    prefix="usr/local",
    version="3.11",
    python="usr/bin/python3",
)
SITE = SCHEME.site
WHEEL = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make_wheel(
    path: Path, files: dict[str, bytes], *, name: str = "demo", version: str = "1.0"
) -> Path:
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/WHEEL": WHEEL.encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
    }
    rows = [f"{member},{record_hash(data)},{len(data)}" for member, data in files.items()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        record = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
        for member, data in {**files, f"{info}/RECORD": record.encode()}.items():
            # a fixed time: the same files are the same wheel
            entry = zipfile.ZipInfo(member)
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def unpacked(
    tmp_path: Path, wheel: Path, name: str = "demo-1.0-py3-none-any.whl"
) -> tuple[Part, dict[str, str]]:
    """The part of a wheel, and the contents of its small text files."""
    with ThreadPoolExecutor(2) as pool, (tmp_path / "blob").open("wb") as out:
        writer = PartWriter(out, codec=ZSTD, pool=pool)
        unpack_wheel(
            wheel, name, SCHEME, writer, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()
        )
        part = writer.finish("k")
    write_file_system(tmp_path / "image", [(part, tmp_path / "blob")])
    hashes = {
        entry.path: entry.sha256
        for entry in read_file_system(tmp_path / "image").values()
        if entry.kind == "f"
    }
    return part, hashes


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


FILES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/data.bin": bytes(300_000),
    "demo.pth": b"import sys\n",
    "demo-1.0.data/scripts/tool": b"#!python\nprint('tool')\n",
    "demo-1.0.data/scripts/shell": b"#!/bin/sh\necho hi\n",
    "demo-1.0.data/data/share/demo/readme": b"read me\n",
    "demo-1.0.data/headers/demo.h": b"#define X\n",
    "demo-1.0.data/purelib/more.py": b"y = 2\n",
    "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
}


def test_everything_goes_where_the_specification_says(tmp_path: Path) -> None:
    part, hashes = unpacked(tmp_path, make_wheel(tmp_path / "w", FILES))
    modes = {entry.path: entry.mode for entry in part.entries}
    assert hashes[f"{SITE}/demo/__init__.py"] == sha("x = 1\n")
    assert hashes[f"{SITE}/more.py"] == sha("y = 2\n")
    assert hashes["usr/local/bin/tool"] == sha("#!/usr/bin/python3\nprint('tool')\n")
    assert hashes["usr/local/bin/shell"] == sha("#!/bin/sh\necho hi\n")
    assert hashes["usr/local/share/demo/readme"] == sha("read me\n")
    assert hashes["usr/local/include/python3.11/demo/demo.h"] == sha("#define X\n")
    assert hashes[f"{SITE}/demo-1.0.dist-info/INSTALLER"] == sha("envbuild\n")
    assert modes["usr/local/bin/tool"] == modes["usr/local/bin/demo"] == 0o755
    assert modes[f"{SITE}/demo/__init__.py"] == 0o644
    assert all((entry.uid, entry.gid) == (0, 0) for entry in part.entries)


def test_the_record_lists_what_was_written_with_its_hash(tmp_path: Path) -> None:
    import shutil

    if shutil.which("unsquashfs") is None:
        pytest.skip("not installed here: unsquashfs")
    part, hashes = unpacked(tmp_path, make_wheel(tmp_path / "w", FILES))
    from envbuild.run import Command, LocalRunner

    argv = ("unsquashfs", "-cat", str(tmp_path / "image"), f"{SITE}/demo-1.0.dist-info/RECORD")
    rows = list(csv.reader(io.StringIO(LocalRunner()(Command(argv=argv)).stdout)))
    listed = {str((Path("/") / SITE / row[0]).resolve())[1:]: row[1] for row in rows if row[1]}
    written = {entry.path for entry in part.entries} - {f"{SITE}/demo-1.0.dist-info/RECORD"}
    assert set(listed) == written
    for path, digest in listed.items():
        assert base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=").hex() == hashes[path]


def test_modules_are_found_with_the_paths_that_they_get(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "w", FILES)
    part, _ = unpacked(tmp_path, wheel)
    found = module_sources(
        WheelPart(file=wheel, name="w", kept=CachedPart(part=part, blob=tmp_path / "blob")), SCHEME
    )
    assert sorted(found) == [
        ("demo-1.0.data/purelib/more.py", f"/{SITE}/more.py"),
        ("demo/__init__.py", f"/{SITE}/demo/__init__.py"),
    ]


@pytest.mark.parametrize(
    "member",
    ["../evil.py", "demo/../../evil.py", "demo-1.0.data/data/../../etc/passwd", "/evil.py"],
)
def test_a_wheel_cannot_write_elsewhere(tmp_path: Path, member: str) -> None:
    wheel = make_wheel(tmp_path / "w", {**FILES, member: b"boo"})
    with pytest.raises(IntegrityError, match=r"leads out of the folder|cannot be unpacked"):
        unpacked(tmp_path, wheel)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK])
def test_what_a_zip_calls_a_link_or_device_is_a_plain_file(kind: int, tmp_path: Path) -> None:
    path = make_wheel(
        tmp_path / "demo-1.0-py3-none-any.whl", {"A.py": b"1", "a.py": b"/etc/passwd"}
    )
    with zipfile.ZipFile(path) as archive:
        held = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in held:
            info.external_attr = (kind | 0o6777) << 16
            archive.writestr(info, data)
    unpacked(tmp_path, path)
    found = read_file_system(tmp_path / "image")
    entries = [found[f"{SITE}/{name}.py"] for name in "Aa"]
    assert [(entry.kind, entry.mode) for entry in entries] == [("f", 0o644), ("f", 0o644)]
    assert [entry.sha256 for entry in entries] == [sha("1"), sha("/etc/passwd")]


def test_a_wheel_that_its_owner_writes_to_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a member of a group may who put it into the store."""
    path = make_wheel(tmp_path / "demo-1.0-py3-none-any.whl", {"demo.py": b"good"})
    tried = (
        make_wheel(tmp_path / "other", {"demo.py": f"h{number:03}".encode()}).read_bytes()
        for number in range(1000)
    )
    harm = next(data for data in tried if len(data) == path.stat().st_size)
    checked: list[str] = []

    def hash_and_write(raw: BinaryIO, sha256: str | None, name: str) -> None:
        require_hash(raw, sha256, name)
        checked.append(name)
        path.write_bytes(harm)

    monkeypatch.setattr("envbuild.build.packages.from_wheel.require_hash", hash_and_write)
    with pytest.raises(IntegrityError, match="was changed in the store"):
        unpacked(tmp_path, path)
    assert checked == [path.name]


def test_a_wheel_that_is_swapped_after_it_was_hashed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a group may rename another file to the name in the store."""
    path = make_wheel(tmp_path / "demo-1.0-py3-none-any.whl", {"demo.py": b"good"})
    swapped: list[Path] = []

    def hash_and_swap(raw: BinaryIO, sha256: str | None, name: str) -> None:
        require_hash(raw, sha256, name)
        swapped.append(make_wheel(tmp_path / "other", {"demo.py": b"harm"}).replace(path))

    monkeypatch.setattr("envbuild.build.packages.from_wheel.require_hash", hash_and_swap)
    _, hashes = unpacked(tmp_path, path)
    assert swapped
    assert hashes[f"{SITE}/demo.py"] == sha("good")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-30], "File is not a zip file"),
        (
            lambda data: data.replace(b"Wheel-Version: 1.0", b"Wheel-Version: 9.0"),
            "cannot be unpacked",
        ),
        (lambda _: b"", "File is not a zip file"),
    ],
)
def test_a_damaged_wheel_is_named(tmp_path: Path, damage, says: str) -> None:  # type: ignore[no-untyped-def]
    wheel = make_wheel(tmp_path / "w", FILES)
    with zipfile.ZipFile(wheel) as source:
        contents = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(wheel, "w") as plain:  # stored, so that its text can be damaged
        for name, data in contents.items():
            plain.writestr(name, data)
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(IntegrityError, match=says) as caught:
        unpacked(tmp_path, wheel)
    assert caught.value.where == "demo-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "member", ["demo-1.0.data", "demo-1.0.database/x.py", "demo-1.0.data/loose.py"]
)
def test_a_file_beside_the_schemes_is_refused(tmp_path: Path, member: str) -> None:
    """Found by fuzzing: installer went on without end, and took all memory."""
    wheel = make_wheel(tmp_path / "w", {**FILES, member: b"boo"})
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # it would never end
        confine()
        code = 1
        try:
            with pytest.raises(IntegrityError, match=r"lies in no scheme of demo-1\.0\.data"):
                unpacked(tmp_path, wheel)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
