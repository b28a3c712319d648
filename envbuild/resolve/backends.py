"""The resolver backends: one file each."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.progress import Reporter
from envbuild.resolve.model import Resolver
from envbuild.resolve.pip_tools import PipToolsResolver
from envbuild.resolve.uv import UvResolver
from envbuild.run import Runner
from envbuild.settings import Settings

RESOLVERS: dict[str, Callable[[Settings, Runner, Reporter], Resolver]] = {
    "uv": UvResolver,
    "pip-tools": PipToolsResolver,
}
