"""Shared fixtures: settings of an empty user, golden texts, a real registry and a real engine."""

from __future__ import annotations

import difflib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from tests.support import Golden

# how long an example takes says something of the machine, nothing of the law
# in CI the examples are always the same: a change is judged by what it changes; runs by hand look for new ones
hypothesis_settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
hypothesis_settings.load_profile("suite")
HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
SCRIPT = HERE.parent / "scripts/setup-registry.sh"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected texts (never in CI)"
    )


def pytest_configure() -> None:
    # whoever ends the tests so wants their servers to end, too: that is done as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for path in {item.path for item in items if item.get_closest_marker("live")}:
        if not re.search(r"pytest\.mark\.live|pytestmark", path.read_text("utf-8")):
            raise pytest.UsageError(f"{path}: scripts/test.sh finds live tests by these words")
    items.sort(
        key=lambda item: (
            item.get_closest_marker("slow") is not None,
            item.get_closest_marker("live") is not None,
        )
    )


@pytest.fixture
def user_settings(tmp_path: Path) -> Settings:
    """Settings of a user with an empty HOME; the machine's indexes, mirrors and certificates stay."""
    home = tmp_path / "home"
    home.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("ENVBUILD_", "XDG_"))}
    return load_settings(
        {**keep, "HOME": str(home), "ENVBUILD_STORE": str(tmp_path / "store")}, tmp_path
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with its golden file; ``--update-golden`` rewrites it, a missing one fails.

    With ``beside`` the file has what differs from that whole text, so that no line stands twice.
    """

    def compare(name: str, text: str, *, beside: str | None = None) -> None:
        path = GOLDEN / name
        if beside is not None:
            text = text_differences(beside, text)
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), (
            f"no golden file {path.relative_to(HERE)}; run pytest --update-golden and read the diff"
        )
        assert text == path.read_text(encoding="utf-8")

    return compare


def text_differences(before: str, after: str) -> str:
    """Return the lines that differ, each group with the line before and after it."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    # without the numbers of lines, which change with every line that both have
    shown = ["@@" if line.startswith("@@ ") else line for line in list(lines)[2:]]
    return "".join(f"{line}\n" for line in shown)


def script(*arguments: str) -> str:
    """Run the set-up script and return its last line."""
    result = LocalRunner()(Command(argv=("bash", str(SCRIPT), *arguments), timeout=120))
    return (result.stdout.strip().splitlines() or [""])[-1]


@contextmanager
def server(what: str, folder: Path, *options: str) -> Iterator[str]:
    """Lend a server of the set-up script that keeps its files in a folder; what is lent is its address."""
    try:
        yield script(what, str(folder), *options)
    finally:
        script("stop", str(folder))


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a plain registry on 127.0.0.1."""
    with server("registry", tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture(scope="session")
def private_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a registry with TLS and a password (ci, ci-secret), and its certificate."""
    folder = tmp_path_factory.mktemp("private")
    with server("registry", folder, "tls") as url:
        yield url, folder / "tls.crt"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DOCKER_HOST of a real engine."""
    with server("engine", tmp_path_factory.mktemp("engine")) as host:
        yield host
