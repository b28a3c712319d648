"""The values on the pages, chosen and ordered; templates only lay them out."""

from __future__ import annotations

from envbuild.names import Texts
from envbuild.records import frozen_record


@frozen_record
class CheckProof:
    """One verdict: ``outcome`` is "passed", "failed" or "skipped", ``day`` an ISO date."""

    outcome: str
    level: str
    day: str
    gpu: str = ""
    driver: str = ""
    target: str = ""


@frozen_record
class TreemapTile:
    """A rectangle of the treemap, in units of its drawing (1000 x 500); ``size`` in bytes."""

    x: float
    y: float
    width: float
    height: float
    layer: str
    label: str
    size: int


@frozen_record
class DependencyNode:
    """A package in the dependency tree; ``again``: its needs are shown elsewhere."""

    name: str
    version: str
    size: int
    needs: tuple[DependencyNode, ...] = ()
    again: bool = False


@frozen_record
class HistoryEntry:
    """One entry of the history: what changed in the lock since the one before."""

    number: int
    digest: str
    day: str
    who: str
    changes: Texts
    same_lock: bool = False


@frozen_record
class PageCommand:
    """Lines to copy: what they do, and they themselves."""

    title: str
    lines: str


@frozen_record
class EntryPage:
    """A name of the shelf with its page; ``refused`` is why it must not be used, or ""."""

    name: str
    digest: str = ""
    number: int = 0
    summary: str = ""
    framework: str = ""
    cuda: str = ""
    python: str = ""
    base: str = ""
    platform: str = ""
    who: str = ""
    day: str = ""
    signer: str = ""
    size: int = 0
    size_of: str = ""
    lock: str = ""
    image: str = ""
    direct: Texts = ()
    proofs: tuple[CheckProof, ...] = ()
    roots: tuple[DependencyNode, ...] = ()
    tiles: tuple[TreemapTile, ...] = ()
    sizes: tuple[tuple[str, str, str, int], ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    commands: tuple[PageCommand, ...] = ()
    recipe: str = ""
    post: Texts = ()
    refused: str = ""

    @property
    def words(self) -> str:
        """What the search box looks at, in lower case."""
        gpus = " ".join(proof.gpu for proof in self.proofs)
        parts = (
            self.name,
            self.summary,
            self.framework,
            f"cuda {self.cuda}" if self.cuda else "",
            self.python,
        )
        return " ".join((*parts, self.base, *self.direct, gpus, self.who)).casefold()

    @property
    def verdict(self) -> CheckProof | None:
        """The newest verdict on the image; one for a target only where there is no other."""
        return (
            max(self.proofs, key=lambda proof: (not proof.target, proof.day))
            if self.proofs
            else None
        )
