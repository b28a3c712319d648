"""Archives of conda packages byte by byte: with a prefix inside, entry points, and everything that is wrong."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from envbuild.lock.model import CondaPackage

PLACEHOLDER = "/opt/" + "placehold_" * 25
"""What build tools put where the prefix comes: 255 bytes."""
TIME = 1_704_067_200


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A package; ``text`` and ``binary`` are the files that the placeholder stands in.

    ``info`` are members of the info folder that replace or add to the usual ones, ``members`` more
    members for the tar of files, ``noted`` entries for paths.json that replace the usual ones.
    """

    name: str
    version: str = "1.0"
    build: str = "h1_0"
    subdir: str = "linux-64"
    noarch: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    text: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()
    info: Mapping[str, bytes] = field(default_factory=dict)
    members: Sequence[tuple[tarfile.TarInfo, bytes]] = ()
    noted: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    old_format: bool = False

    @property
    def file(self) -> str:
        """Its file name."""
        ending = "tar.bz2" if self.old_format else "conda"
        return f"{self.name}-{self.version}-{self.build}.{ending}"

    def index(self) -> dict[str, Any]:
        """Return its index.json."""
        told = {
            "arch": "x86_64",
            "build": self.build,
            "build_number": 0,
            "depends": list(self.depends),
            "name": self.name,
            "noarch": self.noarch,
            "platform": "linux",
            "subdir": self.subdir,
            "timestamp": TIME * 1000,
            "version": self.version,
        }
        return {key: value for key, value in told.items() if value is not None}

    def write(self, folder: Path) -> CondaPackage:
        """Write the archive into a folder and return its entry of a lock."""
        data = self.pack()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.file).write_bytes(data)
        return self.locked(data)

    def locked(self, data: bytes, **more: Any) -> CondaPackage:
        """Return the entry of a lock for an archive of these bytes."""
        return CondaPackage(
            name=self.name,
            version=self.version,
            build=self.build,
            subdir=self.subdir,  # type: ignore[arg-type]
            channel="lab",
            file=self.file,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
            noarch=self.noarch,  # type: ignore[arg-type]
            **more,
        )

    def pack(self) -> bytes:
        """Return the archive."""
        info, content = self._info_members(), self._content_members()
        if self.old_format:
            return bz2.compress(_tar([*info, *content]))
        out = io.BytesIO()
        stem = self.file.removesuffix(".conda")
        with zipfile.ZipFile(out, "w") as archive:
            version = b'{"conda_pkg_format_version":2}'
            archive.writestr(zipfile.ZipInfo("metadata.json"), version)
            for part, members in (("pkg", content), ("info", info)):
                packed = zstandard.compress(_tar(members))
                archive.writestr(zipfile.ZipInfo(f"{part}-{stem}.tar.zst"), packed)
        return out.getvalue()

    def paths(self) -> list[dict[str, Any]]:
        """Return what paths.json lists."""
        found: list[dict[str, Any]] = []
        for path, data in self.files.items():
            entry: dict[str, Any] = {
                "_path": path,
                "path_type": "hardlink",
                "sha256": hashlib.sha256(data).hexdigest(),
                "size_in_bytes": len(data),
            }
            if path in (*self.text, *self.binary):
                mode = "binary" if path in self.binary else "text"
                entry |= {"prefix_placeholder": PLACEHOLDER, "file_mode": mode}
            found.append(entry)
        for path, target in self.links.items():
            data = target.encode()
            found.append({"_path": path, "path_type": "softlink", "size_in_bytes": len(data)})
        return [self.noted.get(entry["_path"], entry) for entry in found]

    def _info_members(self) -> list[tuple[tarfile.TarInfo, bytes]]:
        held: dict[str, bytes] = {
            "info/index.json": json.dumps(self.index()).encode(),
            "info/paths.json": json.dumps({"paths": self.paths(), "paths_version": 1}).encode(),
            "info/about.json": b"{}",
            "info/files": "".join(f"{path}\n" for path in (*self.files, *self.links)).encode(),
        }
        if self.noarch == "python":
            points = {"type": "python", "entry_points": list(self.entry_points)}
            link = {"noarch": points, "package_metadata_version": 1}
            held["info/link.json"] = json.dumps(link).encode()
        held |= self.info
        return [(_member(path, data), data) for path, data in held.items() if data != b"LEFT OUT"]

    def _content_members(self) -> list[tuple[tarfile.TarInfo, bytes]]:
        found = []
        for path, data in self.files.items():
            found.append(
                (_member(path, data, mode=0o775 if path in self.programs else 0o664), data)
            )
        for path, target in self.links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname, entry.mtime = tarfile.SYMTYPE, target, TIME
            found.append((entry, b""))
        return [*found, *self.members]


def _member(path: str, data: bytes, mode: int = 0o664) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.mtime = len(data), mode, TIME
    return entry


def _tar(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, data in members:
            tar.addfile(entry, io.BytesIO(data) if entry.isreg() else None)
    return out.getvalue()
