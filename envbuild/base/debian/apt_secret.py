"""Give apt passwords without writing them into the store, which others may read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envbuild.errors import UsageError
from envbuild.net.redact import USER, redact, without_user
from envbuild.store.atomic import write_text


def with_passwords(config: Path, url: str, own: Path, network: Iterable[str]) -> Path:
    """Return an apt configuration with passwords, in a folder ``own`` that nobody else may enter.

    ``network`` are lines that may hold those of proxies; that of the mirror ``url`` comes from it
    (apt_auth.conf(5)). Raises UsageError for blanks in user or password, which that file cannot
    hold.
    """
    parts, login = urlsplit(url), ""
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
        if not user or re.search(r"\s", user + password):
            raise UsageError(
                "user and password of a mirror cannot be empty or hold blanks", where=redact(url)
            )
        place = without_user(url).rstrip("/")
        login = f"machine {place} login {user} password {password}\n"
    write_text(own / "auth.conf", login, mode=0o600)
    secret = (line for line in network if USER.search(line))
    lines = (config.read_text("utf-8"), *secret, f'Dir::Etc::netrc "{own}/auth.conf";')
    write_text(own / "apt.conf", "\n".join(lines) + "\n", mode=0o600)
    return own / "apt.conf"
