"""Unpack a wheel straight into a part, by the wheel specification, without a file on the disk.

The library ``installer`` knows the specification (scripts, data folders, RECORD); here is where the
files go.
"""

from __future__ import annotations

import io
import posixpath
import re
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from installer import install
from installer.destinations import WheelDestination
from installer.records import Hash, RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme as SchemeName
from installer.utils import construct_record_file, fix_shebang

from envbuild import limits
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.packages.wheel_writer import record_hash
from envbuild.errors import IntegrityError
from envbuild.formats.fast_zip import open_zip
from envbuild.formats.file_tree import TreeEntry
from envbuild.limits import Room, reading
from envbuild.parts.writer import PartWriter
from envbuild.store.sealed import require_hash

INSTALLER = b"envbuild\n"
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What str.splitlines takes for the end of a line, by which RECORD is read."""
SPARE_ROWS = 1000
"""Rows of a RECORD for what is no file of the wheel."""
ENTRY_POINTS, SCRIPT_SECTIONS = "entry_points.txt", ("[console_scripts]", "[gui_scripts]")
COMMAND = re.compile(r"[^=]+=\s*[\w.]+\s*:\s*[\w.]+\s*(\[.*\]\s*)?")


def unpack_wheel(
    file: Path, name: str, scheme: Scheme, writer: PartWriter, *, sha256: str | None
) -> None:
    """Add everything that installing a wheel of the store would write.

    ``name`` is the wheel's file name.

    Raises IntegrityError for a wheel of another hash or a damaged one, and for one that would write
    outside of its folders.
    """
    size = file.stat().st_size
    writer.limit(size)
    with reading("this wheel cannot be unpacked", name), file.open("rb") as raw:
        require_hash(raw, sha256, name)
        _install_wheel(raw, name, scheme, writer, size)
        require_hash(raw, sha256, name)  # another user's file may have been written to meanwhile


def _install_wheel(raw: BinaryIO, name: str, scheme: Scheme, writer: PartWriter, size: int) -> None:
    # what was hashed is what is read: the same open file, not the name once more
    with open_zip(raw) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.filename = name
        _require_sizes(archive, size)
        source = WheelFile(archive)
        # a file of the data folder that lies in none of its schemes
        for info in archive.infolist():
            below = info.filename.removeprefix(f"{source.data_dir}/")
            like = info.filename.startswith(source.data_dir) and not info.is_dir()
            if like and (below == info.filename or "/" not in below):
                raise IntegrityError(f"{info.filename} lies in no scheme of {source.data_dir}")
        if ENTRY_POINTS in source.dist_info_filenames:
            _require_commands(source.read_dist_info(ENTRY_POINTS), source.dist_info_dir)
        install(
            source, _make_destination(source.distribution, scheme, writer), {"INSTALLER": INSTALLER}
        )


def _require_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Raise IntegrityError for members that are too large to be read, or unpack without end.

    No more than a member's announced size is ever read of it.
    """
    content = Room(limits.most_content(size), "it unpacks to")
    for info in archive.infolist():
        content.take(info.file_size)
        folder, _, name = info.filename.rpartition("/")
        most = limits.SCRIPT if ".data/scripts/" in info.filename else limits.WHOLE.get(name)
        if most is not None and info.file_size > most:
            raise IntegrityError(
                f"{info.filename} is of {info.file_size} bytes: too large for such a file"
            )
        # installer splits RECORD by str.splitlines into memory
        if name == "RECORD" and folder.endswith(".dist-info"):
            text = archive.read(info).decode("utf-8", "replace")
            if sum(text.count(end) for end in LINE_ENDS) > 2 * len(archive.infolist()) + SPARE_ROWS:
                raise IntegrityError(f"{info.filename} has many more rows than the wheel has files")


def _require_commands(text: str, folder: str) -> None:
    """Raise IntegrityError for a line that gives a command and names no function.

    installer asserts it, and says neither file nor line.
    """
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        section = line.strip() if line.startswith("[") else section
        is_command = section in SCRIPT_SECTIONS and "=" in line and line.strip()[0] not in "#;"
        if is_command and not COMMAND.fullmatch(line):
            place = f"{folder}/{ENTRY_POINTS}, line {number}"
            raise IntegrityError(f"{place}: {line[:200]!r} is not COMMAND = MODULE:FUNCTION")


def _make_destination(project: str, scheme: Scheme, writer: PartWriter) -> WheelDestination:
    class Destination(WheelDestination):
        def write_file(
            self, scheme: Any, path: Any, stream: BinaryIO, is_executable: bool
        ) -> RecordEntry:
            # the wheel specification: "#!python" becomes the path of the installing Python
            if scheme == "scripts":
                seekable = io.BytesIO(stream.read())
                with fix_shebang(seekable, f"/{self_scheme.python}") as fixed:
                    return self.record(scheme, str(path), fixed, executable=True)
            return self.record(scheme, str(path), stream, executable=is_executable)

        def write_script(self, name: str, module: str, attr: str, section: Any) -> RecordEntry:
            file, text = Script(name, module, attr, section).generate(
                f"/{self_scheme.python}", "posix"
            )
            return self.record(SchemeName("scripts"), file, io.BytesIO(text), executable=True)

        def record(
            self, scheme: Any, path: str, stream: BinaryIO, *, executable: bool
        ) -> RecordEntry:
            full = _path_in_image(self_scheme.folder(scheme, project), path)
            place = writer.add(TreeEntry(full, "f", 0o755 if executable else 0o644), stream)
            assert place is not None  # noqa: S101  (files have one)
            return RecordEntry(
                path, Hash("sha256", record_hash(bytes.fromhex(place.sha256))), place.size
            )

        def finalize_installation(
            self, scheme: Any, record_file_path: str, records: Iterable[tuple[Any, RecordEntry]]
        ) -> None:
            def prefix(of: Any) -> str | None:
                # rows of RECORD are relative to the folder that holds the .dist-info
                if of in ("purelib", "platlib"):
                    return None
                return posixpath.relpath(self_scheme.folder(of, project), self_scheme.site) + "/"

            with construct_record_file(records, prefix) as stream:
                writer.add(
                    TreeEntry(
                        _path_in_image(self_scheme.folder(scheme, project), record_file_path),
                        "f",
                        0o644,
                    ),
                    stream,
                )

    self_scheme = scheme
    return Destination()


def _path_in_image(folder: str, path: str) -> str:
    """Join a wheel's own path to a folder.  Raises IntegrityError where it would lead out of it."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise IntegrityError(f"{path!r} leads out of the folder that it belongs to")
    return posixpath.normpath(posixpath.join(folder, path))
