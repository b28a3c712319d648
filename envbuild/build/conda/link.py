"""Link a conda package straight into a part, for its final prefix, without running anything of it.

The archive is read once as a stream. What is to be done with each path stands in the package's own
list (paths.json); what that does not list is not installed.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from envbuild.build.conda.prefix import CondaPrefix
from envbuild.build.conda.scripts import PHASES, script_name
from envbuild.conda.archive import CondaArchive, open_archive, plain_name
from envbuild.conda.metadata import CondaIndex, CondaPath
from envbuild.conda.replace import entry_point_script, replace_in_binary, replace_in_text
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK, Codec
from envbuild.formats.fast_zip import BlocksFile
from envbuild.formats.file_tree import EPOCH, TreeEntry
from envbuild.limits import reading
from envbuild.lock.model import CondaPackage
from envbuild.parts.cache import part_key
from envbuild.parts.from_tar import LATEST
from envbuild.parts.writer import FilePlace, PartWriter
from envbuild.store.hashing import hash_text
from envbuild.store.sealed import require_hash


def conda_part_key(package: CondaPackage, prefix: CondaPrefix, codec: Codec) -> str:
    """Return the key of a package's part; all environments with this prefix share it."""
    return part_key(
        "conda",
        package=package.sha256,
        file=f"{package.channel}/{package.subdir}/{package.file}",
        prefix=prefix.path,
        python=prefix.python if package.noarch == "python" else "",
        packer=codec.key,
    )


def link_package(
    file: Path, package: CondaPackage, prefix: CondaPrefix, writer: PartWriter
) -> None:
    """Add everything that installing a package of the store into the prefix would write.

    Raises IntegrityError for an archive of another hash or a damaged one, for a path that leads out
    of the prefix, and for a file of other bytes than the package's own list says.
    """
    size = file.stat().st_size
    writer.limit(size)
    with reading("this conda package cannot be unpacked", package.file), file.open("rb") as raw:
        require_hash(raw, package.sha256, package.file)
        archive = open_archive(raw, package.file, size)
        # an archive of another package than the lock says
        index = archive.info.index
        found = (index.name, index.version, index.build)
        if found != (package.name, package.version, package.build):
            raise IntegrityError(f"is {'-'.join(found)[:200]}, not what the lock says")
        if archive.info.is_python != (package.noarch == "python"):
            raise IntegrityError(f"is noarch {index.noarch!r}, the lock says {package.noarch!r}")
        _Linking(package=package, prefix=prefix, writer=writer, archive=archive).run()
        require_hash(raw, package.sha256, package.file)  # nobody wrote to it meanwhile


@dataclass(kw_only=True, slots=True)
class _Linking:
    """One package while it is linked; ``done`` are its paths, by their names in the archive."""

    package: CondaPackage
    prefix: CondaPrefix
    writer: PartWriter
    archive: CondaArchive
    done: dict[str, InstalledPath] = field(default_factory=dict)

    def run(self) -> None:
        """Lay all paths, the entry points, and the record of them."""
        info = self.archive.info
        if info.is_python and not self.prefix.python:
            raise IntegrityError("is of Python modules, and the environment has no Python")
        listed = {path.path: path for path in info.paths}
        for member, content in self.archive.members():
            path = listed.get(plain_name(member.name))
            if path is not None and path.path not in self.done:
                self._lay(path, member, content)
        for path in info.paths:
            if path.type == "directory" and path.path not in self.done:
                self._lay_folder(path)
        lacking = [path for path in listed if path not in self.done]
        if lacking:
            raise IntegrityError(f"lists {lacking[0]!r}, which it does not hold")
        points = tuple(self._lay_entry_point(line) for line in info.entry_points)
        paths = (*(self.done[path] for path in listed), *points)
        record = package_record(self.package, info.index, paths)
        self._add(f"conda-meta/{self.package.stem}.json", 0o644, record)

    def _lay(self, path: CondaPath, member: tarfile.TarInfo, content: BinaryIO | None) -> None:
        target = self._target(path.path)
        scripts = {script_name(self.package.name, phase) for phase in PHASES}
        if target in scripts and (target != path.path or not member.isreg()):
            # people are shown the file of that name in the archive
            raise IntegrityError(f"{path.path!r} is run at installation, and is no plain file")
        if member.issym():
            entry = TreeEntry(f"{self.prefix.path}/{target}", "l", 0o777, target=member.linkname)
            self.writer.add(entry)
            sha256 = hash_text(member.linkname)
            done = installed_path(path, target, sha256=sha256, size=path.size)
        elif member.isdir():
            self._lay_folder(path)
            return
        elif member.islnk():
            done = self._lay_again(path, member, target)
        elif content is not None:
            place = self._add_file(path, member, content, target)
            done = installed_path(path, target, sha256=place.sha256, size=place.size)
        else:
            raise IntegrityError(f"holds {path.path!r}, which is no file, folder or link")
        self.done[path.path] = done

    def _lay_folder(self, path: CondaPath) -> None:
        target = self._target(path.path)
        self.writer.add(TreeEntry(f"{self.prefix.path}/{target}", "d", 0o755))
        self.done[path.path] = installed_path(path, target, sha256=None, size=None)

    def _lay_again(self, path: CondaPath, member: tarfile.TarInfo, target: str) -> InstalledPath:
        """Lay another name of a file that came before it in the archive."""
        first = plain_name(member.linkname)
        before = self.done.get(first)
        same = before is not None and (before.placeholder, before.mode, before.sha256) == (
            path.placeholder,
            path.mode,
            path.sha256,
        )
        if before is None or not same:
            raise IntegrityError(f"{path.path!r} is another name of {first!r}, which differs")
        folder = self.prefix.path
        self.writer.add_link(f"{folder}/{target}", f"{folder}/{before.path}")
        return installed_path(
            path, target, sha256=before.sha256_in_prefix or before.sha256, size=before.size
        )

    def _add_file(
        self, path: CondaPath, member: tarfile.TarInfo, content: BinaryIO, target: str
    ) -> FilePlace:
        mode = 0o755 if member.mode & 0o111 else 0o644
        if path.placeholder is None:
            place = self._add(target, mode, content, int(member.mtime))
            _require_listed(path, place.size, place.sha256)
            return place
        old, new = path.placeholder.encode(), f"/{self.prefix.path}".encode()
        replace = replace_in_binary if path.mode == "binary" else replace_in_text
        blocks = replace(_checked_blocks(content, path), old, new)
        # newer than the package: bytecode that was made of the file before has to look stale
        time = int(member.mtime) if self.archive.time is None else self.archive.time + 1
        is_small = member.size < BLOCK
        put = b"".join(blocks) if is_small else io.BufferedReader(BlocksFile(blocks), BLOCK)
        return self._add(target, mode, put, time)

    def _lay_entry_point(self, line: str) -> InstalledPath:
        command, script = entry_point_script(line, self.prefix.interpreter)
        place = self._add(f"bin/{command}", 0o755, script)
        return InstalledPath(
            path=f"bin/{command}",
            type="unix_python_entry_point",
            sha256=place.sha256,
            size=place.size,
        )

    def _add(
        self, path: str, mode: int, content: BinaryIO | bytes, time: int | None = None
    ) -> FilePlace:
        own = time if time is not None and 0 <= time <= LATEST else EPOCH
        entry = TreeEntry(f"{self.prefix.path}/{path}", "f", mode, mtime=own)
        place = self.writer.add(entry, content)
        assert place is not None  # noqa: S101  (files have one)
        return place

    def _target(self, path: str) -> str:
        """Return where a path of the archive goes inside the prefix.

        Raises IntegrityError where that is outside, and for the records of other packages.
        """
        parts = path.split("/")
        if path.startswith("/") or "\0" in path or {"", ".", ".."} & set(parts):
            raise IntegrityError(f"{path[:200]!r} leads out of the prefix")
        if parts[0] == "conda-meta" and path.endswith(".json"):
            raise IntegrityError(f"{path[:200]!r} is the place of a package's record")
        if self.archive.info.is_python and len(parts) > 1:
            folder = {"site-packages": self.prefix.site, "python-scripts": "bin"}.get(parts[0])
            if folder is not None:
                return "/".join((folder, *parts[1:]))
        return path


def _checked_blocks(content: BinaryIO, path: CondaPath) -> Iterator[bytes]:
    """Yield a file's content.

    Raises IntegrityError at its end where it is not what the package's list says.
    """
    digest, size = hashlib.sha256(), 0
    while block := content.read(BLOCK):
        digest.update(block)
        size += len(block)
        yield block
    _require_listed(path, size, digest.hexdigest())


def _require_listed(path: CondaPath, size: int, sha256: str) -> None:
    wrong = path.size is not None and size != path.size
    if wrong or (path.sha256 is not None and sha256 != path.sha256):
        raise IntegrityError(f"{path.path!r} is another file than its own list says")


NO_HOST = "https://mirror.invalid"
"""The record's format wants an address; which mirror served the file is nobody's business."""


class InstalledPath(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of an installed package; ``sha256`` is of the archive's file, the other of ours."""

    path: str = msgspec.field(name="_path")
    type: str = msgspec.field(name="path_type")
    sha256: str | None = None
    sha256_in_prefix: str | None = None
    size: int | None = msgspec.field(name="size_in_bytes", default=None)
    placeholder: str | None = msgspec.field(name="prefix_placeholder", default=None)
    mode: str | None = msgspec.field(name="file_mode", default=None)


def installed_path(
    path: CondaPath, target: str, *, sha256: str | None, size: int | None
) -> InstalledPath:
    """Return what the record says of a path that was laid at ``target`` with these bytes."""
    return InstalledPath(
        path=target,
        type=path.type,
        sha256=path.sha256,
        sha256_in_prefix=sha256 if sha256 != path.sha256 else None,
        size=size,
        placeholder=path.placeholder,
        mode=path.mode,
    )


def package_record(
    package: CondaPackage, index: CondaIndex, paths: tuple[InstalledPath, ...]
) -> bytes:
    """Return the record of a package with the paths that it brought."""
    fields = msgspec.to_builtins(index)
    own = {key: value for key, value in fields.items() if value is not None and value != []}
    channel = f"{NO_HOST}/{package.channel}"
    record = {
        "constrains": [],
        "depends": [],
        **own,
        "channel": channel,
        "files": [path.path for path in paths],
        "fn": package.file,
        "link": {"source": "", "type": 1},
        "md5": package.md5,
        "paths_data": {"paths": paths, "paths_version": 1},
        "requested_spec": "None",
        "sha256": package.sha256,
        "size": package.size,
        "subdir": package.subdir,
        "url": f"{channel}/{package.subdir}/{package.file}",
    }
    filled = {key: value for key, value in record.items() if value is not None}
    return msgspec.json.format(msgspec.json.encode(filled, order="sorted"), indent=2) + b"\n"
