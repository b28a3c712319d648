"""conda channels for tests: real packages of py-rattler-build, indexed by rattler, served on 127.0.0.1."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

import zstandard

from tests.support import http_server

PLACEHOLDER = "/opt/conda_" + "placeholder_" * 20
"""A prefix of 251 bytes, as build tools write it into files."""
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Package:
    """One package; ``files`` are contents by path, those of "info/…" of the archive's own folder.

    ``executable`` are paths of programs; ``uploaded`` is the day that the channel says.
    """

    name: str
    version: str = "1.0"
    build: str = "0"
    number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    subdir: str = "linux-64"
    noarch: Literal["python", "generic"] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    executable: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    license: str | None = "MIT"
    uploaded: str = "2026-01-01"
    old_format: bool = False

    @property
    def file(self) -> str:
        """The name of its archive."""
        ending = ".tar.bz2" if self.old_format else ".conda"
        return f"{self.name}-{self.version}-{self.build}{ending}"


def make_channel(
    folder: Path,
    packages: Sequence[Package],
    *,
    change: Callable[[str, Record], None] | None = None,
    shards: bool = False,
    compressed: bool = True,
) -> Path:
    """Make a channel of packages in a folder and return it.

    ``change`` is called with each subdir and its repodata, to make what no builder would write.
    """
    for package in packages:
        assemble(package, folder)
    for subdir in ("linux-64", "linux-aarch64", "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    index(folder, shards=shards)
    uploaded = {package.file: package for package in packages}
    for repodata in folder.glob("*/repodata.json"):
        data = json.loads(repodata.read_text())
        _put_times_and_flags(data, uploaded)
        if change is not None:
            change(repodata.parent.name, data)
        text = json.dumps(data, indent=1, sort_keys=True).encode()
        repodata.write_bytes(text)
        if compressed:
            (repodata.parent / "repodata.json.zst").write_bytes(zstandard.compress(text))
    return folder


def assemble(package: Package, channel: Path) -> Path:
    """Make one archive below a channel; equal packages are made once for each machine."""
    target = channel / package.subdir / package.file
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = _cache() / hashlib.sha256(repr(package).encode()).hexdigest()[:32] / package.file
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            made = _assemble(package, Path(work))
            made.replace(kept)
    shutil.copyfile(kept, target)
    return target


def _assemble(package: Package, work: Path) -> Path:
    from rattler_build import ArchiveType, assemble_package

    staged = work / "staged"
    staged.mkdir()
    for path, content in package.files.items():
        place = staged / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755 if path in package.executable else 0o644)
    for path, target in package.links.items():
        place = staged / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    day = datetime.fromisoformat(package.uploaded).replace(tzinfo=timezone.utc)
    made = assemble_package(
        package.name,
        package.version,
        package.subdir,
        package.build,
        work / "made",
        files_dir=staged,
        license=package.license,
        depends=package.depends,
        constrains=package.constrains,
        build_number=package.number,
        noarch=package.noarch,
        archive_type=ArchiveType.TarBz2 if package.old_format else ArchiveType.Conda,
        timestamp=day,
        compression_level=1,
    )
    return made.path


def _cache() -> Path:
    return Path(tempfile.gettempdir()) / f"envbuild-test-conda-{os.getuid()}"


def index(folder: Path, *, shards: bool = False) -> None:
    """Write the repodata of a channel with rattler's own indexer."""
    from rattler.index import index_fs

    asyncio.run(index_fs(folder, write_zst=False, write_shards=shards, force=True))


def _put_times_and_flags(data: Record, packages: Mapping[str, Package]) -> None:
    """Take the day of upload from the package; one with flags is a record of the third revision."""
    for group in ("packages", "packages.conda"):
        for file, record in list(data[group].items()):
            record.pop("indexed_timestamp", None)
            package = packages[file]
            if package.flags:
                named = file.removesuffix(".conda")
                newer = data.setdefault("v3", {}).setdefault("conda", {})
                newer[named] = {**record, "flags": list(package.flags)}
                del data[group][file]


@contextmanager
def serve(folder: Path, *, token: str | None = None, scheme: str = "Bearer") -> Iterator[Served]:
    """Serve a folder of channels on 127.0.0.1; with a token only to who sends it as a bearer."""
    asked: list[str] = []
    sent: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            asked.append(self.path)
            if token and self.headers.get("Authorization") != f"{scheme} {token}":
                self.send_error(401)
                return
            super().do_GET()

        def do_HEAD(self) -> None:
            asked.append(f"HEAD {self.path}")
            if token and self.headers.get("Authorization") != f"{scheme} {token}":
                self.send_error(401)
                return
            super().do_HEAD()

        def send_response(self, code: int, message: str | None = None) -> None:
            if self.command == "GET" and code == HTTPStatus.OK:
                sent.append(self.path)
            super().send_response(code, message)

    with http_server(Handler) as url:
        yield Served(url=url, asked=asked, sent=sent)


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server of channels: its address, the paths it was asked for, and those that it sent whole."""

    url: str
    asked: list[str]
    sent: list[str]


def python_package(version: str = "3.12.4") -> Package:
    """Return a Python that only has its name: enough to solve against, not to run."""
    minor = version.rpartition(".")[0]
    return Package(
        name="python",
        version=version,
        build="h1_0_cpython",
        files={f"bin/python{minor}": b"#!/bin/sh\nexit 0\n"},
        links={"bin/python": f"python{minor}", "bin/python3": f"python{minor}"},
        executable=(f"bin/python{minor}",),
        license="Python-2.0",
    )


def pure_package(name: str, version: str, *depends: str, uploaded: str = "2026-01-01") -> Package:
    """Return a noarch Python package with one module and a program."""
    info = f"site-packages/{name}-{version}.dist-info"
    return Package(
        name=name,
        version=version,
        build="pyhd8ed1ab_0",
        depends=("python >=3.9", *depends),
        subdir="noarch",
        noarch="python",
        files={
            f"site-packages/{name}/__init__.py": f'__version__ = "{version}"\n'.encode(),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        },
        uploaded=uploaded,
    )


CUDA_VERSIONS = ("11.8", "12.4", "12.6", "12.8", "12.9", "13.0")


def cuda_packages() -> list[Package]:
    """Return a GPU framework as the field has it: CPU and CUDA builds, told apart by build string.

    ``cuda-version`` binds the driver's CUDA as the real one does: any of its own family will do.
    """
    found = [
        Package(
            name="cuda-version",
            version=version,
            build="h1_3",
            subdir="noarch",
            noarch="generic",
            constrains=(f"cudatoolkit {version}.*", f"__cuda >={version.partition('.')[0]}"),
        )
        for version in CUDA_VERSIONS
    ]
    for python, after in (("3.11", "3.12"), ("3.12", "3.13")):
        tag = "py" + python.replace(".", "")
        own = f"python >={python},<{after}.0a0"
        found.append(
            Package(
                name="pytorch",
                version="2.7.1",
                build=f"cpu_generic_{tag}_h1_0",
                depends=(own, "numpy >=1.19,<3"),
                constrains=("pytorch-cpu 2.7.1", "pytorch-gpu <0.0a0"),
                license="BSD-3-Clause",
            )
        )
        for cuda in ("11.8", "12.6", "12.9", "13.0"):
            major, short = cuda.partition(".")[0], cuda.replace(".", "")
            found.append(
                Package(
                    name="pytorch",
                    version="2.7.1",
                    build=f"cuda{short}_generic_{tag}_h1_200",
                    number=200,
                    depends=(
                        own,
                        "numpy >=1.19,<3",
                        "__cuda",
                        f"cuda-version >={cuda},<{int(major) + 1}",
                        f"libcublas >={cuda},<{int(major) + 1}",
                    ),
                    license="BSD-3-Clause",
                )
            )
        found.append(
            Package(
                name="numpy",
                version="1.26.4",
                build=f"{tag}_0",
                depends=(own,),
                license="BSD-3-Clause",
            )
        )
    found += [
        Package(
            name="libcublas",
            version=f"{version}.1",
            build="h1_0",
            depends=(f"cuda-version >={version},<{version}.999",),
            license="LicenseRef-NVIDIA-End-User-License-Agreement",
        )
        for version in CUDA_VERSIONS
    ]
    return found


def flagged_packages() -> list[Package]:
    """Return a framework whose builds are told apart by flag, and one bound to the card."""
    return [
        Package(name="flagged", build="h_c", flags=("cpu",)),
        Package(name="flagged", build="h_g", number=1, flags=("cuda",), depends=("__cuda >=12",)),
        Package(name="kernels", build="sm75", number=1, depends=("__cuda_arch >=7.5",)),
        Package(name="kernels", build="sm90", number=2, depends=("__cuda_arch >=9.0",)),
    ]


def other_packages() -> list[Package]:
    """Return an environment without Python, a cycle, and a set that has no solution."""
    return [
        Package(name="r-base", version="4.4.1", depends=("libthing",), license="GPL-2.0-or-later"),
        Package(name="libthing", version="2.1"),
        Package(name="samtools", version="1.21", depends=("libthing >=2",)),
        Package(name="left", depends=("right",)),
        Package(name="right", depends=("left",)),
        Package(name="wants-old", depends=("libthing <2",)),
        Package(name="dated", version="1.0", uploaded="2025-01-01"),
        Package(name="dated", version="2.0", uploaded="2026-06-01"),
    ]


def forge() -> list[Package]:
    """Return the packages of the channel that most tests use."""
    return [
        python_package("3.11.9"),
        python_package("3.12.4"),
        pure_package("tqdm", "4.66.4"),
        pure_package("requests", "2.32.3", "tqdm >=4"),
        *cuda_packages(),
        *flagged_packages(),
        *other_packages(),
    ]
