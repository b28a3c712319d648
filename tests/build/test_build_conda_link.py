"""conda packages are linked for their final prefix as py-rattler links them, and hostile ones nowhere else."""

from __future__ import annotations

import asyncio
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.build.conda.link import link_package
from envbuild.build.conda.prefix import CondaPrefix
from envbuild.conda.replace import replace_in_binary, replace_in_text
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK
from envbuild.formats.file_tree import TreeEntry, merge_parts
from envbuild.lock.conda_order import install_order
from envbuild.lock.model import CondaPackage
from envbuild.parts.cache import CachedPart
from envbuild.parts.reader import read_file
from envbuild.parts.writer import PartWriter
from tests.build.packing import ZSTD
from tests.conda.archives import PLACEHOLDER, TIME, Archive

PREFIX = CondaPrefix(path="opt/env", python="3.12")
OLD = PLACEHOLDER.encode()
LIBRARY = b"\x7fELF" + OLD + b"/lib:" + OLD + b"/lib64\0rest\0" + bytes(BLOCK) + OLD + b"/etc\0end"
TOOL = Archive(
    name="tool",
    files={
        "bin/tool": b"#!" + OLD + b"/bin/python3.12 -s\nprint('" + OLD + b"')\n",
        "bin/plain": b"\x7fELFplain",
        "lib/libtool.so.1": LIBRARY,
        "etc/tool.conf": b"root = " + OLD + b"\n" + b"x" * BLOCK + OLD,
        "share/empty": b"",
    },
    links={"lib/libtool.so": "libtool.so.1"},
    text=("bin/tool", "etc/tool.conf"),
    binary=("lib/libtool.so.1",),
    programs=("bin/tool", "bin/plain"),
)
MODULE = Archive(
    name="module",
    noarch="python",
    subdir="noarch",
    build="py_0",
    files={
        "site-packages/module/__init__.py": b"def main(): pass\n",
        "site-packages/module/where.py": b"prefix = '" + OLD + b"'\n",
        "python-scripts/module-script": b"#!" + OLD + b"/bin/python\n",
        "share/module/data": b"data",
    },
    text=("site-packages/module/where.py", "python-scripts/module-script"),
    programs=("python-scripts/module-script",),
    depends=("python",),
    entry_points=("module = module:main", "module-cli = module.sub.cli:App.run"),
)
PYTHON = Archive(
    name="python",
    version="3.12.4",
    files={"bin/python3.12": b"\x7fELF"},
    links={"bin/python": "python3.12"},
    programs=("bin/python3.12",),
)


def link(
    folder: Path,
    archive: Archive,
    package: CondaPackage | None = None,
    prefix: CondaPrefix = PREFIX,
    data: bytes | None = None,
) -> dict[str, tuple[TreeEntry, bytes | None]]:
    """The entries of a package's part, with what is in its files."""
    locked = archive.write(folder)
    if data is not None:
        (folder / archive.file).write_bytes(data)
        locked = archive.locked(data)
    blob = folder / f"{archive.name}.blob"
    with ThreadPoolExecutor(2) as pool, blob.open("wb") as out:
        writer = PartWriter(out, codec=ZSTD, pool=pool)
        link_package(folder / archive.file, package or locked, prefix, writer)
        part = writer.finish("k")
    tree, kept = merge_parts([part]), [CachedPart(part=part, blob=blob)]
    return {
        path: (entry, read_file(tree, kept, path, compressor="zstd") if entry.kind == "f" else None)
        for path, (entry, _) in tree.items()
    }


def without_records(found: dict[str, tuple[TreeEntry, bytes | None]]) -> dict[str, bytes | None]:
    return {path: data for path, (_, data) in found.items() if "conda-meta/" not in path}


def content(found: dict[str, tuple[TreeEntry, bytes | None]], path: str) -> bytes:
    data = found[f"opt/env/{path}"][1]
    assert data is not None
    return data


class TestLinking:
    def test_a_compiled_package(self, tmp_path: Path) -> None:
        found = link(tmp_path, TOOL)
        assert content(found, "bin/tool") == b"#!/opt/env/bin/python3.12 -s\nprint('/opt/env')\n"
        library = content(found, "lib/libtool.so.1")
        assert len(library) == len(LIBRARY)
        assert library.startswith(b"\x7fELF/opt/env/lib:/opt/env/lib64\0\0")
        assert OLD not in library
        assert library.endswith(b"/opt/env/etc" + bytes(len(OLD) - len("/opt/env") + 1) + b"end")
        assert found["opt/env/lib/libtool.so"][0].target == "libtool.so.1"
        modes = {path: found[f"opt/env/{path}"][0].mode for path in ("bin/plain", "etc/tool.conf")}
        assert modes == {"bin/plain": 0o755, "etc/tool.conf": 0o644}
        # what was changed looks newer than bytecode of what was before
        assert found["opt/env/bin/plain"][0].mtime == TIME
        assert found["opt/env/bin/tool"][0].mtime == TIME + 1
        record = json.loads(content(found, "conda-meta/tool-1.0-h1_0.json"))
        assert record["files"] == [*TOOL.files, *TOOL.links]
        assert "http" not in json.dumps(
            {k: v for k, v in record.items() if k not in ("url", "channel")}
        )

    def test_a_package_of_modules(self, tmp_path: Path) -> None:
        found = link(tmp_path, MODULE)
        site = "lib/python3.12/site-packages/module"
        assert content(found, f"{site}/where.py") == b"prefix = '/opt/env'\n"
        assert content(found, "bin/module-script") == b"#!/opt/env/bin/python\n"
        assert b"from module.sub.cli import App\n" in content(found, "bin/module-cli")
        assert found["opt/env/bin/module"][0].mode == 0o755
        assert not any("site-packages" in path for path in found if "/python3.12/" not in path)

    def test_the_old_format_gives_the_same_tree(self, tmp_path: Path) -> None:
        new = link(tmp_path / "new", TOOL)
        old = link(tmp_path / "old", replace(TOOL, old_format=True))
        differ = {path for path in new if new[path][1] != old[path][1]}
        assert differ == {"opt/env/conda-meta/tool-1.0-h1_0.json"}

    def test_packages_of_before_paths_json(self, tmp_path: Path) -> None:
        listed = f'{PLACEHOLDER} text bin/tool\n"{PLACEHOLDER}" binary lib/libtool.so.1\n'
        info = {"info/paths.json": b"LEFT OUT", "info/has_prefix": listed.encode()}
        old = link(tmp_path / "old", replace(TOOL, old_format=True, info=info))
        new = link(tmp_path / "new", TOOL)
        for path in ("bin/tool", "lib/libtool.so.1"):
            assert content(old, path) == content(new, path)

    def test_a_hard_link_is_a_name_of_the_same_file(self, tmp_path: Path) -> None:
        again = tarfile.TarInfo("bin/again")
        again.type, again.linkname = tarfile.LNKTYPE, "bin/plain"
        noted = {"share/empty": {**TOOL.paths()[1], "_path": "bin/again"}}
        found = link(tmp_path, replace(TOOL, members=[(again, b"")], noted=noted))
        assert content(found, "bin/again") == b"\x7fELFplain"

    def test_the_same_archive_gives_the_same_bytes(self, tmp_path: Path) -> None:
        assert link(tmp_path / "a", TOOL) == link(tmp_path / "b", TOOL)

    @pytest.mark.parametrize("length", [100, 111, 112, 113, 200])
    def test_a_long_first_line(self, length: int, tmp_path: Path) -> None:
        prefix = CondaPrefix(path="opt/" + "p" * (length - 4), python="3.12")
        found = link(
            tmp_path,
            replace(TOOL, binary=(), files={"bin/tool": TOOL.files["bin/tool"]}),
            prefix=prefix,
        )
        script = found[f"{prefix.path}/bin/tool"][1]
        assert script is not None
        first = script.split(b"\n")[0]
        assert len(first) <= 127
        direct = len(f"#!/{prefix.path}/bin/python3.12 -s") <= 127
        assert (first != b"#!/bin/sh") == direct
        compile(script, "script", "exec")


class TestAgainstRattler:
    """py-rattler's own install of the same archives gives the same files (docs/conda.md names what differs)."""

    def test_the_same_files(self, tmp_path: Path) -> None:
        channel, target = tmp_path / "channel", tmp_path / "target"
        archives = (
            PYTHON,
            TOOL,
            MODULE,
            replace(TOOL, name="tool2", old_format=True, files={"a": b"1"}, links={}),
        )
        for archive in archives:
            archive.write(channel / archive.subdir)
        asyncio.run(install(channel, target, archives))
        ours: dict[str, tuple[TreeEntry, bytes | None]] = {}
        for archive in archives:
            for path, held in link(tmp_path / "ours", archive).items():
                if held[0].kind != "d":
                    ours[path.removeprefix("opt/env/")] = held
        theirs = {
            str(path.relative_to(target)): path
            for path in target.rglob("*")
            if path.is_symlink() or path.is_file()
        }
        only_theirs = {"CACHEDIR.TAG", "conda-meta/history"} | {
            path for path in theirs if path.startswith("conda-meta/.")
        }
        assert set(theirs) - only_theirs == set(ours)
        for path, (entry, data) in ours.items():
            place = theirs[path]
            if entry.kind == "l":
                assert str(place.readlink()) == entry.target
            elif path.startswith("conda-meta/"):
                assert told(json.loads(data or b"")) == told(json.loads(place.read_bytes()))
            else:
                assert place.read_bytes() == data, path
                assert bool(place.stat().st_mode & 0o100) == bool(entry.mode & 0o100), path

    def test_its_reader_takes_our_records(self, tmp_path: Path) -> None:
        from rattler import PrefixRecord

        for archive in (PYTHON, TOOL, MODULE):
            for path, (entry, data) in link(tmp_path / "a", archive).items():
                if path.startswith("opt/env/conda-meta/") and entry.kind == "f":
                    target = tmp_path / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data or b"")
                    record = PrefixRecord.from_path(target)
                    assert record.name.normalized == archive.name
                    assert len(record.files) == len(archive.files) + len(archive.links) + len(
                        archive.entry_points
                    )


def told(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of its package, without where it came from and which tool wrote it."""
    kept = (
        "build",
        "build_number",
        "depends",
        "fn",
        "name",
        "noarch",
        "sha256",
        "size",
        "subdir",
        "timestamp",
        "version",
    )
    paths = {}
    for path in record["paths_data"]["paths"]:
        same = {key: value for key, value in path.items() if value not in (None, False)}
        # links have no hash that tools agree on
        if path["path_type"] == "softlink":
            same = {key: same[key] for key in ("_path", "path_type")}
        if path["path_type"] == "unix_python_entry_point":
            same.pop("size_in_bytes")
        paths[path["_path"]] = same
    return {
        **{key: record.get(key) for key in kept},
        "files": sorted(record["files"]),
        "paths": paths,
    }


async def install(channel: Path, target: Path, archives: tuple[Archive, ...]) -> None:
    """Let py-rattler index a folder, solve for all archives, and install them for /opt/env."""
    import rattler
    from rattler.index import index_fs

    await index_fs(channel, write_zst=False, write_shards=False, force=True)
    records = await rattler.solve(
        sources=[rattler.Channel(channel.as_uri())],
        specs=[archive.name for archive in archives],
        platforms=["linux-64", "noarch"],
    )
    await rattler.install(
        records,
        target_prefix=target,
        cache_dir=target.parent / "cache",
        alternative_target_prefix="/opt/env",
        show_progress=False,
    )


def hostile(**changes: Any) -> Archive:
    return replace(Archive(name="bad", files={"bin/a": b"a"}), **changes)


def member(
    path: str, kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = kind, target
    return entry, b""


HOSTILE = {
    "leads out of the prefix": hostile(files={"../../etc/passwd": b"a"}),
    "'/etc/passwd' leads out": hostile(
        files={"a": b"a"}, members=[member("/etc/passwd")], noted={"a": {"_path": "/etc/passwd"}}
    ),
    "place of a package's record": hostile(files={"conda-meta/other-1.0-0.json": b"{}"}),
    "another file than its own list says": hostile(
        noted={"bin/a": {"_path": "bin/a", "sha256": "0" * 64}}
    ),
    "is another file": hostile(noted={"bin/a": {"_path": "bin/a", "size_in_bytes": 5}}),
    "lists 'bin/b', which it does not hold": hostile(noted={"bin/a": {"_path": "bin/b"}}),
    "names a path twice": hostile(files={"a": b"", "b": b""}, noted={"b": {"_path": "a"}}),
    "no file, folder or link": hostile(
        members=[member("dev", tarfile.CHRTYPE)], files={"x": b""}, noted={"x": {"_path": "dev"}}
    ),
    "is another name of": hostile(
        members=[member("b", tarfile.LNKTYPE, "../../etc/shadow")],
        files={"x": b""},
        noted={"x": {"_path": "b"}},
    ),
    "built for a folder of 3 letters": hostile(
        noted={"bin/a": {"_path": "bin/a", "prefix_placeholder": "/op", "file_mode": "binary"}}
    ),
    "cannot be read": hostile(info={"info/paths.json": b"{"}),
    "cannot be read: Expected": hostile(info={"info/paths.json": b'{"paths": [1]}'}),
    "has no info/index.json": hostile(info={"info/index.json": b"LEFT OUT"}),
    "not what the lock says": hostile(
        info={"info/index.json": b'{"name": "x", "version": "1", "build": "0"}'}
    ),
    "the lock says": hostile(
        info={
            "info/index.json": b'{"name": "bad", "version": "1.0", "build": "h1_0", "noarch": "python"}'
        }
    ),
    "is not an entry point": hostile(
        noarch="python", subdir="noarch", entry_points=("../../x = a:b",)
    ),
    "not an entry point": hostile(
        noarch="python", subdir="noarch", entry_points=("x = a:b();import os",)
    ),
    "'bin/.bad-post-link.sh' is run": hostile(
        files={"payload": b"id"}, links={"bin/.bad-post-link.sh": "../payload"}
    ),
    "'python-scripts/.bad-pre-link.sh' is run": hostile(
        noarch="python", subdir="noarch", files={"python-scripts/.bad-pre-link.sh": b"id"}
    ),
    "'conda/./x' leads out": hostile(files={"conda/./x": b"a"}),
    "'site-packages/../../x' leads out": hostile(
        noarch="python", subdir="noarch", files={"site-packages/../../x": b"a"}
    ),
    "length <= 4096|5000 bytes|which no file system can hold": hostile(files={"a/" * 2500: b"a"}),
    "a path of 5000 bytes": hostile(links={"a": "b" * 5000}),
    "'.bad-post-link.sh = a:b' is not an entry point": hostile(
        noarch="python", subdir="noarch", entry_points=(".bad-post-link.sh = a:b",)
    ),
    "in a string that does not end": hostile(
        files={"bin/a": OLD + b"x" * (65 << 20)}, binary=("bin/a",)
    ),
}


class TestHostile:
    @pytest.mark.parametrize("why", HOSTILE)
    @pytest.mark.parametrize("old_format", [False, True])
    def test_is_refused(self, why: str, old_format: bool, tmp_path: Path) -> None:
        if old_format and "does not end" in why:
            pytest.skip("packing it takes long")
        with pytest.raises(IntegrityError, match=why) as raised:
            link(tmp_path, replace(HOSTILE[why], old_format=old_format))
        assert raised.value.where == f"bad-1.0-h1_0{'.tar.bz2' if old_format else '.conda'}"

    def test_another_archive_under_the_name(self, tmp_path: Path) -> None:
        other = msgspec.structs.replace(TOOL.write(tmp_path), sha256="0" * 64)
        with pytest.raises(IntegrityError, match="changed in the store"):
            link(tmp_path, TOOL, other)

    @pytest.mark.parametrize("old_format", [False, True])
    def test_cut_off_or_flipped(self, old_format: bool, tmp_path: Path) -> None:
        whole = replace(TOOL, old_format=old_format)
        data = whole.pack()
        folder = tmp_path / "whole"
        sound = without_records(link(folder, whole))
        for at in range(0, len(data), max(1, len(data) // 40)):
            for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
                try:
                    found = link(tmp_path, whole, data=broken)
                except IntegrityError:
                    continue
                # an end of zeros, or a time in a header, may be anything
                assert without_records(found) == sound

    def test_modules_for_an_environment_without_python(self, tmp_path: Path) -> None:
        with pytest.raises(IntegrityError, match="the environment has no Python"):
            link(tmp_path, MODULE, prefix=CondaPrefix(path="opt/env"))


class TestReplacing:
    def test_a_placeholder_of_one_letter_stands_everywhere(self) -> None:
        """Each place had its own step: a few kB took minutes."""
        data = b"a" * (1 << 20)
        pieces = list(replace_in_text((data,), b"a", b"/opt/env"))
        assert b"".join(pieces) == b"/opt/env" * len(data)
        assert len(pieces) < 1000

    def test_pieces_of_any_size_give_the_same(self) -> None:
        text = b"#!" + OLD + b"/bin/sh\n" + OLD + b"x" + OLD[:100] + OLD + b"\0" + OLD * 2 + b"tail"
        for replace_in in (replace_in_text, replace_in_binary):
            whole = b"".join(replace_in([text], OLD, b"/opt/env"))
            for size in (1, 7, 254, 255, 256, 1000):
                pieces = [text[at : at + size] for at in range(0, len(text), size)]
                assert b"".join(replace_in(pieces, OLD, b"/opt/env")) == whole
            assert OLD not in whole
        assert len(b"".join(replace_in_binary([text], OLD, b"/opt/env"))) == len(text)


def test_required_packages_come_first() -> None:
    def package(name: str, *via: str) -> CondaPackage:
        return Archive(name=name).locked(b"", via=via)

    packages = [
        package("a", "(direct)"),
        package("z", "a", "m"),
        package("m", "a"),
        package("pip", "python"),
        package("python", "pip", "m"),
    ]
    assert [one.name for one in install_order(packages)] == ["pip", "python", "z", "m", "a"]
    assert install_order(packages) == install_order(packages[::-1])
