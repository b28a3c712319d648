"""Is a process on the GPU now: its whole family against what the driver lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from envbuild.check.gpu_use.nvml import Card
from envbuild.records import frozen_record
from envbuild.store.units import human_bytes

PATIENCE = 12
"""Looks without the GPU after which that is said to be wrong (a minute: imports take that long)."""


def find_family(pid: int, proc: Path = Path("/proc")) -> frozenset[int]:
    """Return a process and all its descendants; of one that has ended only itself."""
    parents: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
            except (OSError, IndexError, ValueError):
                continue  # it ended while we looked
    found, left = {pid}, [pid]
    while left:
        for child in parents.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
    return frozenset(found)


@frozen_record
class Look:
    """One look: the cards with a process of the family, all cards, and the family's bytes."""

    mine: tuple[Card, ...]
    cards: tuple[Card, ...]
    memory: int

    def __str__(self) -> str:
        if self.mine:
            return "; ".join(f"on {_card(card)}" for card in self.mine)
        others = sum(len(card.processes) for card in self.cards)
        beside = f"; {others} other processes are" if others else ""
        return f"not on the GPU ({'; '.join(map(_card, self.cards)) or 'the driver shows none'}{beside})"


def find_on_cards(pids: frozenset[int], cards: tuple[Card, ...]) -> Look:
    """Find a family on the cards."""
    mine = tuple(card for card in cards if pids & card.processes.keys())
    memory = 0
    for card in mine:
        memory += sum(held or 0 for pid, held in card.processes.items() if pid in pids)
    return Look(mine=mine, cards=cards, memory=memory)


def _card(card: Card) -> str:
    busy = "" if card.busy is None else f", {card.busy}% busy"
    return (
        f"GPU {card.index} {card.name}: {human_bytes(card.used)} of {human_bytes(card.total)}{busy}"
    )


@dataclass
class Course:
    """All looks at one command, summed up."""

    looks: int = 0
    on_gpu: int = 0
    most: int = 0
    busy: list[int] = field(default_factory=list)

    def add(self, seen: Look) -> None:
        """Count one look."""
        self.looks += 1
        self.on_gpu += bool(seen.mine)
        self.most = max(self.most, seen.memory)
        self.busy += [card.busy for card in seen.mine if card.busy is not None]

    def warning(self) -> str | None:
        """Say once that the GPU is not used, after PATIENCE looks."""
        if self.looks != PATIENCE or self.on_gpu:
            return None
        return "it has not come to the GPU yet: envbuild check NAME --require-gpu tells why, in another shell on this node"

    def __str__(self) -> str:
        if not self.looks:
            return "it ended before the first look"
        if not self.on_gpu:
            return f"never on the GPU in {self.looks} looks"
        busy = f", {sum(self.busy) / len(self.busy):.0f}% busy on average" if self.busy else ""
        return f"on the GPU in {self.on_gpu} of {self.looks} looks, at most {human_bytes(self.most)}{busy}"
