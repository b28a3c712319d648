"""Channels that the tests of conda share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conda.channels import Served, forge, make_channel, serve


@pytest.fixture(scope="session")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the channel "forge"."""
    folder = tmp_path_factory.mktemp("channels")
    make_channel(folder / "forge", forge())
    with serve(folder) as served:
        yield served
