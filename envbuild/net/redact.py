"""Keep user and password of an address out of messages and files."""

from __future__ import annotations

import re

from envbuild.store.units import as_printable

USER = re.compile(r"//[^/?#\s]*@")
"""User and password of a URL, as they stand in any text (RFC 3986, 3.2.1)."""
TOKEN = re.compile(r"/t/[^/\s]+/")
"""A token in the address of a conda channel."""


def mask_users(text: str) -> str:
    """Return a text with user, password and conda token of every URL in it masked."""
    return TOKEN.sub("/t/***/", USER.sub("//***@", text))


def redact(url: str) -> str:
    """Return a URL fit for messages: without user, password, query and fragment."""
    shown = re.split(r"[?#]", mask_users(url), maxsplit=1)[0]
    return as_printable(shown)


def without_user(url: str) -> str:
    """Return a URL without user and password, fit to be written into a file that others read."""
    return re.sub(r"^([a-z+]+:)//[^/?#]*@", r"\1//", url, flags=re.IGNORECASE)


def without_token(url: str) -> str:
    """Return a conda channel's URL without user, password and token."""
    return TOKEN.sub("/", without_user(url))
