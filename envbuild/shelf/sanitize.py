"""Text of strangers on a terminal."""

from __future__ import annotations

import re

HIDING = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters that move a terminal's cursor, hide text or turn its direction."""


def sanitize_text(text: str) -> str:
    """Return text of a stranger so that a terminal shows all of it, and nothing else happens."""
    return HIDING.sub("\N{REPLACEMENT CHARACTER}", text)
