"""The resolver backends: one file each, imported when one is asked."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.context import Context
from envbuild.progress import Stage
from envbuild.resolve.answer_cache import CachedResolver
from envbuild.resolve.model import Resolver


def _uv(context: Context, stage: Stage) -> Resolver:
    def make() -> Resolver:
        from envbuild.resolve.uv.resolver import UvResolver  # late: a kept answer needs no resolver

        return UvResolver(context, stage)

    return CachedResolver(context, make)


def _pip_tools(context: Context, stage: Stage) -> Resolver:
    from envbuild.resolve.pip.pip_tools import PipToolsResolver  # late: hardly anybody asks for it

    return PipToolsResolver(context, stage)


PAGE = "page"
"""What a resolver counts on its stage: pages and metadata of the index."""
RESOLVERS: dict[str, Callable[[Context, Stage], Resolver]] = {"uv": _uv, "pip-tools": _pip_tools}
