"""GPUs by the names that people and tools give them (data/cuda.toml)."""

from __future__ import annotations

import re

from envbuild.data.tables import load_cuda
from envbuild.errors import UsageError
from envbuild.toml import closest

MAKERS = re.compile(r"nvidia|tesla|geforce|quadro|grid|hgx")
MACHINES = re.compile(r"(?:dgx|drive|igx|jetson) (?:agx )?")
"""Machines that are called by the chip in them ("DGX A100")."""
GEFORCE = re.compile(r"(?:(1[06])|[2-5]0)[5-9]0(?!\d)")
"""GeForce cards that are called by their number alone ("3090", "1080ti")."""
SERIES = re.compile(r"(?:rtx|gtx) \d\d?")
"""Names of the table that stand for all cards that begin like them (RTX 30: 3060 to 3090)."""


def capability_of(text: str) -> int:
    """Return the capability (times ten) of a card, "8.0" or "sm_80".  Raises UsageError."""
    plain = re.fullmatch(r"(?:sm_|compute_)?(\d{2,3})[a-z]?|(\d{1,2})\.(\d)", text.strip().lower())
    if plain:
        return int(plain[1] or plain[2] + plain[3])
    found: list[tuple[str, int]] = []
    for wanted in _spellings(text):
        found += [pair for pair in _card_capabilities() if _is_card(wanted, pair[0])]
    best = max(found, key=lambda pair: len(pair[0]), default=None)
    if best is None:
        listed = ",".join(row.names for row in load_cuda().gpu)
        known = [name.strip() for name in listed.split(",")]
        raise UsageError(
            f'the GPU "{text}" is not known{closest(text, known)}',
            where="--gpu",
            hint=f"give its compute capability (--gpu 8.0), or one of: {', '.join(known)}",
        )
    return best[1]


def is_geforce(text: str) -> bool:
    """Tell whether a card is one for games, which has no forward compatibility."""
    plain = text.lower().replace("_", " ")
    is_named = re.search(rf"geforce|gtx|titan|rtx[\s-]*{GEFORCE.pattern}", plain)
    return is_named is not None or GEFORCE.match(plain) is not None


def _spellings(text: str) -> list[str]:
    """Return how the table may have a name; schedulers write them with underscores."""
    wanted = MAKERS.sub("", text.lower().replace("_", " ")).strip(" -")
    number = GEFORCE.match(wanted)
    if number is not None:
        return [f"gtx {wanted}" if number[1] else f"rtx {wanted}"]
    return [wanted, MACHINES.sub("", wanted)]


def _card_capabilities() -> list[tuple[str, int]]:
    found = []
    for row in load_cuda().gpu:
        names = f"{row.names},{row.also}".lower().split(",")
        found += [(name.strip(), row.capability) for name in names if name]
    return found


def _is_card(wanted: str, card: str) -> bool:
    """Tell whether a printed name ("h100 80gb") begins with a card's, spaces aside."""
    pattern = r"[\s-]*".join(map(re.escape, re.findall(r"[a-z]+|\d+", card)))
    more = r"\d{0,2}" if SERIES.fullmatch(card) else ""
    return re.match(rf"{pattern}{more}(?!\d)", wanted) is not None
