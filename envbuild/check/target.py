"""The node that an image is meant for: its GPUs, driver and C library, told instead of looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envbuild.check import facts
from envbuild.errors import UsageError
from envbuild.toml import closest

MAKERS = re.compile(r"nvidia|tesla|geforce|quadro")
SERIES = re.compile(r"(?:rtx|gtx) \d\d?")
"""Names of the table that stand for all cards that begin like them (RTX 30: 3060 to 3090)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A kind of node; ``capability`` is times ten, ``gpu`` what the user called it; None is not told."""

    gpu: str | None = None
    capability: int | None = None
    driver: str | None = None
    glibc: str | None = None

    def __str__(self) -> str:
        named = (
            self.gpu,
            f"driver {self.driver}" if self.driver else None,
            f"glibc {self.glibc}" if self.glibc else None,
        )
        return ", ".join(text for text in named if text)


def read_target(*, gpu: str | None = None, driver: str | None = None, glibc: str | None = None) -> Target | None:
    """Read what was told about a kind of node; None where nothing was.

    ``gpu`` is a card ("A100", "Tesla V100S-PCIE-32GB", "RTX 3090") or a compute capability ("8.0", "sm_80").
    Raises UsageError for an unknown card and for versions that are none.
    """
    if gpu is None and driver is None and glibc is None:
        return None
    for option, text in (("--driver", driver), ("--glibc", glibc)):
        if text is not None and not re.fullmatch(r"\d+(\.\d+){1,2}", text):
            example = "450.80.02 (nvidia-smi shows it)" if option == "--driver" else "2.28 (ldd --version shows it)"
            raise UsageError(f"{text!r} is no version", where=option, hint=f"for example {option} {example}")
    return Target(gpu=gpu, capability=None if gpu is None else capability_of(gpu), driver=driver, glibc=glibc)


def capability_of(text: str) -> int:
    """Return the compute capability (times ten) of a card, or of "8.0" and "sm_80".  Raises UsageError."""
    plain = re.fullmatch(r"(?:sm_|compute_)?(\d{2,3})[a-z]?|(\d{1,2})\.(\d)", text.strip().lower())
    if plain:
        return int(plain[1] or plain[2] + plain[3])
    wanted = MAKERS.sub("", text.lower()).strip()
    best = max((pair for pair in _cards() if _is_card(wanted, pair[0])), key=lambda pair: len(pair[0]), default=None)
    if best is None:
        known = [name.strip() for row in facts.cuda().gpu for name in row.names.split(",")]
        raise UsageError(
            f'the GPU "{text}" is not known{closest(text, known)}',
            where="--gpu",
            hint=f"give its compute capability (--gpu 8.0), or one of: {', '.join(known)}",
        )
    return best[1]


def _cards() -> list[tuple[str, int]]:
    return [
        (name.strip().lower(), row.capability)
        for row in facts.cuda().gpu
        for name in f"{row.names},{row.also}".split(",")
        if name
    ]


def _is_card(wanted: str, card: str) -> bool:
    """Tell whether a name as tools print it ("h100 80gb") begins with a card's; spaces and dashes do not matter."""
    pattern = r"[\s-]*".join(map(re.escape, re.findall(r"[a-z]+|\d+", card)))
    more = r"\d{0,2}" if SERIES.fullmatch(card) else ""
    return re.match(rf"{pattern}{more}(?!\d)", wanted) is not None
