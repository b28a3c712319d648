"""What is new in the log files of a job, in pieces, and which files of a long list are there."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

PIECE = 1024 * 1024
"""Bytes of a log that are read at a time: some are larger than a login node's memory."""


END = "envbuild: ended with code "
"""What begins the last line of a job's log, which is written after the receipt."""
LAST = 400
"""Characters at the end of a log among which it is looked for."""
LATE = 6.0
"""Seconds by which a log's end may be seen later than the receipt, on a shared file system."""


class LogTail:
    """Hand on what is new in log files; names each where there are several.

    ``before`` are the sizes of files that were there already: another site may have used the same
    number.
    """

    def __init__(
        self,
        files: tuple[Path, ...],
        write: Callable[[str], None],
        *,
        before: Mapping[Path, int] | None = None,
    ) -> None:
        self.places = {path: (before or {}).get(path, 0) for path in files}
        self.decoders: dict[Path, codecs.IncrementalDecoder] = {}
        self.lasts: dict[Path, str] = {}
        self.closing: dict[Path, float] = {}
        self.several = len(files) > 1
        self.write = write
        self.last: Path | None = None

    def move(self) -> None:
        """Write what was added since the last call.

        The folder is listed, as most files of an array are not there.
        """
        sizes = list_sizes(self.places)
        for path, size in sizes.items():
            if size < self.places[path]:  # the file was begun again
                self.places[path] = 0
            if size != self.places[path]:
                self._move_in(path)

    def _move_in(self, path: Path) -> None:
        # a character may be half written, or lie across two pieces
        decoder = self.decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
        for piece in _read_pieces(path, self.places[path]):
            if self.several and self.last != path:
                self.write(f"==> {path.name} <==\n")
            self.last = path
            self.places[path] += len(piece)
            text = decoder.decode(piece)
            self.lasts[path] = (self.lasts.get(path, "") + text)[-LAST:]
            self.write(text)

    def close(self, files: Iterable[Path], now: float) -> None:
        """Write the rest of these: their tasks have ended; those whose end is not seen yet stay in ``closing``.

        On NFS only who opens a file sees its size of now; a listing's is some seconds old (nfs(5)).
        """
        self.closing.update({path: now + LATE for path in files if path in self.places})
        for path, due in tuple(self.closing.items()):
            self._move_in(path)
            if now >= due or END in self.lasts.get(path, "") or not path.exists():
                del self.places[path], self.closing[path]


def _read_pieces(path: Path, start: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(start)
            while piece := file.read(PIECE):
                yield piece
    except OSError:
        return


def list_sizes(files: Collection[Path]) -> dict[Path, int]:
    """Return the sizes of those files that are there, in their order, by one listing of each folder."""
    found: dict[Path, int] = {}
    for folder in dict.fromkeys(path.parent for path in files):
        found.update(_sizes_in(folder, files))
    return {path: found[path] for path in files if path in found}


def _sizes_in(folder: Path, files: Collection[Path]) -> dict[Path, int]:
    names = {path.name: path for path in files if path.parent == folder}
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in names:
                found[names[entry.name]] = entry.stat().st_size
    return found
