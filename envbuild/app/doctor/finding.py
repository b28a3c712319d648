"""One line of the doctor, and what is shared by those who write them."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["fine", "differs", "broken"]
GB = 10**9


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor: ``mend`` is the command or advice, empty where nothing is to be mended."""

    name: str
    verdict: Verdict
    value: str
    mend: str = ""
