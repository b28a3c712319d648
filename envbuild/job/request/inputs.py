"""What a command names must be readable in the sealed container: tested before submitting."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.records import frozen_record

IMAGE_FOLDERS = (
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
)
"""Folders that are the image's own: what the command names there is no file of this machine."""
ENTRIES = 2000
"""Entries of a folder that are looked at for links; a data set may have millions of files."""


@frozen_record
class UnreadablePath:
    """A path that a job names and its container does not see: as written, and the real one."""

    named: str
    real: Path


def _find_unreadable(
    words: Iterable[str], folder: Path, visible: Iterable[Path]
) -> tuple[UnreadablePath, ...]:
    """Return the paths among words of a command, links inside them included, that no bind shows.

    ``visible`` are the folders that the container sees at their own path; a word "--key=PATH" is
    looked into.
    """
    shown: list[Path] = []
    for visible_folder in visible:
        shown += (visible_folder, visible_folder.resolve())
    found = []
    for word in words:
        for path in _paths(word, folder):
            real = path.resolve()
            # the name must be bound, and so must what it leads to: a bind does not follow links
            if not _below(real, shown) or not _below(Path(os.path.abspath(path)), shown):  # noqa: PTH100  (no link)
                found.append(UnreadablePath(named=word, real=real))
            elif path.is_dir():
                found += [
                    UnreadablePath(named=str(link), real=real)
                    for link, real in _links_out(path, shown)
                ]
    return tuple(dict.fromkeys(found))


def _paths(word: str, folder: Path) -> Iterator[Path]:
    text = word.partition("=")[2] if word.startswith("-") else word
    # longer than PATH_MAX (limits.h): a program text, say, after python -c
    if not text or "\0" in text or len(text) > 4096:
        return
    path = folder / text
    own = any(path.is_relative_to(image) for image in IMAGE_FOLDERS)
    try:
        if not own and path.exists():
            yield path
        elif not own and path.is_symlink():
            yield path  # it leads nowhere, here as there
    except OSError:
        return


def _below(path: Path, folders: list[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _links_out(folder: Path, shown: list[Path]) -> Iterator[tuple[Path, Path]]:
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= ENTRIES:
                    return
                if entry.is_symlink():
                    real = Path(entry.path).resolve()
                    if real.exists() and not _below(real, shown):
                        yield Path(entry.path), real
    except OSError:
        return


def check_inputs(
    words: Iterable[str], declared: Iterable[str], folder: Path, visible: Iterable[Path]
) -> tuple[UnreadablePath, ...]:
    """Refuse a job whose inputs are not there or not visible; return the project's links out of it.

    Raises UsageError naming the bind that is missing.
    """
    for name in declared:
        if not (folder / name).exists():
            raise UsageError(
                "the input is not there",
                where=name,
                hint="[job] inputs are paths from the project folder",
            )
    seen = tuple(visible)
    missing = _find_unreadable((*words, *declared), folder, seen)
    if missing:
        first = missing[0]
        places = dict.fromkeys(
            item.real if item.real.is_dir() else item.real.parent for item in missing
        )
        leads = f" leads to {first.real}, which" if str(first.real) != first.named else ""
        raise UsageError(
            f"{first.named}{leads} cannot be seen inside the container",
            hint="add: " + " ".join(f"--bind {place}:ro" for place in places),
        )
    return tuple(
        UnreadablePath(named=link.name, real=real) for link, real in _links_out(folder, list(seen))
    )
