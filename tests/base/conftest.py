"""A real registry and a real engine for the live tests, started once and stopped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner

SCRIPT = Path(__file__).parents[2] / "scripts/setup-registry.sh"


def script(*arguments: str) -> str:
    """Run the set-up script and return its last line."""
    result = LocalRunner()(Command(argv=("bash", str(SCRIPT), *arguments), timeout=120))
    return (result.stdout.strip().splitlines() or [""])[-1]


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a plain registry on 127.0.0.1."""
    folder = tmp_path_factory.mktemp("registry")
    try:
        yield script("registry", str(folder))
    finally:
        script("stop", str(folder))


@pytest.fixture(scope="session")
def private_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a registry with TLS and a password (ci, ci-secret), and its certificate."""
    folder = tmp_path_factory.mktemp("private")
    try:
        yield script("registry", str(folder), "tls"), folder / "tls.crt"
    finally:
        script("stop", str(folder))


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DOCKER_HOST of a real engine."""
    folder = tmp_path_factory.mktemp("engine")
    try:
        yield script("engine", str(folder))
    finally:
        script("stop", str(folder))
