"""A draft while it is made, and how its comments name things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.data.package_tables import OldUse
from envbuild.project.gather import ProjectFindings
from envbuild.project.model import Proposal, Release, Requirement
from envbuild.store.units import listing

MOST_NAMED = 8
"""Names that a comment lists before it breaks off."""


@dataclass(slots=True)
class DraftBuilder:
    """A draft while it is made."""

    gathered: ProjectFindings
    releases: Mapping[str, Release] = field(default_factory=dict)
    old: Mapping[OldUse, str] = field(default_factory=dict)
    requirements: list[Requirement] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    beside: dict[tuple[str, str, str], str] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    proposals: list[Proposal] = field(default_factory=list)

    def note(self, section: str, text: str) -> None:
        """Add a comment under a section, once."""
        lines = self.below.setdefault(section, [])
        if text not in lines:
            lines.append(text)


def name_few(names: Sequence[str]) -> str:
    """Return names with commas, the last ones as a number."""
    return listing(names, MOST_NAMED)
