"""What every stage gets of this machine: its settings, the door to processes, the store, the reporter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.settings import Settings
from envbuild.store.layout import Store, open_store

if TYPE_CHECKING:
    from envbuild.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every stage gets of this machine.

    ``runner`` starts all processes, ``report`` is where progress is said; ``store`` is the one that
    the settings name, with those that it reads.
    """

    settings: Settings
    runner: Runner
    store: Store
    report: Reporter

    @cached_property
    def runtime(self) -> Runtime:
        """The container runtime, looked for once.  Raises HostError where there is none."""
        from envbuild.runtime_search import (
            find_runtime,  # late: a make that changes nothing runs nothing
        )

        return find_runtime(self.settings, self.runner)

    def with_runtime(self, runtime: Runtime) -> Context:
        """Return this context with another runtime, such as one that lays a layer over images."""
        other = replace(self)
        other.__dict__["runtime"] = runtime
        return other


def open_context(settings: Settings, runner: Runner, report: Reporter) -> Context:
    """Return the context for these settings, with the store that they name."""
    store = open_store(settings)
    return Context(settings=settings, runner=runner, store=store, report=report)
