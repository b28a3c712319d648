"""Read what a setup.py hands to setup(), without running it."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.names import Texts
from envbuild.project.lists.declared import split_requirements
from envbuild.project.lists.requirements import read_requirements
from envbuild.project.model import FileFindings
from envbuild.project.tree import is_file, is_inside, read_text, shown_path
from envbuild.python_code import parse_code
from envbuild.resolve.setup_py.handed import Handed, lines_of
from envbuild.resolve.setup_py.read import read_setup

LIST = re.compile(r"['\"]/?([\w./-]*require[\w.-]*\.(?:txt|in))['\"]")
LONG_LIST = 5
"""Requirements from which on a setup.py's list is taken for whole."""


class _Texts(dict[str, str]):
    """The texts beside a setup.py, read when it asks for them; those asked for are kept."""

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__()
        self.folder, self.root = folder, root

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """Return the text of a file of the project."""
        path = self.folder / name
        text = read_text(path) if is_inside(path, self.root) else None
        if text is None:
            return default
        self[name] = text
        return text


def read_setup_py(path: Path, root: Path) -> FileFindings | None:
    """Read a setup.py's install_requires and python_requires; None without setup().

    Nothing in it is run.  What cannot be told from the text alone is noted.
    """
    file = shown_path(path, root)
    text = read_text(path) or ""
    if parse_code(text) is None:
        return FileFindings(file=file, notes=(f"{file} is not read: no Python 3",))
    texts = _Texts(path.parent, root)
    handed = read_setup(text, texts)
    if handed is None:
        return _from_file(path, root, text, Handed()) if re.search(r"\bsetup\(", text) else None
    lines = handed.lines("install_requires")
    if lines is None:
        return _from_file(path, root, text, handed)
    same = next(
        (name for name, said in texts.items() if lines and list(lines) == lines_of(said)), None
    )
    if same is not None:
        return _from_list(path.parent / same, root, file, handed)
    requirements, aside = split_requirements(lines, file)
    python = _text_keyword(handed, "python_requires")
    notes: Texts = ()
    if "python_requires" in handed.keywords and python is None:
        notes = (f"{file}: python_requires is computed, so it is not known",)
    if not requirements and not aside and python is None and not notes:
        return None
    return FileFindings(
        file=file,
        requirements=requirements,
        aside=aside,
        python=python,
        notes=notes,
        project=_project_name(handed),
        complete=len(requirements) >= LONG_LIST,
    )


def _from_file(path: Path, root: Path, text: str, handed: Handed) -> FileFindings:
    """Take the list with the shortest name of those that a computing setup.py names."""
    file = shown_path(path, root)
    for name in sorted(
        {match[1] for match in LIST.finditer(text)}, key=lambda name: (len(name), name)
    ):
        other = path.parent / name
        if is_file(other) and is_inside(other, root):
            return _from_list(other, root, file, handed)
    return FileFindings(
        file=file,
        python=_text_keyword(handed, "python_requires"),
        project=_project_name(handed),
        notes=(f"{file} computes its requirements; it is not run, so they are not known",),
    )


def _from_list(other: Path, root: Path, file: str, handed: Handed) -> FileFindings:
    """Return what a setup.py says whose list stands in a requirements file."""
    found = read_requirements(other, root)
    note = f"{file} computes its requirements; they are taken from {found.file}, which it names"
    return FileFindings(
        file=file,
        requirements=found.requirements,
        aside=found.aside,
        notes=(*found.notes, note),
        python=_text_keyword(handed, "python_requires"),
        project=_project_name(handed),
        frozen=found.frozen,
        cuda=found.cuda,
        complete=len(found.requirements) >= LONG_LIST,
    )


def _text_keyword(handed: Handed, keyword: str) -> str | None:
    value = handed.keywords.get(keyword)
    return (value.strip() or None) if isinstance(value, str) else None


def _project_name(handed: Handed) -> str | None:
    name = _text_keyword(handed, "name")
    return canonicalize_name(name) if name else None
