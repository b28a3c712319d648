"""Find the CUDA version in a version, an index, a conda pin or the tag of an image."""

from __future__ import annotations

import re

SHORT = re.compile(r"(?:^|[^A-Za-z0-9])cu(?:da)?(\d{1,2})(\d)(?![\d.])")
LONG = re.compile(r"cu(?:da)?[-:=_]?(\d{1,2}(?:\.\d+)?)(?![\d])")
LOCAL = re.compile(r"(?:\+|%2[Bb])[\w.]*?cu(?:da)?(\d{2,3})")


def cuda_of(text: str) -> str | None:
    """Return the CUDA version in a text such as "2.0.1+cu118" or "cuda:11.3.1-runtime".

    Wheels write it without a dot: "118" is 11.8, "92" is 9.2, "12" is any 12.
    """
    local = LOCAL.search(text)
    if local:
        return _dotted(local[1])
    short = SHORT.search(text)
    if (
        short
        and int(short[1]) >= 9
        and not (len(short[1]) == 1 and short[1] + short[2] in ("11", "12", "13"))
    ):
        return _dotted(short[1] + short[2])
    long = LONG.search(text)
    return long[1] if long and 9 <= float(long[1]) < 20 else None


def _dotted(digits: str) -> str:
    if len(digits) < 3 and digits in ("10", "11", "12", "13", "14"):
        return digits
    return f"{digits[:-1]}.{digits[-1]}"
