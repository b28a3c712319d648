"""Write OCI images for tests: from named files, or from this machine's own programs and Pythons."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import zstandard
from uv import find_uv_bin

from envbuild.run import Command, LocalRunner

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX = "application/vnd.oci.image.index.v1+json"
TIME = 1_700_000_000
PROGRAMS = (
    "sh", "bash", "cat", "chmod", "cp", "cut", "dd", "env", "false", "grep", "head", "id", "ls", "mkdir", "mktemp", "mv", "rm", "sed",
    "sha256sum", "sort", "stat", "tail", "tar", "touch", "tr", "true", "uname", "unshare", "xargs",
)  # fmt: skip
DEBIANS_LAYOUT = b"prefix_scheme = 'posix_local'"
"""What Debian changed in the module sysconfig of its Python; its module site is changed too, and frozen."""
USUAL_SITE = """\
import site, sys
site.addsitedir("%s/lib/python%d.%d/site-packages" % (sys.prefix, *sys.version_info[:2]))
"""
LEFT_OUT = re.compile(
    r"__pycache__|/(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|config-[^/]*)(/|$)|\.a$"
)


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass
class Image:
    """The blobs of an image by digest, and its manifest."""

    manifest: bytes
    blobs: dict[str, bytes]
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_of(files: Mapping[str, bytes | str | Link | None], *, time: int = TIME) -> bytes:
    """A layer's tar: None is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mtime = time
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            elif isinstance(content, Link):
                entry.type, entry.linkname = tarfile.SYMTYPE, content.target
                tar.addfile(entry)
            else:
                data = content.encode() if isinstance(content, str) else content
                entry.size, entry.mode = len(data), 0o755
                tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def image_of(
    *tars: bytes,
    env: tuple[str, ...] = (),
    entrypoint: tuple[str, ...] = (),
    cmd: tuple[str, ...] = (),
    created: str = "2023-11-15T10:00:00Z",
    architecture: str = "amd64",
    zstd: bool = False,
    **changes: Any,
) -> Image:
    """An image of these layers, packed with gzip or zstd; ``changes`` go into its configuration."""
    packed = [
        zstandard.ZstdCompressor(3).compress(tar) if zstd else gzip.compress(tar, 1, mtime=0)
        for tar in tars
    ]
    layers = [(data, digest_of(tar)) for data, tar in zip(packed, tars, strict=True)]
    settings = {"Env": list(env), "Entrypoint": list(entrypoint) or None, "Cmd": list(cmd) or None}
    changes = {"created": created, "architecture": architecture, "config": settings, **changes}
    return image_of_packed(layers, LAYER.replace("gzip", "zstd") if zstd else LAYER, **changes)


def image_of_packed(
    layers: Sequence[tuple[bytes, str]], kind: str = LAYER, **changes: Any
) -> Image:
    """An image of layers that are packed already, each with the digest of its tar."""
    config: dict[str, Any] = {
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [tar for _, tar in layers]},
        **changes,
    }
    text = json.dumps(config).encode()
    packed = [(data, digest_of(data)) for data, _ in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest_of(text), "size": len(text)},
        "layers": [
            {"mediaType": kind, "digest": digest, "size": len(data)} for data, digest in packed
        ],
    }
    blobs = {digest_of(text): text, **{digest: data for data, digest in packed}}
    return Image(manifest=json.dumps(manifest).encode(), blobs=blobs, config=config)


def index_of(*images: tuple[str, Image]) -> bytes:
    """The bytes of an index: architecture and image."""
    entries = [
        {
            "mediaType": MANIFEST,
            "digest": image.digest,
            "size": len(image.manifest),
            "platform": {"architecture": architecture, "os": "linux"},
        }
        for architecture, image in images
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


def push(
    image: Image,
    url: str,
    repository: str,
    tag: str,
    auth: tuple[str, str] | None = None,
    **verify: Any,
) -> str:
    """Push to a registry and return the manifest's digest."""
    with httpx.Client(auth=auth, timeout=60, **verify) as client:
        for digest, data in image.blobs.items():
            if client.head(f"{url}/v2/{repository}/blobs/{digest}").status_code == 200:
                continue
            begun = client.post(f"{url}/v2/{repository}/blobs/uploads/")
            begun.raise_for_status()
            place = (
                httpx.URL(url).join(begun.headers["Location"]).copy_merge_params({"digest": digest})
            )
            client.put(
                place, content=data, headers={"Content-Type": "application/octet-stream"}
            ).raise_for_status()
        put = client.put(
            f"{url}/v2/{repository}/manifests/{tag}",
            content=image.manifest,
            headers={"Content-Type": MANIFEST},
        )
        put.raise_for_status()
        return str(put.headers["Docker-Content-Digest"])


def write_layout(image: Image, folder: Path) -> Path:
    """Write an OCI layout folder."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    for digest, data in {**image.blobs, image.digest: image.manifest}.items():
        (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    entry = {"mediaType": MANIFEST, "digest": image.digest, "size": len(image.manifest)}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


# ---- this machine's programs as a root file system


@functools.cache
def programs() -> bytes:
    """The tar of a root with a shell, a few programs and their libraries."""
    files: dict[str, bytes | str | Link | None] = dict.fromkeys(("dev", "etc", "home", "mnt", "proc", "root", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64", "var/tmp", "usr/sbin"))  # fmt: skip
    files |= {name: Link(f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")}
    files["etc/passwd"] = "root:x:0:0::/root:/bin/sh\n"
    files["etc/group"] = "root:x:0:\n"
    files["etc/os-release"] = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian of this machine"\n'
    _with_libraries(Path(find_uv_bin()), files)
    del files["usr/bin/uv"]  # the build brings its own, which wants the libraries
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None
        _with_libraries(Path(found), files)
    return tar_of(files)


def _with_libraries(
    program: Path, files: dict[str, bytes | str | Link | None], at: str | None = None
) -> None:
    files[at or f"usr/bin/{program.name}"] = Path(os.path.realpath(program)).read_bytes()
    listed = LocalRunner()(Command(argv=("ldd", str(program))), check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", listed):
        where = re.sub(r"^/(lib|lib64)/", r"usr/\1/", library).lstrip("/")
        files[where] = Path(os.path.realpath(library)).read_bytes()


@functools.cache
def python_tar(python: Path, prefix: str, *, managed: bool = False, whole: bool = True) -> bytes:
    """The tar of a Python of this machine, moved to a prefix; with its standard library and the libraries it loads.

    One that is not whole has names only in its standard library, so it cannot run.
    """
    question = (
        "import sys, sysconfig; print(sys.version_info[1]); print(sysconfig.get_path('stdlib'))"
    )
    told = LocalRunner()(Command(argv=(str(python), "-c", question))).stdout.split()
    minor, stdlib = told[0], Path(told[1])
    name = f"python3.{minor}"
    base = prefix.strip("/")
    files: dict[str, bytes | str | Link | None] = {
        f"{base}/bin/python3": Link(name),
        f"{base}/bin/python": Link(name),
    }
    _with_libraries(Path(os.path.realpath(python)), files, f"{base}/bin/{name}")
    for path in sorted(stdlib.rglob("*")):
        inside = path.relative_to(stdlib)
        if path.is_file() and not LEFT_OUT.search(f"/{inside}") and "-packages" not in str(inside):
            target = f"{base}/lib/{name}/{inside}"
            if not whole:
                files[target] = b""
            elif path.suffix == ".so":
                _with_libraries(path, files, target)
            else:
                files[target] = path.read_bytes()
    for library in stdlib.parent.glob(f"libpython3.{minor}*.so.*"):
        files[f"{base}/lib/{library.name}"] = library.read_bytes()
    if managed:
        files[f"{base}/lib/{name}/EXTERNALLY-MANAGED"] = "[externally-managed]\nError=use a venv\n"
    else:
        files.pop(f"{base}/lib/{name}/EXTERNALLY-MANAGED", None)
    files[f"{base}/lib/{name}/site-packages/README"] = "x"
    _undo_debian(f"{base}/lib/{name}", files)
    return tar_of(files)


def _undo_debian(stdlib: str, files: dict[str, bytes | str | Link | None]) -> None:
    """Let a Python of Debian's keep its packages where every other one does."""
    for name in (f"{stdlib}/sysconfig.py", f"{stdlib}/sysconfig/__init__.py"):
        text = files.get(name, b"")
        if isinstance(text, bytes) and DEBIANS_LAYOUT in text:
            files[name] = text.replace(
                DEBIANS_LAYOUT, DEBIANS_LAYOUT.replace(b"posix_local", b"posix_prefix")
            )
            files[f"{stdlib}/sitecustomize.py"] = USUAL_SITE


def dist(
    site: str, name: str, version: str, requires: tuple[str, ...] = ()
) -> dict[str, bytes | str | Link | None]:
    """An installed pure distribution."""
    info = f"{site.strip('/')}/{name}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    module = f"{site.strip('/')}/{name}/__init__.py"
    record = f"{name}/__init__.py,,\n{name}-{version}.dist-info/METADATA,,\n{name}-{version}.dist-info/RECORD,,\n"
    return {
        module: f'__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\n",
        f"{info}/RECORD": record,
        f"{info}/INSTALLER": "pip\n",
    }
