"""The interface of what builds from the written definition: one file each."""

from __future__ import annotations

from typing import Protocol

from envbuild.build.model import DefinitionBuild
from envbuild.run import Command
from envbuild.runtime import Runtime


class Builder(Protocol):
    """A way to build: it writes the commands, it does not run them."""

    def prepare(self, request: DefinitionBuild) -> None:
        """Write what the commands read: beside ``request.target``, or beside ``request.files``."""

    def commands(self, request: DefinitionBuild, runtime: Runtime) -> tuple[Command, ...]:
        """Return the commands that make ``request.target``, one after the other."""
