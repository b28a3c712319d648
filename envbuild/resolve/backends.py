"""The resolver backends: one file each, imported when one is asked."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.context import Context
from envbuild.resolve.answer_cache import CachedResolver
from envbuild.resolve.model import Resolver


def _uv(context: Context) -> Resolver:
    def make() -> Resolver:
        from envbuild.resolve.uv.resolver import UvResolver  # late: a kept answer needs no resolver

        return UvResolver(context)

    return CachedResolver(context, make)


def _pip_tools(context: Context) -> Resolver:
    from envbuild.resolve.pip.pip_tools import PipToolsResolver  # late: hardly anybody asks for it

    return PipToolsResolver(context)


RESOLVERS: dict[str, Callable[[Context], Resolver]] = {"uv": _uv, "pip-tools": _pip_tools}
