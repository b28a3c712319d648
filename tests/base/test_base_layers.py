"""Layers seen as one file system: against a real unpacking, whiteouts, links, damage."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.base.oci.layers import Tree
from envbuild.errors import IntegrityError
from tests.base.ociimages import Link, digest_of, tar_of

Files = dict[str, "bytes | str | Link | None"]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def merged(folder: Path, *layers: Files, packed: str | None = None) -> Tree:
    tree = Tree(lambda _path, _size: True)
    for number, files in enumerate(layers):
        tar = tar_of(files)
        path = folder / f"{number}.tar"
        path.write_bytes(PACKERS[packed](tar) if packed else tar)
        tree.add_layer(path, digest_of(tar), number=number, where="test")
    return tree


@pytest.mark.parametrize("packed", [None, "gzip", "zstd"])
def test_upper_layers_replace_and_hide(packed: str | None, tmp_path: Path) -> None:
    tree = merged(
        tmp_path,
        {
            "etc": None,
            "etc/a": "1",
            "etc/b": "1",
            "opt": None,
            "opt/old": "1",
            "opt/more": None,
            "opt/more/x": "1",
        },
        {"etc/a": "2", "etc/.wh.b": "", "opt/.wh..wh..opq": "", "opt/new": "2"},
        {"etc/b": "3"},
        packed=packed,
    )
    assert tree.read("/etc/a") == b"2"
    assert tree.read("/etc/b") == b"3"
    assert tree.names("/opt") == ["new"]
    assert tree.kind("/opt/more/x") is None


def test_a_whiteout_hides_lower_layers_only(tmp_path: Path) -> None:
    tree = merged(tmp_path, {"d/a": "1"}, {"d/b": "2", "d/.wh..wh..opq": "", "d/.wh.b": ""})
    assert tree.names("/d") == ["b"]


def test_a_folder_again_keeps_what_is_in_it_and_a_file_takes_its_place(tmp_path: Path) -> None:
    tree = merged(tmp_path, {"d": None, "d/a": "1"}, {"d": None})
    assert tree.names("/d") == ["a"]
    tree = merged(tmp_path, {"d": None, "d/a": "1"}, {"d": "file"})
    assert tree.read("/d") == b"file"
    assert tree.kind("/d/a") is None


def test_links_lead_inside_the_image_only(tmp_path: Path) -> None:
    tree = merged(
        tmp_path,
        {
            "usr/lib/x": "1",
            "lib": Link("usr/lib"),
            "up": Link("../../../usr/lib/x"),
            "loop": Link("loop"),
        },
        {"lib/y": "2", "abs": Link("/lib/x"), "../../escape": "3"},
    )
    assert tree.names("/usr/lib") == ["x", "y"]
    assert [tree.read(path) for path in ("/up", "/abs", "/escape")] == [b"1", b"1", b"3"]
    assert tree.real("/usr/lib/../../up") == "/usr/lib/x"
    assert tree.kind("/loop") is None
    assert tree.glob("/*/x") == ["/lib/x"]
    assert tree.glob("/usr/*/x") == ["/usr/lib/x"]


def test_layers_that_no_image_can_be_put_together_from_are_read_all_the_same(
    tmp_path: Path,
) -> None:
    tree = merged(tmp_path, {"a": "file", "b": "1"}, {"a/c": "2", "link": Link("gone")})
    assert tree.kind("/a") == "d"
    assert tree.read("/a/c") == b"2"
    assert tree.names("/") == ["a", "b", "link"]
    assert tree.kind("/link") is None


NAMES = st.sampled_from(["a", "b", "c"])
LAYER = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.one_of(st.binary(max_size=3), st.builds(Link, st.sampled_from(["a", "../b", "/a/b", "c"]))),
    max_size=5,
)


def without_clashes(files: dict[str, bytes | Link]) -> dict[str, bytes | Link]:
    """Leave out what stands below another entry of the same layer: no archiver writes that."""
    return {k: v for k, v in files.items() if not any(k.startswith(f"{o}/") for o in files)}


@given(st.lists(LAYER, min_size=1, max_size=2))
def test_what_is_seen_is_what_unpacking_gives(
    tmp_path_factory: pytest.TempPathFactory, layers: list[Files]
) -> None:
    """One layer without links on the way is what tar itself makes of it."""
    folder = tmp_path_factory.mktemp("law")
    first = without_clashes({k: v for k, v in layers[0].items() if isinstance(v, bytes)})
    tree = merged(folder, dict(first))
    with tarfile.open(fileobj=io.BytesIO(tar_of(dict(first)))) as tar:
        for member in tar.getmembers():
            target = folder / "root" / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            file = tar.extractfile(member)
            assert file is not None
            target.write_bytes(file.read())
    found = {str(p.relative_to(folder / "root")): p for p in (folder / "root").rglob("*")}
    for name, path in found.items():
        assert tree.kind(f"/{name}") == ("d" if path.is_dir() else "f")
        assert tree.read(f"/{name}") == (None if path.is_dir() else path.read_bytes())
    assert tree.names("/") == sorted(path.name for path in folder.glob("root/*"))


@given(LAYER, LAYER)
def test_any_two_layers_can_be_looked_through(
    tmp_path_factory: pytest.TempPathFactory, lower: Files, upper: Files
) -> None:
    tree = merged(tmp_path_factory.mktemp("law"), lower, upper)
    for path in (*lower, *upper):
        real = tree.real(f"/{path}")
        assert ".." not in real.split("/")
        if tree.kind(real) == "f":
            assert tree.read(f"/{path}") == tree.read(real)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda data: data[: len(data) // 2], "layer 1 is damaged: "),
        (lambda data: b"\x1f\x8b" + data[2:20], "layer 1 is damaged: "),
        (lambda data: gzip.compress(tar_of({"other": "1"})), "layer 1 holds other files than the image's configuration names"),
    ],
)  # fmt: skip
def test_damage_is_told(spoil: object, what: str, tmp_path: Path) -> None:
    tar = tar_of({f"file{n}": os.urandom(2000) for n in range(20)})
    path = tmp_path / "layer"
    assert callable(spoil)
    path.write_bytes(spoil(gzip.compress(tar)))
    with pytest.raises(IntegrityError) as caught:
        Tree(lambda _path, _size: False).add_layer(path, digest_of(tar), number=0, where="test")
    assert caught.value.what.startswith(what)
