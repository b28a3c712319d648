"""What making a lock needs of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.settings import Settings
from envbuild.store.layout import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """What deciding a lock needs of the machine."""

    settings: Settings
    runner: Runner
    store: Store
    report: Reporter
