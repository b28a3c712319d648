"""The resolver backends: one file each, imported when one is asked."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.progress import Reporter
from envbuild.resolve.answer_cache import CachedResolver
from envbuild.resolve.model import Resolver
from envbuild.run import Runner
from envbuild.settings import Settings


def _uv(settings: Settings, runner: Runner, report: Reporter) -> Resolver:
    def make() -> Resolver:
        from envbuild.resolve.uv.resolver import UvResolver

        return UvResolver(settings, runner, report)

    return CachedResolver(settings, runner, make)


def _pip_tools(settings: Settings, runner: Runner, report: Reporter) -> Resolver:
    from envbuild.resolve.pip.pip_tools import PipToolsResolver

    return PipToolsResolver(settings, runner, report)


RESOLVERS: dict[str, Callable[[Settings, Runner, Reporter], Resolver]] = {
    "uv": _uv,
    "pip-tools": _pip_tools,
}
