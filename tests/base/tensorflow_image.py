"""An image as tensorflow.org makes them: a Debian with its Python, and TensorFlow from its real wheels over it.

Its layers are packed once per user, under names that say what is in them.  The wheels are those of the shipped lock
keras-bert without the CUDA libraries, so that live tests share downloads; the image itself shares none of its bytes
with what tensorflow.org publishes.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from isal import isal_zlib

from envbuild.base.debian.bootstrap import make_root
from envbuild.build.fetch import fetch_files, locked_bootstrap
from envbuild.context import Context
from envbuild.formats.fast_zip import open_zip
from envbuild.lock.model import Lock, PythonPackage
from envbuild.lock.read import read_lock
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from tests.base.ociimages import TIME, Image, digest_of, image_of_packed
from tests.project import Project, shared_store

ROOT = Path(__file__).parents[2]
SITE = "usr/local/lib/python3.11/dist-packages"
FORMAT = 1
"""Counts up whenever the same wheels or packages would give another layer."""
CHUNK = 1 << 20
CREATED = "2024-03-08T00:00:00Z"
"""90 days before the date of the lock keras-bert, so that what is put over the image has the same versions."""
CONFIG = {
    "Env": [
        "PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "NVARCH=x86_64",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.3 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=525,driver<526",
        "NV_CUDA_CUDART_VERSION=12.3.52-1",
        "NV_CUDA_COMPAT_PACKAGE=cuda-compat-12-3",
        "CUDA_VERSION=12.3.0",
        "LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "LANG=C.UTF-8",
    ],
    "Cmd": ["/bin/bash"],
    "Labels": {
        "maintainer": "NVIDIA CORPORATION <cudatools@nvidia.com>",
        "org.opencontainers.image.version": "22.04",
    },
}
"""The kind of configuration that images over nvidia/cuda:12.3.0-base-ubuntu22.04 have."""


def framework_wheels() -> tuple[PythonPackage, ...]:
    """TensorFlow's own wheels in the shipped lock, without those of CUDA."""
    locked = read_lock(ROOT / "lockfiles/keras-bert.lock").python
    return tuple(p for p in locked if p.group == "framework" and not p.name.startswith("nvidia-"))


def tensorflow_image(folder: Path) -> Image:
    """Return the image; ``folder`` is for a project that locks its Debian packages."""
    lock, context = _locked_root(folder)
    wheels = framework_wheels()
    for wanted in (lock, msgspec.structs.replace(lock, python=wheels, debian=())):
        fetch_files(wanted, context)
    bootstrap = locked_bootstrap(lock)
    root = make_root(bootstrap, context)
    files = [context.store.artifact(wheel.sha256) for wheel in wheels]
    key = digest_of("".join(path.name for path in files).encode())
    with root.open("rb") as tar, ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            _packed, bootstrap.digest, lambda out: shutil.copyfileobj(tar, out, CHUNK)
        )
        second = pool.submit(_packed, key, lambda out: _write_installed(files, out))
        layers = (first.result(), second.result())
    return image_of_packed(layers, created=CREATED, architecture="amd64", config=CONFIG)


def _locked_root(folder: Path) -> tuple[Lock, Context]:
    project = Project(folder)
    project.write(
        "recipes/root.toml", '[recipe]\nname = "root"\n[base]\nbootstrap = "debian:bookworm"\n'
    )
    project.succeed("lock", "root")
    settings, runner = load_settings(project.env, folder), LocalRunner()
    context = Context(
        settings=settings,
        runner=runner,
        store=Store(settings.store),
        report=Silent(),
    )
    return read_lock(folder / "lockfiles/root.lock"), context


class _Packing(io.BufferedIOBase):
    """Packs a tar with gzip while it is written, and hashes it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._packer, self.hash = (
            out,
            isal_zlib.compressobj(1, wbits=31),
            hashlib.sha256(),
        )

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self._out.write(self._packer.compress(data))
        return len(data)

    def finish(self) -> None:
        self._out.write(self._packer.flush())


def _packed(key: str, write: Callable[[_Packing], object]) -> tuple[bytes, str]:
    """Return a layer and its tar's digest, packed once and kept in the user's cache under ``key``."""
    folder = shared_store() / "layers"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{key.removeprefix('sha256:')}-{FORMAT}"
    for kept in folder.glob(f"{name}-*.tar.gz"):
        return kept.read_bytes(), f"sha256:{kept.name.split('-')[2].partition('.')[0]}"
    part = folder / f"{name}.{os.getpid()}.part"
    try:
        with part.open("wb") as out:
            packing = _Packing(out)
            write(packing)
            packing.finish()
        part.rename(folder / f"{name}-{packing.hash.hexdigest()}.tar.gz")
    finally:
        part.unlink(missing_ok=True)
    return _packed(key, write)


def _write_installed(wheels: list[Path], out: _Packing) -> None:
    """Write a tar of wheels as they lie where Debian's Python finds them; scripts are left out."""
    with tarfile.open(fileobj=out, mode="w|", bufsize=CHUNK) as tar:
        for wheel in wheels:
            with open_zip(wheel) as archive:
                for info in (member for member in archive.infolist() if not member.is_dir()):
                    data, _, path = info.filename.partition(".data/")
                    if data != info.filename and not path.startswith(("purelib/", "platlib/")):
                        continue
                    inside = path.partition("/")[2] or info.filename
                    entry = tarfile.TarInfo(f"{SITE}/{inside}")
                    entry.size, entry.mode, entry.mtime = info.file_size, 0o644, TIME
                    with archive.open(info) as content:
                        tar.addfile(entry, content)
