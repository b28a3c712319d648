"""A lying server, a store, settings that point to both, and short patience."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild import limits
from envbuild.net import fetch, parallel, web
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.store.server import Page, Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def settings(user_settings: Settings, server: Server, tmp_path: Path) -> Settings:
    """Settings that lead to the server; an empty folder of certificates, since reading a bundle takes a while."""
    return dataclasses.replace(
        user_settings,
        indexes={"default": server.index},
        origin={"index": "ENVBUILD_INDEX"},
        certificates=tmp_path / "home",
    )


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(web, "READ_SECONDS", 5.0)
    monkeypatch.setattr(web, "CONNECT_SECONDS", 5.0)
    monkeypatch.setattr(web, "TRIES", 3)
    monkeypatch.setattr(parallel, "PATIENCE", 0.1)
    monkeypatch.setattr(fetch, "RESERVE", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def lose_patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[Page], None]:
    """Let silent and dripping pages be given up after a blink; others get their time on a busy machine."""

    def lose(page: Page) -> None:
        if page.hang or page.drip:
            monkeypatch.setattr(web, "READ_SECONDS", 0.2)
            monkeypatch.setattr(limits, "STALL_SECONDS", 0.2)
            monkeypatch.setattr(limits, "ANSWER_SECONDS", 1.0)

    return lose
