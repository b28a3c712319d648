"""The user's shelves: ``shelves.toml`` beside the settings, pinned signers in files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.settings import Settings
from envbuild.shelf.backend import Backend
from envbuild.shelf.client import ShelfClient
from envbuild.shelf.folder import FolderBackend
from envbuild.shelf.git import GIT_URL, GitBackend, is_git
from envbuild.shelf.last_verified import last_verified_of
from envbuild.shelf.signatures import SignatureVerifier, read_signers
from envbuild.store.atomic import write_text
from envbuild.toml import TomlTable, closest, convert, read_toml, write_pairs

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
HEADING = "# Written by envbuild shelf add and remove.\n"


class ShelfConfig(TomlTable, frozen=True, kw_only=True):
    """One shelf: its place, whether signers are pinned, whether unsigned entries are refused."""

    url: Annotated[str, Meta(min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
    pinned: bool = False
    require_signed: bool = False


def _config_file(settings: Settings) -> Path:
    """Return the file that lists the shelves."""
    return settings.config.parent / "shelves.toml"


def _signers_file(name: str, settings: Settings) -> Path:
    """Return where the allowed signers of a shelf are pinned."""
    return settings.config.parent / "shelves" / f"{name}.signers"


def read_shelves(settings: Settings) -> dict[str, ShelfConfig]:
    """Return the user's shelves by name.  Raises UsageError for a file that is wrong."""
    path = _config_file(settings)
    if not path.is_file():
        return {}
    data, text = read_toml(path)
    found = convert(data, dict[str, ShelfConfig], text=text, where=str(path))
    for name in found:
        require_name(name)
    return found


def require_name(name: str) -> None:
    """Raise UsageError for what cannot name a shelf."""
    if not NAME.fullmatch(name):
        raise UsageError(
            "is not a valid shelf name", where=name, hint="letters, digits, underscore and hyphen"
        )


def add_shelf(name: str, shelf: ShelfConfig, signers: Path | None, settings: Settings) -> None:
    """Add a shelf, with a copy of its allowed signers that its writers cannot change."""
    require_name(name)
    if signers is not None:
        write_text(_signers_file(name, settings), read_signers(signers))
    _write_shelves({**read_shelves(settings), name: shelf}, settings)
    if signers is None:
        _signers_file(name, settings).unlink(missing_ok=True)


def remove_shelf(name: str, settings: Settings) -> ShelfConfig:
    """Forget a shelf, which itself stays.  Raises UsageError for an unknown one."""
    known = read_shelves(settings)
    shelf = known.pop(name, None)
    if shelf is None:
        raise UsageError(
            f'there is no shelf "{name}"{closest(name, known)}', where=_config_file(settings)
        )
    _write_shelves(known, settings)
    _signers_file(name, settings).unlink(missing_ok=True)
    return shelf


def _write_shelves(known: Mapping[str, ShelfConfig], settings: Settings) -> None:
    lines = [HEADING.rstrip("\n")]
    for name, shelf in sorted(known.items()):
        fields = msgspec.to_builtins(shelf)
        said = {key: value for key, value in fields.items() if value}
        lines += ["", f"[{name}]", *write_pairs(said)]
    write_text(_config_file(settings), "\n".join(lines) + "\n")


def open_shelf(name: str, context: Context) -> ShelfClient:
    """Open a shelf of the user's, unread.  Raises UsageError for an unknown one."""
    settings = context.settings
    known = read_shelves(settings)
    if name not in known:
        hint = "envbuild shelf add SHELF URL" if not known else None
        raise UsageError(f'there is no shelf "{name}"{closest(name, known)}', hint=hint)
    shelf = known[name]
    signers = _signers_file(name, settings) if shelf.pinned else None
    if signers is not None:
        read_signers(signers)  # a lost file must not turn into "anybody may sign"
    return ShelfClient(
        name,
        backend_of(shelf.url, context),
        SignatureVerifier(runner=context.runner, environment=settings.environment, signers=signers),
        last_verified_of(shelf.url, settings),
        require_signed=shelf.require_signed,
    )


def backend_of(url: str, context: Context) -> Backend:
    """Return the backend for a place as ``normal_url`` writes it."""
    return GitBackend(url, context) if is_git(url) else FolderBackend(Path(url))


def normal_url(text: str, settings: Settings) -> str:
    """Return a place as it is kept: a URL, or the absolute path of a folder or repository."""
    if GIT_URL.fullmatch(text):
        return text
    if re.match(r"[\w+]+::", text) or ("://" in text and not text.startswith("file://")):
        hint = "a folder, git+file://, git+ssh://, git+https://, ssh:// or USER@HOST:PATH"
        raise UsageError("is not a place for a shelf", where=text, hint=hint)
    return os.path.normpath(settings.cwd / text.removeprefix("file://"))
