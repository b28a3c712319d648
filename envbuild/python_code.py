"""Read a stranger's Python code."""

from __future__ import annotations

import ast
import re
import warnings

HUGE = re.compile(r"\b0[xXbBoO][0-9a-fA-F_]{3500}")
"""A number that Python reads, but does not write: over 4,300 digits (``int``'s limit)."""


def parse_code(text: str) -> ast.Module | None:
    """Return the syntax tree of code; None for what this Python cannot read, or write again."""
    if HUGE.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes of a stranger's strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
