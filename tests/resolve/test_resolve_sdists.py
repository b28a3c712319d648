from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import IntegrityError
from envbuild.resolve.sources.declared import egg_requires
from envbuild.resolve.sources.sdists import Declared, declared, read_sdist
from tests.resolve.conftest import sdist_bytes

EGG = "six>=1.10\n\n[:python_version < '3.8']\nimportlib-metadata\n\n[gpu]\ncupy>=9\n\n[docs:os_name == 'posix']\nsphinx\n"


def test_egg_info_sections_become_markers() -> None:
    assert egg_requires(EGG) == [
        "six>=1.10",
        "importlib-metadata ; (python_version < '3.8')",
        'cupy>=9 ; extra == "gpu"',
        "sphinx ; (os_name == 'posix') and extra == \"docs\"",
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "PKG-INFO": "Name: a\nRequires-Dist: six\nRequires-Python: >=3.6\n\nText\nRequires-Dist: not-this\n"
            },
            Declared(
                requires=("six",),
                build=("setuptools", "wheel"),
                read_from="pkg-info",
                requires_python=">=3.6",
            ),
        ),
        (
            {
                "PKG-INFO": "Name: a\n",
                "src/a.egg-info/requires.txt": "six\n",
                "a.egg-info/PKG-INFO": "Name: a\n",
            },
            Declared(requires=("six",), build=("setuptools", "wheel"), read_from="egg-info"),
        ),
        (
            {"PKG-INFO": "Name: a\n", "a.egg-info/PKG-INFO": "Name: a\n"},
            Declared(requires=(), build=("setuptools", "wheel"), read_from="egg-info"),
        ),
        (
            {
                "pyproject.toml": '[project]\ndependencies = ["six", 3, "broken >>> 1"]\n'
                '[build-system]\nrequires = ["hatchling >= 1.24"]\n'
            },
            Declared(requires=("six",), build=("hatchling>=1.24",), read_from="pyproject"),
        ),
        (
            {"pyproject.toml": "[tool.black]\nline-length = 100\n", "PKG-INFO": "Name: a\n"},
            Declared(requires=(), build=("setuptools", "wheel"), read_from="none"),
        ),
        (
            {"pyproject.toml": "this = is not TOML"},
            Declared(requires=(), build=("setuptools", "wheel"), read_from="none"),
        ),
        (
            {"pyproject.toml": 'project = 1\nbuild-system = "x"\n'},
            Declared(requires=(), build=("setuptools", "wheel"), read_from="none"),
        ),
    ],
    ids=[
        "pkg-info",
        "egg-info",
        "egg-info without requirements",
        "pyproject",
        "none",
        "broken",
        "wrong types",
    ],
)
def test_what_an_sdist_declares(files: dict[str, str], expected: Declared, tmp_path: Path) -> None:
    assert declared(files, "a-1.tar.gz") == expected
    path = tmp_path / "file"
    path.write_bytes(sdist_bytes("a-1", files))
    assert read_sdist(path, "a-1.tar.gz") == expected
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"a-1/{name}", text)
    assert read_sdist(path, "a-1.zip") == expected


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_every_packing_of_a_tar_is_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "file"
    files = {"pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndependencies = ["six"]\n'}
    path.write_bytes(pack(gzip.decompress(sdist_bytes("a-1", files))))
    assert read_sdist(path, "a-1.tar").requires == ("six",)


def test_an_archive_without_a_top_folder_is_read(tmp_path: Path) -> None:
    """So NVIDIA packs its placeholders of DALI."""
    path = tmp_path / "a-1.tar.gz"
    text = '[build-system]\nrequires = ["nvidia-stub"]\nbuild-backend = "nvidia_stub.buildapi"\n'
    path.write_bytes(sdist_bytes(".", {"pyproject.toml": text, "PKG-INFO": "Name: a\n"}))
    found = read_sdist(path, path.name)
    assert found.stub == "a placeholder without files of its own (built by nvidia-stub)"


def test_files_elsewhere_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a-1.tar.gz"
    path.write_bytes(
        sdist_bytes(
            "a-1",
            {
                "tests/data/PKG-INFO": "Requires-Dist: evil\n",
                "x/y/z/q.egg-info/requires.txt": "evil",
            },
        )
    )
    assert read_sdist(path, path.name).requires == ()


def test_links_and_paths_upwards_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "a-1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("a-1/PKG-INFO")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        up = tarfile.TarInfo("../PKG-INFO")
        up.size = 19
        archive.addfile(up, io.BytesIO(b"Requires-Dist: evil"))
    assert read_sdist(path, path.name).read_from in ("none", "pkg-info", "packed")
    assert not (tmp_path.parent / "PKG-INFO").exists()


@pytest.mark.parametrize("name", ["a-1.tar.gz", "a-1.zip", "a-1.tar.bz2"])
@pytest.mark.parametrize(
    "data",
    [b"", b"not an archive", sdist_bytes("a-1", {"PKG-INFO": "x" * 4000})[:60]],
    ids=["empty", "text", "cut off"],
)
def test_broken_archive(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        read_sdist(path, name)
    assert str(caught.value).startswith(f"{name}: is not a readable source archive: ")
