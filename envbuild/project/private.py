"""Keep secrets out of recipes, and control characters off the terminal."""

from __future__ import annotations

import re

NAMES = re.compile(
    r"KEY|TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|^PGPASS", re.IGNORECASE
)
"""What a variable's name has in it when its value is nobody else's business."""
LOADERS = {"LD_PRELOAD", "LD_AUDIT"}
"""Variables that load a library of another image into every program."""
USER = re.compile(r"(?<=://)[^/@\s'\"]+@")
KNOWN = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{16,}"
    r"|AKIA[A-Z0-9]{12,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{20,}|eyJ[\w-]{10,999}\.[\w-]{10,}\.[\w-]*)"
)
"""Shapes of keys that services give out."""
WORD = r"[\w-]{0,40}(?:api[_-]?key|token|secret|passw(?:or)?d|passphrase|credential)s?"
GIVEN = re.compile(
    rf"((?:--{WORD}(?:\s+|=)|\b{WORD}\s*[:=]\s*))(?![=$])[\"']?[^\s\"'&;$]{{4,}}", re.IGNORECASE
)
"""A word that names a secret, with a value after it (--token abcdef, ?access_token=abcdef)."""

SPOKEN = re.compile(
    r"\b(?:password|token|secret)\s+(?=\S*\d)[^\s$]{6,}|\b(?:Bearer"
    r"|Basic)\s+[A-Za-z0-9._~+/=-]{8,}|\bchpasswd\b",
    re.IGNORECASE,
)
"""A secret after a space: in a .netrc, in a header, for chpasswd."""


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return bool(NAMES.search(name))


def is_loader(name: str) -> bool:
    """Whether a variable loads a library into every program."""
    return name.upper() in LOADERS


def has_secret(text: str) -> bool:
    """Whether a text has a user in an address, or what looks like a key."""
    assigned = re.findall(r"\b([A-Za-z_]\w*)=(?=[^\s$=])", text)
    if any(shape.search(text) for shape in (USER, KNOWN, GIVEN, SPOKEN)):
        return True
    return any(map(is_secret_name, assigned))


def without_secrets(text: str) -> str:
    """Return a text to show: addresses without their user, keys replaced."""
    text = re.sub(r"/t/[A-Za-z0-9-]{8,}/", "/t/…/", USER.sub("", text))
    return SPOKEN.sub("…", GIVEN.sub(r"\1…", KNOWN.sub("…", text)))
