"""Text of strangers on a terminal."""

from __future__ import annotations

import re

from envbuild.toml import UNSEEN

HIDING = re.compile(rf"[\x00-\x1f\x7f-\x9f{UNSEEN}]")
"""Characters that move a terminal's cursor, hide text or turn its direction."""


def sanitize_text(text: str) -> str:
    """Return text of a stranger so that a terminal shows all of it, and nothing else happens."""
    return HIDING.sub("\N{REPLACEMENT CHARACTER}", text)
