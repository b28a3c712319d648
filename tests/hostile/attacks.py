"""Attacks on parsers as data: each writes a small file and reads it as envbuild does.

``ATTACKS`` maps a name to a function of an empty folder; what it does must end in an error of envbuild's own, within
the memory and the time that a small input may take.
"""

from __future__ import annotations

import hashlib
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from envbuild.base.oci.layers import Tree
from envbuild.build.conda.link import link_package
from envbuild.build.conda.prefix import CondaPrefix
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.packages.from_wheel import unpack_wheel
from envbuild.bundle.model import TABLE
from envbuild.bundle.unpack import unpack as unpack_bundle
from envbuild.errors import EnvbuildError, IntegrityError
from envbuild.formats.block_codec import Codec, unpack_block
from envbuild.formats.file_tree import Part, TreeEntry, merge_parts
from envbuild.formats.oci import read_config, read_document
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.lock.read import parse_lock
from envbuild.parts.from_layer import fill_layer
from envbuild.parts.from_tar import tar_contents
from envbuild.parts.writer import PartWriter
from envbuild.resolve.conflict.explain import translate_failure
from envbuild.resolve.sources.sdists import read_sdist
from envbuild.store.layout import Store
from tests.conda.archives import PLACEHOLDER, Archive
from tests.hostile import squash
from tests.hostile.index_parsers import read_image_file

ZSTD = Codec(compressor="zstd", level=1, library="here")
GIB, MIB = 1 << 30, 1 << 20
SCHEME = Scheme(
    site="usr/lib/python3.11/site-packages", prefix="usr", version="3.11", python="usr/bin/python3"
)
Attack = Callable[[Path], object]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


# --- layers and other tars


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def header(name: str = "file", kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(records: dict[str, str], kind: bytes = tarfile.XHDTYPE) -> bytes:
    body = b""
    for key, value in records.items():
        rest = f" {key}={value}\n".encode()
        size = len(rest) + len(str(len(rest) + len(str(len(rest)))))
        body += str(size).encode() + rest
    return header("pax", kind, len(body)) + body + bytes(-len(body) % 512)


def packed(path: Path, pieces: Iterable[bytes]) -> Path:
    """Write a layer, packed by zstd as a stream."""
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as out:
        for piece in pieces:
            out.write(piece)
        out.write(bytes(1024))
    assert path.stat().st_size < 16 * MIB
    return path


def read_layer(path: Path) -> None:
    """Read a layer both ways: as lock does, and as make does."""
    try:
        Tree(lambda _name, _size: True).add_layer(path, None, number=0, where="image")
    finally:
        pack_layer(path)


def pack_layer(path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, path.with_suffix(".blob").open("wb") as out:
        writer = PartWriter(out, codec=ZSTD, pool=pool)
        fill_layer(writer, path, None, where="image")
        writer.finish("k")


def layer(*pieces: bytes) -> Attack:
    return lambda folder: read_layer(packed(folder / "layer", pieces))


def image(*pieces: bytes) -> Attack:
    """An image is made of a layer that can be read, and whose tree no image can hold."""

    def make_image(folder: Path) -> None:
        path = packed(folder / "layer", pieces)
        with ThreadPoolExecutor(1) as pool, (folder / "blob").open("w+b") as blob:
            writer = PartWriter(blob, codec=ZSTD, pool=pool)
            fill_layer(writer, path, None, where="image")
            part = writer.finish("k", layer=True)
            copied = [(part, lambda _handle, _at: None)]
            write_squashfs(blob, merge_parts([part]), copied, epoch=0, compressor="zstd")

    return make_image


def attribute(name: str, value: str = "") -> bytes:
    return pax({f"SCHILY.xattr.{name}": value})


def owned(user: int) -> bytes:
    info = tarfile.TarInfo(f"file{user}")
    info.uid = user
    return info.tobuf(tarfile.GNU_FORMAT)


def device(major: int, minor: int) -> bytes:
    info = tarfile.TarInfo("dev/disk")
    info.type, info.devmajor, info.devminor = tarfile.BLKTYPE, major, minor
    return info.tobuf(tarfile.GNU_FORMAT)


def zeros(size: int, *, first: bytes = b"") -> Iterable[bytes]:
    yield first
    for _ in range(size // MIB):
        yield bytes(MIB)


@attack
def layer_pax_header_of_a_gigabyte(folder: Path) -> None:
    read_layer(packed(folder / "layer", zeros(GIB, first=header("pax", tarfile.XHDTYPE, GIB))))


@attack
def layer_long_name_of_a_gigabyte(folder: Path) -> None:
    read_layer(
        packed(
            folder / "layer",
            zeros(GIB, first=header("././@LongLink", tarfile.GNUTYPE_LONGNAME, GIB)),
        )
    )


@attack
def layer_headers_for_all_members(folder: Path) -> None:
    text = "x" * (MIB - 100)
    read_layer(
        packed(
            folder / "layer", (pax({f"k{n}": text}, tarfile.XGLTYPE) + header() for n in range(700))
        )
    )


@attack
def layer_chain_of_headers(folder: Path) -> None:
    read_layer(packed(folder / "layer", (pax({"comment": "x"}) for _ in range(5000))))


@attack
def layer_deep_path(folder: Path) -> None:
    read_layer(packed(folder / "layer", [pax({"path": "a/" * 20_000 + "x"}), header()]))


@attack
def layer_many_deep_paths(folder: Path) -> None:
    names = (f"{number}/{'/'.join(['abcdefghijklmn'] * 250)}" for number in range(2000))
    read_layer(packed(folder / "layer", (pax({"path": name}) + header() for name in names)))


@attack
def layers_that_imply_folders_without_end(_folder: Path) -> None:
    deep = "/".join(["abcdefghijklmn"] * 250)
    entries = tuple(TreeEntry(f"{number}/{deep}", "f", 0o644) for number in range(2000))
    merge_parts([Part(key="k", entries=entries, fragments=(), size=4096, sha256="", layer=True)])


@attack
def layer_member_with_holes(folder: Path) -> None:
    told = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(20 * GIB)}
    read_layer(
        packed(folder / "layer", [pax(told), header(size=512), b"1\n0\n0\n".ljust(512, b"\0")])
    )


@attack
def layer_map_of_holes(folder: Path) -> None:
    told = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    pieces = [
        pax(told),
        header(size=GIB),
        b"999999999\n",
        *(b"0\n" * (MIB // 2) for _ in range(64)),
    ]
    read_layer(packed(folder / "layer", pieces))


@attack
def layer_unpacks_without_end(folder: Path) -> None:
    read_layer(packed(folder / "layer", [pax({"size": str(20 * GIB)}), header(), bytes(MIB)]))


ATTACKS |= {
    "layer_old_sparse": layer(header(kind=tarfile.GNUTYPE_SPARSE, size=1)),
    "layer_time_that_is_no_number": layer(pax({"mtime": "nan"}), header()),
    "layer_time_without_end": layer(pax({"mtime": "inf"}), header()),
    "layer_negative_size": layer(pax({"size": "-1048576"}), header(), header("b")),
    "layer_user_too_large": layer(pax({"uid": str(2**70)}), header()),
    "layer_mark_that_hides_its_folder": layer(header("a/.wh..")),
    "layer_mark_that_hides_the_folder_above": layer(header("a/.wh...")),
    "layer_name_of_300_bytes": layer(pax({"path": "n" * 300}), header()),
    "layer_name_that_is_no_text": layer(header("fi\udcffe")),
    "layer_root_that_is_a_file": image(header(".")),
    "layer_root_that_is_a_link": image(header("./", tarfile.SYMTYPE)),
    "layer_root_that_is_a_pipe": image(header("a/../..", tarfile.FIFOTYPE)),
    "layer_device_of_no_linux": image(device(2**50, 2**50)),
    "layer_device_below_zero": image(device(-1, -5)),
    "layer_attribute_of_a_long_name": image(attribute("user." + "n" * 70_000), header()),
    "layer_attribute_of_a_megabyte": image(attribute("user.a", "v" * 900_000), header()),
    "layer_files_of_70000_owners": image(*map(owned, range(70_000))),
    "layer_files_of_66000_attributes": image(
        *(attribute("user.a", str(n)) + header(f"file{n}") for n in range(66_000))
    ),
}


@attack
def layer_garbage_behind_gzip(folder: Path) -> None:
    (folder / "layer").write_bytes(b"\x1f\x8b\x08" + b"garbage" * 100)
    read_layer(folder / "layer")


@attack
def layer_garbage_behind_zstd(folder: Path) -> None:
    (folder / "layer").write_bytes(b"\x28\xb5\x2f\xfd" + b"garbage" * 100)
    read_layer(folder / "layer")


@attack
def files_with_holes(folder: Path) -> None:
    told = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(20 * GIB)}
    (folder / "tar").write_bytes(pax(told) + header(size=512) + b"1\n0\n0\n".ljust(1536, b"\0"))
    list(tar_contents(folder / "tar", sha256(folder / "tar")))


# --- OCI documents


ATTACKS |= {
    "config_nested_deep": lambda _: read_config(b'{"a":' * 100_000, where="image"),
    "config_list_nested_deep": lambda _: read_config(b'{"a":' + b"[" * 200_000, where="image"),
    "manifest_nested_deep": lambda _: read_document(b'{"a":' + b"[" * 200_000, "", where="image"),
}


# --- conda packages


def conda(folder: Path, **changes: Any) -> None:
    """Link a package with something wrong in it."""
    archive = replace(Archive(name="bad"), **changes)
    data = archive.pack()
    assert len(data) < 16 * MIB
    path = folder / archive.file
    path.write_bytes(data)
    with ThreadPoolExecutor(1) as pool, (folder / "blob").open("wb") as blob:
        writer = PartWriter(blob, codec=ZSTD, pool=pool)
        lock = archive.locked(data)
        link_package(path, lock, CondaPrefix(path="opt/env", python="3.12"), writer)
        merge_parts([writer.finish("k")])


ATTACKS |= {
    "conda_paths_over_the_limit": lambda folder: conda(
        folder, info={"info/paths.json": bytes(64 * MIB + 1)}
    ),
    "conda_paths_of_many_small_ones": lambda folder: conda(
        folder, info={"info/paths.json": b'{"paths":[' + b'{"_path":"a"},' * (4 * MIB) + b"]}"}
    ),
    "conda_files_of_many_lines": lambda folder: conda(
        folder, info={"info/paths.json": b"LEFT OUT", "info/files": b"a\n" * (30 * MIB)}
    ),
    "conda_files_of_many_form_feeds": lambda folder: conda(
        folder, info={"info/paths.json": b"LEFT OUT", "info/files": b"a\x0c" * (30 * MIB)}
    ),
    "conda_prefixes_of_many_form_feeds": lambda folder: conda(
        folder, info={"info/paths.json": b"LEFT OUT", "info/has_prefix": b"a\x1c" * (30 * MIB)}
    ),
    "conda_path_without_end": lambda folder: conda(
        folder, info={"info/paths.json": b'{"paths":[{"_path":"' + b"a" * (60 * MIB) + b'"}]}'}
    ),
    "conda_prefix_with_open_quote": lambda folder: conda(
        folder, info={"info/paths.json": b"LEFT OUT", "info/has_prefix": b"'a"}
    ),
    "conda_link_that_is_a_folder_too": lambda folder: conda(
        folder, links={"lib": "/etc"}, files={"lib/passwd": b"x"}
    ),
    "conda_file_that_is_a_folder_too": lambda folder: conda(
        folder, files={"lib": b"x", "lib/passwd": b"x"}
    ),
    "conda_link_that_leads_through_parents": lambda folder: conda(
        folder, links={"a/../../etc/x": "b"}
    ),
    "conda_placeholder_of_one_letter": lambda folder: conda(
        folder,
        files={"a": b"a" * (3 * MIB)},
        noted={
            "a": {
                "_path": "a",
                "path_type": "hardlink",
                "prefix_placeholder": "a",
                "file_mode": "binary",
            }
        },
    ),
    "conda_index_nested_deep": lambda folder: conda(
        folder, info={"info/index.json": b'{"a":' * 200_000}
    ),
    "conda_string_without_end": lambda folder: conda(
        folder, files={"a": PLACEHOLDER.encode() + b"a" * (65 * MIB)}, binary=("a",)
    ),
}


# --- what uv says of an index


def uv_says(*pieces: str) -> Attack:
    """Return what explains a failure in which an index had its say."""

    def explain(_: Path) -> None:
        text = "".join(pieces)
        error = translate_failure(text)
        if not isinstance(error, EnvbuildError):
            error = IntegrityError("explained")
        raise IntegrityError(str(error)[:100])

    return explain


FOUND_NONE = "No solution found when resolving dependencies:\n  Because "
ATTACKS |= {
    "uv_word_without_end": uv_says(FOUND_NONE, "a" * MIB, "==1 depends on torch"),
    "uv_braces_without_end": uv_says(FOUND_NONE, "{ " * MIB),
    "uv_markers_without_end": uv_says(FOUND_NONE, "a[" * MIB, " depends on b["),
    "uv_versions_without_end": uv_says(FOUND_NONE, "`a==1 " * MIB),
    "uv_names_that_do_not_match": uv_says("error: ", "Package metadata name `a` " * MIB),
}


# --- wheels


def wheel(
    folder: Path,
    files: dict[str, bytes | int],
    *,
    name: str = "demo",
    at: int = 0,
    put: bytes = b"",
) -> None:
    """Unpack a wheel of these files; a number stands for so many zeros.

    ``put`` is written ``at`` this place of each row of the zip's table.
    """
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    told: dict[str, bytes | int] = {
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/RECORD": "".join(f"{member},,\n" for member in files).encode(),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in (told | files).items():
            info_of = zipfile.ZipInfo(member)
            info_of.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info_of, "w", force_zip64=True) as out:
                for piece in zeros(content) if isinstance(content, int) else [content]:
                    out.write(piece)
    assert path.stat().st_size < 16 * MIB
    first, *rows = path.read_bytes().split(TABLE_ROW)
    changed = (row[: at - 4] + put + row[at - 4 + len(put) :] if put else row for row in rows)
    path.write_bytes(TABLE_ROW.join([first, *changed]))
    with ThreadPoolExecutor(1) as pool, (folder / "blob").open("wb") as blob:
        unpack_wheel(
            path, path.name, SCHEME, PartWriter(blob, codec=ZSTD, pool=pool), sha256=sha256(path)
        )


TABLE_ROW = b"PK\x01\x02"


def deflated_wheel(files: dict[str, bytes | int]) -> Attack:
    return lambda folder: wheel(folder, files)


ATTACKS |= {
    "wheel_script_of_a_gigabyte": deflated_wheel({"demo-1.0.data/scripts/x": GIB}),
    "wheel_record_of_half_a_gigabyte": deflated_wheel({"demo-1.0.dist-info/RECORD": GIB // 2}),
    "wheel_record_of_many_rows": deflated_wheel(
        {"demo-1.0.dist-info/RECORD": b"a,,\n" * (12 * MIB)}
    ),
    "wheel_entry_points_of_half_a_gigabyte": deflated_wheel(
        {"demo-1.0.dist-info/entry_points.txt": GIB // 2}
    ),
    "wheel_entry_points_without_number": deflated_wheel(
        {
            "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\n"
            + b"".join(b"a%d=b:c\n" % n for n in range(90_000))
            + b"!"
        }
    ),
    "wheel_unknown_scheme": deflated_wheel({"demo-1.0.data/nowhere/x": b"x"}),
    "wheel_newline_in_a_name": deflated_wheel({"demo/a\nb.py": b"x"}),
    "wheel_name_of_300_bytes": deflated_wheel({f"demo/{'n' * 300}.py": b"x"}),
    "wheel_command_that_leads_out": deflated_wheel(
        {"demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\n../../etc/cron.d/x = a:b\n"}
    ),
    "wheel_command_with_a_line_of_code": deflated_wheel(
        {"demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\nx = os:system('id')\n"}
    ),
    "wheel_encrypted_members": lambda folder: wheel(folder, {}, at=8, put=b"\x01"),
    "wheel_members_in_one_place": lambda folder: wheel(folder, {}, at=42, put=bytes(4)),
    "wheel_deep_path": deflated_wheel({"a/" * 20_000 + "x": b"x"}),
}


# --- SIF partitions


def read_system(folder: Path, data: bytes) -> None:
    assert len(data) < 17 * MIB
    path = folder / "image"
    path.write_bytes(data)
    with closing(SquashImage(path, 0, len(data))) as image, ThreadPoolExecutor(1) as pool:
        read_tree(image, pool)


ATTACKS |= {
    "sif_fragment_table_of_one_block": lambda folder: read_system(
        folder, squash.one_block_table(2_000_000)
    ),
    "sif_folders_of_folders": lambda folder: read_system(folder, squash.folders_of_folders(3, 256)),
    "sif_file_of_holes": lambda folder: read_system(folder, squash.holes(2_000_000)),
    "sif_huge_listing": lambda folder: read_system(folder, squash.huge_listing(3 << 30)),
    "sif_folder_that_holds_itself": lambda folder: read_system(folder, squash.circle()),
    "sif_two_files_of_one_name": lambda folder: read_system(folder, squash.twice()),
    "sif_block_that_says_it_is_huge": lambda _: unpack_block(
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + bytes(40), "zstd", 131072
    ),
}


# --- bundles


def bundle(
    folder: Path, members: list[dict[str, object]], *rest: bytes, raw: bytes | None = None
) -> None:
    told = {
        "schema": 1,
        "name": "small",
        "lock": "sha256:" + "0" * 64,
        "envbuild": "0",
        "python": "",
    }
    table = raw if raw is not None else msgspec.json.encode({**told, "members": members})
    path = folder / "b.tar"
    first = header(f"small/{TABLE}", size=len(table)) + table + bytes(-len(table) % 512)
    path.write_bytes(first + b"".join(rest) + bytes(1024))
    unpack_bundle(path, Store(folder / "store"), folder / "project")


@attack
def bundle_table_nested_deep(folder: Path) -> None:
    bundle(folder, [], raw=b"[" * 200_000)


@attack
def bundle_recipe_with_holes(folder: Path) -> None:
    size = 20 * MIB
    member = {"path": "recipes/small.toml", "size": size, "sha256": "0" * 64, "use": "project"}
    told = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    body = b"1\n0\n0\n".ljust(512, b"\0")
    bundle(folder, [member], pax(told), header("small/recipes/small.toml", size=512), body)


@attack
def bundle_recipe_of_gigabytes(folder: Path) -> None:
    size = 200 * GIB
    member = {"path": "recipes/small.toml", "size": size, "sha256": "0" * 64, "use": "project"}
    bundle(folder, [member], pax({"size": str(size)}), header("small/recipes/small.toml"))


@attack
def bundle_header_of_gigabytes(folder: Path) -> None:
    path = folder / "b.tar"
    with path.open("wb") as file:
        file.write(header("pax", tarfile.XHDTYPE, (1 << 33) - 1))
        file.truncate(20 * GIB)  # a sparse file: it takes no room on the disk
    unpack_bundle(path, Store(folder / "store"), folder / "project")


# --- source archives


def source_archive(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.write_bytes(data)
    read_sdist(path, name)


def old_lzma_of_gigabytes() -> bytes:
    # its header is the properties, the dictionary's bytes and the content's, -1 for unknown
    header = struct.pack("<BIq", 0x5D, 2**32 - 1, -1)
    return header + lzma.compress(bytes(1000), lzma.FORMAT_ALONE)[13:]


def xz_of_gigabytes() -> bytes:
    data = bytearray(lzma.compress(bytes(10 * 1024)))
    # the first block's header is at byte 12; its last property is the dictionary: 40 is 4 GiB - 1
    block = data[12 : 12 + 8]
    block[4] = 40
    data[12 : 12 + 12] = block + struct.pack("<I", zlib.crc32(block))
    return bytes(data)


def image_archive(folder: Path, data: bytes) -> None:
    path = folder / "image.tar"
    path.write_bytes(data)
    read_image_file(path)


ATTACKS |= {
    "source_archive_whose_old_lzma_asks_for_gigabytes": lambda folder: source_archive(
        folder, "a-1.tar.gz", old_lzma_of_gigabytes()
    ),
    "source_archive_whose_xz_asks_for_gigabytes": lambda folder: source_archive(
        folder, "a-1.tar.xz", xz_of_gigabytes()
    ),
    "image_archive_whose_old_lzma_asks_for_gigabytes": lambda folder: image_archive(
        folder, old_lzma_of_gigabytes()
    ),
    "image_archive_whose_xz_asks_for_gigabytes": lambda folder: image_archive(
        folder, xz_of_gigabytes()
    ),
}


# --- locks

ATTACKS |= {
    "lock_key_of_many_parts": lambda _: parse_lock(".".join("a" * 1_000_000) + " = 1\n", "lock"),
    "lock_table_of_many_parts": lambda _: parse_lock(
        "[" + " . ".join(['"a"'] * 300_000) + "]\n", "lock"
    ),
    "lock_nested_lists": lambda _: parse_lock("a = " + "[" * 100_000 + "]" * 100_000, "lock"),
    "lock_nested_tables": lambda _: parse_lock("a = " + "{a = " * 50_000, "lock"),
}
