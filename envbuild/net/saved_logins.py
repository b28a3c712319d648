"""Logins that rattler or pixi (``auth login``) has saved: tokens and passwords by host."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import msgspec

from envbuild.limits import UNREADABLE
from envbuild.settings import Settings


class _Password(msgspec.Struct, frozen=True):
    username: str
    password: str


class _Login(msgspec.Struct, frozen=True):
    """One login of rattler's credentials file; of its kinds those that are a header."""

    bearer: str | None = msgspec.field(name="BearerToken", default=None)
    basic: _Password | None = msgspec.field(name="BasicHTTP", default=None)


def basic_login(user: str, password: str) -> str:
    """Return the header Authorization of a user (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def is_word(token: str) -> bool:
    """Tell whether a token can stand in a header."""
    return token.isascii() and token.isprintable()


def saved_logins(settings: Settings) -> Mapping[str, str]:
    """Return the header Authorization by host; none where the file is absent or cannot be read."""
    named = settings.environment.get("RATTLER_AUTH_FILE")
    path = Path(named) if named else settings.home / ".rattler/credentials.json"
    try:
        logins = msgspec.json.decode(path.read_bytes(), type=dict[str, _Login])
    except (OSError, *UNREADABLE):
        return {}
    found = {}
    for host, login in logins.items():
        if login.bearer is not None and is_word(login.bearer):
            found[host] = f"Bearer {login.bearer}"
        elif login.basic is not None:
            found[host] = basic_login(login.basic.username, login.basic.password)
    return found
