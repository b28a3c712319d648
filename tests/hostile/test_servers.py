"""Registries, mirrors and token services that never end, never continue, or ask for more than they should get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from envbuild import limits
from envbuild.base.oci.credentials import find_credentials
from envbuild.errors import IntegrityError, NetworkError
from envbuild.net import web
from envbuild.net.answers import read_bounded
from envbuild.net.web import GoneError, make_client
from envbuild.settings import Settings
from envbuild.settings_file import Registry
from tests.base.ociimages import image_of, tar_of
from tests.base.registry_server import Answer, FakeRegistry, serving
from tests.base.test_base_registry import log_in, pull
from tests.store import server as pages
from tests.store.conftest import server, settings, store
from tests.store.test_store_fetch import BODY, WHEEL, Fetch, get
from tests.support import quiet_context

__all__ = ["get", "server", "settings", "store"]
"""Fixtures of other folders."""
HUB_LOGIN = {"APPTAINER_DOCKER_USERNAME": "hub", "APPTAINER_DOCKER_PASSWORD": "secret"}
SMALL = image_of(tar_of({"etc/one": "1"}))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    with serving(FakeRegistry()) as lent:
        yield lent


@pytest.fixture
def reached(user_settings: Settings, fake: FakeRegistry) -> Settings:
    return replace(user_settings, registries={fake.host: Registry(plain_http=True)})


def spoiling(path: str, **headers: str) -> object:
    def spoil(asked: str, answer: Answer) -> Answer:
        status, told, body = answer
        return (status, {**told, **headers}, body) if path in asked else answer

    return spoil


class TestRegistry:
    def test_a_list_of_tags_without_end(self, fake: FakeRegistry, reached: Settings) -> None:
        tags = json.dumps({"tags": ["t"] * 2_000_000}).encode()
        assert len(tags) > limits.LIST
        fake.spoil = lambda path, answer: (200, {}, tags) if "tags/list" in path else answer
        with pytest.raises(GoneError, match="no such image"):
            pull(f"{fake.host}/lab/app:1.0", reached)

    def test_tags_nested_deep(self, fake: FakeRegistry, reached: Settings) -> None:
        fake.spoil = lambda path, answer: (
            (200, {}, b"[" * 100_000) if "tags/list" in path else answer
        )
        with pytest.raises(GoneError, match="no such image"):
            pull(f"{fake.host}/lab/app:1.0", reached)

    def test_the_next_page_of_tags_on_another_host_is_not_asked(
        self, fake: FakeRegistry, reached: Settings
    ) -> None:
        fake.add(SMALL, "lab/app", "1.0")
        with serving(FakeRegistry()) as other:
            fake.spoil = spoiling(
                "tags/list", Link=f'<{other.url}/v2/lab/app/tags/list?n=2>; rel="next"'
            )  # type: ignore[assignment]
            with pytest.raises(GoneError, match="no such tag"):
                pull(f"{fake.host}/lab/app:2.0", reached)
            assert other.asked == []

    def test_an_answer_that_trickles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "ANSWER_SECONDS", -1)
        asked = httpx.Request("GET", "http://127.0.0.1/v2/x/manifests/1.0")
        answer = httpx.Response(200, content=(b"{" for _ in range(1000)), request=asked)
        with pytest.raises(NetworkError, match="took longer than -1 s over one answer"):
            read_bounded(answer, limits.LIST)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"token": "' + b"x" * 2_000_000 + b'"}',
            b"[" * 100_000,
            b"\xff",
            b"{}",
            '{"token": "of other letters: ü"}'.encode(),
        ],
    )
    def test_a_token_that_is_none(self, body: bytes, fake: FakeRegistry, reached: Settings) -> None:
        fake.auth = "bearer"
        fake.add(SMALL, "lab/app", "1.0")
        log_in(reached, fake.host, "secret")
        fake.spoil = lambda path, answer: (200, {}, body) if path.startswith("/token") else answer
        with pytest.raises(
            (NetworkError, IntegrityError), match=r"HTTP 401|more than 1048576 bytes"
        ):
            pull(f"{fake.host}/lab/app:1.0", reached)

    def test_only_pulling_is_asked_for(self, fake: FakeRegistry, reached: Settings) -> None:
        """Whatever scope the registry names: a password must not buy a token that may push."""
        fake.auth = "bearer"
        fake.add(SMALL, "lab/app", "1.0")
        log_in(reached, fake.host, "secret")

        def spoil(path: str, answer: Answer) -> Answer:
            status, told, body = answer
            told = {
                key: value.replace("repository:x:pull", "repository:other:pull,push")
                for key, value in told.items()
            }
            return status, told, body

        fake.spoil = spoil
        pull(f"{fake.host}/lab/app:1.0", reached)
        asked = [urlsplit(path).query for path in fake.asked if path.startswith("/token")]
        scopes = [parse_qs(query)["scope"] for query in asked]
        assert scopes == [["repository:lab/app:pull"]] * len(asked) != []

    def test_a_challenge_of_60_kb_costs_nothing(
        self, fake: FakeRegistry, reached: Settings
    ) -> None:
        import time

        fake.spoil = lambda _path, _answer: (
            401,
            {"WWW-Authenticate": "Bearer " + "a" * 60_000},
            b"",
        )
        begun = time.process_time()
        with pytest.raises(NetworkError, match="HTTP 401"):
            pull(f"{fake.host}/lab/app:1.0", reached)
        assert time.process_time() - begun < 5


class TestCredentials:
    @pytest.mark.parametrize(
        ("host", "known"),
        [("docker.io", True), ("mine.invalid", True), ("registry.of.a.stranger.invalid", False)],
    )
    def test_those_of_the_environment(
        self, host: str, known: bool, user_settings: Settings
    ) -> None:
        told = replace(
            user_settings, environment=HUB_LOGIN, registries={"mine.invalid": Registry()}
        )
        assert (find_credentials(host, quiet_context(told)) is not None) is known

    @pytest.mark.parametrize(
        ("url", "safe"),
        [
            ("https://mirror.invalid/", True),
            ("http://127.0.0.1:8000/", True),
            ("http://[::1]/", True),
            ("http://mirror.invalid/", False),
            ("http://127.0.0.1.mirror.invalid/", False),
        ],
    )
    @pytest.mark.parametrize("place", [".netrc", ".rattler/credentials.json"])
    def test_a_kept_password_goes_where_nobody_reads_it(
        self, place: str, url: str, safe: bool, user_settings: Settings
    ) -> None:
        host = httpx.URL(url).host
        netrc = f"machine {host} login me password secret\n"
        saved = json.dumps({host: {"BearerToken": "secret"}})
        path = user_settings.home / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(netrc if place == ".netrc" else saved)
        sent: list[httpx.Request] = []
        with make_client(user_settings) as client:

            def answer(request: httpx.Request) -> httpx.Response:
                sent.append(request)
                return httpx.Response(200)

            client._transport = httpx.MockTransport(answer)
            client._mounts = {}
            client.get(url)
        assert ("Authorization" in sent[0].headers) is safe


class TestDownloads:
    @pytest.mark.parametrize("lie", [{"lies_about_range": True}, {"ranges": False}])
    def test_one_that_breaks_off_and_never_continues_ends(
        self, lie: dict[str, Any], get: Fetch, server: pages.Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
        body = BODY * 3
        wanted = server.offer(WHEEL, body, cuts=[len(body) - 1] * 100, **lie)
        with pytest.raises(NetworkError, match=r"does not continue where it broke off|\d attempts"):
            get(wanted)
        assert len(server.ranges_asked(WHEEL)) < 20

    def test_a_proper_one_is_not_counted(
        self, get: Fetch, server: pages.Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
        wanted = server.offer(WHEEL, BODY, cuts=[1000] * 4)
        get(wanted)
