"""What a definition copies into the image: its lines, and the project's files behind the paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from envbuild.limits import split_words
from envbuild.names import Pairs
from envbuild.project.tree import is_file, is_inside, shown_path


def read_copies(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Read the lines of %files: a source, and where it goes if that is another place."""
    for line in lines:
        try:
            words = split_words(line, comments=True)
        except ValueError:
            continue
        if words:
            yield words[0], words[-1]


def copied_folders(copies: Pairs, path: Path, root: Path) -> Pairs:
    """Return (path inside the image, folder of the project) for each folder that is copied."""
    folders = []
    for source, target in copies:
        folder = path.parent / source
        if target.startswith("/") and is_inside(folder, root) and _is_folder(folder):
            folders.append((target, shown_path(folder, root)))
    # what lies deeper says more
    return tuple(sorted(folders, key=lambda one: -len(one[0])))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no name of a file: too long
        return False


def find_copied(name: str, copies: Pairs, path: Path, root: Path) -> Path | None:
    """Find the project's file for a path inside the image: by the copies, else by its name."""
    wanted = Path(name).name
    copied = [
        f"{source}/{name.removeprefix(target.rstrip('/'))}"
        for source, target in copies
        if name.startswith(f"{target.rstrip('/')}/")
    ]
    copied += [
        source
        for source, target in copies
        if Path(target).name == wanted or Path(source).name == wanted
    ]
    plain = (source for source in copied if "*" not in source)
    tries = [base / source for source, base in itertools.product(plain, (path.parent, root))]
    tries += [path.parent / wanted, root / name.lstrip("/"), root / wanted]
    return next((one for one in tries if is_file(one) and is_inside(one, root)), None)
