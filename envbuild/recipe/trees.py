"""Requirements that are source trees: a folder (``.``, ``-e ./sub``) or a git commit."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import urlsplit

from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.net.redact import mask_users
from envbuild.records import frozen_record

FOLDER = re.compile(r"(?:-e\s+|--editable[= ]\s*)?(\.(?:/[^\[\]]*)?)(?:\[([^\]]*)\])?")
GIT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\]\s*)?@\s*git\+(\S+)")
COMMIT = re.compile(r"[0-9a-f]{40}")
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
LOOPBACK = re.compile(r"127(?:\.\d+){3}|localhost|\[::1\]")
CACHES = frozenset(
    {"__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".git"}
)
PASSED_OVER = CACHES | {"build", "dist", "node_modules", "venv", ".venv"}
"""Folders of a project without git that hold nothing written by people."""
FORM = "write NAME @ git+https://HOST/PATH@COMMIT"


@frozen_record
class TreeLine:
    """One requirement on a tree.

    Of a folder: ``folder`` is its path below the project.  Of a repository: ``url`` without
    revision, ``revision`` as written (a commit, tag or branch; "" is the server's own choice),
    ``subfolder`` the package's place in it.
    """

    written: str
    name: str | None = None
    extras: Texts = ()
    folder: str | None = None
    url: str = ""
    revision: str = ""
    subfolder: str = ""

    def source(self, commit: str) -> str:
        """Return what a lock says of it: the folder, or the repository at a commit."""
        if self.folder is not None:
            return self.folder
        return f"git+{self.url}@{commit}" + (
            f"#subdirectory={self.subfolder}" if self.subfolder else ""
        )


def project_folder(recipe: Path) -> Path:
    """Return the folder that ``.`` means: the recipe's, or the one above ``recipes/``."""
    folder = recipe.resolve().parent
    return folder.parent if folder.name == "recipes" else folder


def read_tree_line(line: str) -> TreeLine | None:
    """Return the tree that a requirement asks for, None for one on an index.

    Raises UsageError for a path that leaves the project, an address with a password, and one that
    is not encrypted.
    """
    text = line.strip()
    found = FOLDER.fullmatch(text)
    if found:
        folder = found[1].rstrip("/") or "."
        if ".." in folder.split("/"):
            raise UsageError(
                f"{line!r} leaves the project's folder",
                hint="lock what lies in it, or name a repository",
            )
        return TreeLine(written=line, folder=folder, extras=_read_extras(found[2]))
    if "git+" not in text:
        return None
    found = GIT.fullmatch(text)
    if not found:
        raise UsageError(f"{line!r} names no package or no repository", hint=FORM)
    address, _, fragment = found[3].partition("#")
    url, revision = _read_revision(address)
    _check_address(url, line)
    if revision and (not REVISION.fullmatch(revision) or ".." in revision):
        raise UsageError(
            f"{revision!r} is not a commit, tag or branch", where=repr(line), hint=FORM
        )
    subfolder = _read_subfolder(fragment, line)
    return TreeLine(
        written=line,
        name=found[1],
        extras=_read_extras(found[2]),
        url=url,
        revision=revision,
        subfolder=subfolder,
    )


def read_source(source: str) -> TreeLine:
    """Return the tree that a lock names.  Raises UsageError for what no lock of ours says."""
    line = read_tree_line(f"tree @ {source}" if source.startswith("git+") else source)
    if line is None:
        raise UsageError(f"{source!r} is not a source tree")
    return line


def submodule_address(parent: str, address: str) -> str:
    """Return the address of a submodule, as .gitmodules has it, of the repository at ``parent``.

    Relative ones lie beside the parent; git's short form of ssh becomes the long one.  Raises
    UsageError for what a recipe could not name either.
    """
    if address.startswith(("./", "../")):
        scheme, _, rest = parent.partition("://")
        host, _, path = rest.partition("/")
        beside = posixpath.normpath(posixpath.join("/", path, address))
        return f"{scheme}://{host}{beside}"
    url = address
    short = re.fullmatch(r"([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):(?!//)/?(\S+)", address)
    if short:
        user, host, path = short.groups(default="")
        url = f"ssh://{user}{host}/{path}"
    _check_address(url, address)
    return url


def _read_extras(text: str | None) -> Texts:
    return tuple(sorted(part.strip() for part in (text or "").split(",") if part.strip()))


def _read_revision(address: str) -> tuple[str, str]:
    """Split at the @ behind the path; one before it belongs to a user."""
    head, slash, path = address.partition("://")[2].partition("/")
    scheme = address.partition("://")[0]
    path, _, revision = path.partition("@")
    return f"{scheme}://{head}{slash}{path}", revision


def _check_address(url: str, line: str) -> None:
    try:
        parts = urlsplit(url)
        host, password = parts.hostname or "", parts.password
    except ValueError as error:
        raise UsageError("is no address", where=repr(line), hint=FORM) from error
    where = repr(mask_users(line))
    if password is not None or (parts.username and parts.scheme != "ssh"):
        hint = "git's own credential helper, or ssh, knows how to log in"
        raise UsageError("a recipe must not contain a user or a password", where=where, hint=hint)
    plain = parts.scheme == "http" and LOOPBACK.fullmatch(host)
    if parts.scheme not in ("https", "ssh") and not plain:
        raise UsageError(
            f"git+{parts.scheme} is not taken",
            where=where,
            hint="write git+https://… or git+ssh://…",
        )
    if (
        not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\]|[0-9a-fA-F:]+", host)
        or parts.query
    ):
        raise UsageError("is not the address of a repository", where=where, hint=FORM)


def _read_subfolder(fragment: str, line: str) -> str:
    for part in filter(None, fragment.split("&")):
        key, _, value = part.partition("=")
        if key == "egg":
            continue
        if (
            key != "subdirectory"
            or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", value)
            or ".." in value
        ):
            raise UsageError(
                f"#{part} is not understood", where=repr(line), hint="write #subdirectory=FOLDER"
            )
        return value.strip("/")
    return ""
