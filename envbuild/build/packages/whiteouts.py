"""The files of a base's Python packages that others replace.

Hidden in the image as an installer would remove them.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from itertools import product

from packaging.utils import canonicalize_name

from envbuild.build.in_base.install_scheme import Scheme
from envbuild.formats.file_tree import Tree, TreeEntry, resolve_links
from envbuild.formats.oci_layer import WHITEOUT

Read = Callable[[str], bytes | None]
"""Returns the content of a file of the base by its path."""
METADATA = re.compile(
    r"(?P<name>[A-Za-z0-9._+]+?)-[^/]*\.(dist|egg)-info$|(?P<bare>[A-Za-z0-9._+]+)\.egg-info$"
)


def replaced_entries(
    tree: Tree, names: Collection[str], scheme: Scheme, read: Read
) -> tuple[TreeEntry, ...]:
    """Return the marks that hide what the base holds of packages with these canonical names.

    Only what would shadow the new package or lie under it is hidden: copies in folders that Python
    looks into later (Debian's own) stay, as an installer leaves them.
    """
    return whiteout_entries(tree, replaced_paths(tree, names, scheme, read))


def replaced_paths(
    tree: Tree, names: Collection[str], scheme: Scheme, read: Read
) -> frozenset[str]:
    """Return the paths of what the base holds of packages with these canonical names."""
    wanted = {canonicalize_name(name) for name in names}
    places = _install_folders(scheme)
    gone: set[str] = set()
    for path in tree:
        site, _, info = path.rpartition("/")
        found = METADATA.match(info) if site in places else None
        if found and canonicalize_name(found["name"] or found["bare"]) in wanted:
            gone |= set(_distribution_files(tree, path, read))
    return frozenset(gone)


def _install_folders(scheme: Scheme) -> set[str]:
    """Return the folders that packages go to, and those before them on the path."""
    own = {scheme.site, scheme.platform or scheme.site}
    # copies in later folders of sys.path stay: an installer would not remove them either
    last = max((number for number, path in enumerate(scheme.path) if path in own), default=-1)
    return own | set(scheme.path[: last + 1])


def _distribution_files(tree: Tree, info: str, read: Read) -> Iterator[str]:
    """Yield the paths of a distribution's files, by its own list; its metadata always."""
    site = info.rpartition("/")[0]
    yield from _paths_below(tree, info)
    # RECORD for wheels, installed-files.txt for eggs; without either only what top_level.txt names
    record = read(f"{info}/RECORD")
    listed = read(f"{info}/installed-files.txt") if record is None else record
    if listed is not None:
        names = _listed_names(listed, info if record is None else site)
    else:
        modules = (read(f"{info}/top_level.txt") or b"").decode("utf-8", "replace").split()
        names = []
        for module in filter(str.isidentifier, modules):
            names += [f"{site}/{module}", f"{site}/{module}.py"]
    for name in names:
        folder, _, base = name.rpartition("/")
        path = f"{resolve_links(tree, folder)}/{base}"
        if path not in tree:
            continue
        entry, _ = tree[path]
        if entry.kind != "d":
            yield path
        elif listed is None:
            yield from _paths_below(tree, path)
        if base.endswith(".py"):
            yield from _module_bytecode(tree, path)


def _listed_names(listed: bytes, folder: str) -> list[str]:
    """Return the paths of a list of files, whose names are relative to a folder."""
    rows = csv.reader(listed.decode("utf-8", "replace").splitlines())
    paths = [posixpath.join("/", folder, row[0]) for row in rows if row]
    return [posixpath.normpath(path).lstrip("/") for path in paths]


def _paths_below(tree: Tree, path: str) -> Iterator[str]:
    if path in tree:
        yield path
        if tree[path][0].kind == "d":
            yield from (other for other in tree if other.startswith(f"{path}/"))


def _module_bytecode(tree: Tree, path: str) -> Iterator[str]:
    """Yield the bytecode of a module."""
    folder, _, name = path.rpartition("/")
    start = f"{folder}/__pycache__/{name.removesuffix('.py')}."
    for end in _bytecode_tags(tree, f"{folder}/__pycache__"):
        if f"{start}{end}" in tree:
            yield f"{start}{end}"


def _bytecode_tags(tree: Tree, folder: str) -> Collection[str]:
    """Return the endings that bytecode of CPython may have."""
    if folder not in tree:
        return ()
    tags = product(range(6, 20), ("", ".opt-1", ".opt-2"))
    return [f"cpython-3{minor}{optimized}.pyc" for minor, optimized in tags]


def whiteout_entries(tree: Tree, gone: Collection[str]) -> tuple[TreeEntry, ...]:
    """Return a mark for each path, and for folders that have lost all that was in them."""
    left: dict[str, int] = {}
    for path in tree:
        if path:
            folder = path.rpartition("/")[0]
            left[folder] = left.get(folder, 0) + 1
    # a folder that has lost everything goes too, and then maybe its parent
    todo, hidden = sorted(gone), set(gone)
    while todo:
        path = todo.pop()
        folder = path.rpartition("/")[0]
        left[folder] -= 1
        if not left[folder] and folder and folder not in hidden:
            hidden.add(folder)
            todo.append(folder)
    marks = []
    for path in sorted(hidden):
        folder, _, name = path.rpartition("/")
        if folder not in hidden:
            mark = f"{folder}/{WHITEOUT}{name}" if folder else f"{WHITEOUT}{name}"
            marks.append(TreeEntry(mark, "w", 0))
    return tuple(marks)
