"""Parsers of what an index, a source archive, an image and uv say, for fuzzing (see parsers.py)."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.base.facts import read_probe
from envbuild.base.oci.archive import DOCKER_FILE, OCI_FILE
from envbuild.base.oci.layers import Tree
from envbuild.base.oci.static import keep_file, read_static
from envbuild.base.reference import parse_reference
from envbuild.context import open_context
from envbuild.progress import Silent
from envbuild.resolve.conflict.explain import translate_failure
from envbuild.resolve.pylock import read_pylock
from envbuild.resolve.sources.metadata import headers, wheel_headers
from envbuild.resolve.sources.sdists import read_sdist
from envbuild.resolve.uv.query import read_origins
from envbuild.settings import load_settings
from tests.base.ociimages import dist, tar_of
from tests.base.test_base_archive import IMAGE, archive, saved
from tests.base.test_base_facts import output
from tests.base.test_base_static import a_python
from tests.support import ScriptedRunner


def unchanged(data: bytes) -> bytes:
    return data


@dataclass(frozen=True, kw_only=True)
class Parser:
    """``seeds`` makes sound inputs in an empty folder; ``read`` reads one; ``mend`` puts checksums right."""

    seeds: Callable[[Path], list[bytes]]
    read: Callable[[Path], object]
    mend: Callable[[bytes], bytes] = unchanged


def mend_tar(data: bytes) -> bytes:
    """Give every tar header its checksum, without which nothing else of it would be looked at."""
    raw = bytearray(data)
    for at in range(0, len(raw) - 511, 512):
        if raw[at + 257 : at + 262] == b"ustar":
            raw[at + 148 : at + 156] = b" " * 8
            raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
    return bytes(raw)


# --- source archives and metadata

INFORMATION = "Metadata-Version: 2.2\nName: a\nVersion: 1\nRequires-Dist: six>=1 ; extra == 'x'\n"
PROJECT = "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
SETUP = """\
import sys
from setuptools import setup
needs = ['six>=1', 'idna']
if sys.version_info < (3, 8):
    needs.append('typing; python_version < "3.8"')
with open('requirements.txt') as file:
    needs += file.read().split()
setup(name='a', version='1', install_requires=needs, extras_require={'x': ['docopt']})
"""
CONFIGURATION = "[metadata]\nname = a\n[options]\ninstall_requires =\n  six\n  file: more.txt\n"
MEMBERS = (
    {"PKG-INFO": INFORMATION, "pyproject.toml": PROJECT + "[project]\nname = 'a'\nversion = '1'\n"},
    {"PKG-INFO": INFORMATION.replace("2.2", "1.0"), "setup.py": SETUP, "requirements.txt": "numpy"},
    {"setup.cfg": CONFIGURATION, "setup.py": "from setuptools import setup\nsetup()\n"},
    {"pyproject.toml": PROJECT + "[tool.poetry.dependencies]\npython = '^3.8'\nsix = '^1.2'\n"},
    {"setup.py": SETUP, "a.egg-info/requires.txt": "six\n\n[x:python_version<'3']\ndocopt\n"},
)


def zip_of(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text * 3)
    return out.getvalue()


def source_archives(_: Path) -> list[bytes]:
    named = [{f"a-1/{name}": text for name, text in members.items()} for members in MEMBERS]
    tars = [tar_of(members).rstrip(b"\0") + bytes(1024) for members in named]
    return [*tars, gzip.compress(tars[0]), zip_of(named[1])]


def read_source(path: Path) -> object:
    is_zip = path.read_bytes().startswith(b"PK")
    return read_sdist(path, "a-1.zip" if is_zip else "a-1.tar.gz")


def wheel_files(_: Path) -> list[bytes]:
    return [zip_of({"a.py": "", "a-1.dist-info/METADATA": INFORMATION})]


def read_wheel_file(path: Path) -> None:
    with path.open("rb") as file:
        wheel_headers(file, "a-1-py3-none-any.whl")


def text_of(path: Path) -> str:
    return path.read_text("utf-8", "replace")


# --- what uv says

ANSWER = """\
lock-version = "1.0"
[[packages]]
name = "six"
version = "1.16.0"
index = "https://mirror.invalid/simple"
sdist = { url = "https://mirror.invalid/six-1.16.0.tar.gz", size = 9, hashes = { sha256 = "HASH" } }
wheels = [{ url = "https://mirror.invalid/six-1.16.0-py2.py3-none-any.whl", \
upload-time = 2021-05-05T14:18:17Z, size = 11053, hashes = { sha256 = "HASH" } }]
""".replace("HASH", "0" * 64)
NO_SOLUTION = """\
No solution found when resolving dependencies:
  Because six==1.0 depends on torch>=2,<3 and there are no versions of torch, we can conclude that
  you require nothing.
hint: `six` was filtered by `exclude-newer`
"""
NO_PAGE = """\
error: Failed to fetch: `https://user:pass@mirror.invalid/simple/six/`
  Caused by: HTTP status client error (404 Not Found) for url (https://mirror.invalid/simple/six/)
"""
NO_BUILD = """\
error: Failed to build `a==1`
  Package metadata name `a` does not match given name `b`
"""


def read_failure(path: Path) -> None:
    text = text_of(path)
    translate_failure(text)
    read_origins(text, {"default": "https://mirror.invalid/simple"})


# --- images

LAYER_FILES = {
    **a_python(),
    **dist("/usr/lib/python3/dist-packages", "six", "1.15.0"),
    "venv/pyvenv.cfg": "home = /usr/bin\n",
    "usr/lib/python3/dist-packages/a.pth": "# x\nimport os\n/opt/added\n",
    "usr/local/cuda/version.json": '{"cuda": {"version": "12.3.2"}}',
    "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n/opt/lib\n",
}


def read_files_of_image(path: Path) -> None:
    """Read the facts of an image from its layer's files, as the lock of a registry's base does."""
    tree = Tree(keep_file({}))
    tree.add_layer(path, None, number=0, where="image")
    read_probe(read_static(tree, {}, machine="x86_64", where="image"), image="image")


def read_image_file(path: Path) -> None:
    is_saved = b"manifest.json" in path.read_bytes()
    kind, form = ("docker-archive", DOCKER_FILE) if is_saved else ("oci-archive", OCI_FILE)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        settings = replace(load_settings({"HOME": folder}), store=Path(folder) / "store")
        reference = parse_reference(f"{kind}:{path}")
        form.read_image(reference, open_context(settings, ScriptedRunner({}), Silent()))


def image_files(folder: Path) -> list[bytes]:
    return [
        archive(IMAGE, folder).read_bytes(),
        saved(folder / "saved", "lab/app:1").read_bytes(),
    ]


INDEX_PARSERS = {
    "sdist": Parser(seeds=source_archives, read=read_source, mend=mend_tar),
    "wheel metadata": Parser(seeds=wheel_files, read=read_wheel_file),
    "metadata": Parser(
        seeds=lambda _: [INFORMATION.encode()], read=lambda path: headers(text_of(path))
    ),
    "uv's answer": Parser(
        seeds=lambda _: [ANSWER.encode()], read=lambda path: read_pylock(text_of(path))
    ),
    "uv's failure": Parser(
        seeds=lambda _: [text.encode() for text in (NO_SOLUTION, NO_PAGE, NO_BUILD)],
        read=read_failure,
    ),
    "files of an image": Parser(
        seeds=lambda _: [tar_of(LAYER_FILES)], read=read_files_of_image, mend=mend_tar
    ),
    "archive of an image": Parser(seeds=image_files, read=read_image_file, mend=mend_tar),
    "facts": Parser(
        seeds=lambda _: [output().encode()],
        read=lambda path: read_probe(text_of(path), image="image"),
    ),
}
