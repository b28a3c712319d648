"""A server that leads elsewhere: no password goes along, and none to who asks for it there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from envbuild.base.oci.auth import RegistryAuth
from envbuild.base.oci.credentials import Credentials
from envbuild.net.web import make_client
from envbuild.settings import Settings

FIRST = "https://own.invalid/simple/a/"
ELSEWHERE = (
    "https://other.invalid/a",
    "https://own.invalid:8443/a",
    "http://own.invalid/a",
    "http://own.invalid:443/a",
    "https://own.invalid.other.invalid/a",
    "https://own.invalid@other.invalid/a",
    "//other.invalid/a",
)
REGISTRY, THIEF = "https://own.invalid/v2/x/blobs/y", "https://thief.invalid/token"
KNOWN = Credentials(user="me", password="secret")
IDENTITY = Credentials(user="<token>", password="secret", token=True)
Sent = list[httpx.Request]


def kept_in_netrc(settings: Settings) -> Settings:
    (settings.home / ".netrc").write_text("machine own.invalid login me password secret\n")
    return settings


def saved_by_rattler(settings: Settings) -> Settings:
    path = settings.home / ".rattler/credentials.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"own.invalid": {"BearerToken": "secret"}}))
    return settings


def in_an_index(settings: Settings) -> Settings:
    return replace(settings, indexes={"default": "https://me:secret@own.invalid/simple"})


def in_a_channel(settings: Settings) -> Settings:
    return replace(settings, channels={"lab": ("https://me:secret@own.invalid/lab",)})


def client_of(
    settings: Settings, answer: Callable[[httpx.Request], httpx.Response]
) -> httpx.Client:
    client = make_client(settings)
    client._transport = httpx.MockTransport(answer)
    client._mounts = {}
    return client


@pytest.mark.parametrize("status", [301, 302, 307])
@pytest.mark.parametrize("target", ELSEWHERE)
@pytest.mark.parametrize("keep", [kept_in_netrc, saved_by_rattler, in_an_index, in_a_channel])
def test_a_password_stays_where_it_belongs(
    keep: Callable[[Settings], Settings], target: str, status: int, user_settings: Settings
) -> None:
    sent: Sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if str(request.url) == FIRST:
            return httpx.Response(status, headers={"Location": target})
        return httpx.Response(200)

    with client_of(keep(user_settings), answer) as client:
        client.get(FIRST)
    first, second = sent
    assert "Authorization" in first.headers
    assert "Authorization" not in second.headers
    assert "secret" not in repr((second.url, second.headers.raw))


@pytest.mark.parametrize("target", [ELSEWHERE[0], *ELSEWHERE[2:5]])
@pytest.mark.parametrize("keep", [kept_in_netrc, saved_by_rattler, in_an_index, in_a_channel])
def test_nor_does_it_go_to_a_link_of_a_page(
    keep: Callable[[Settings], Settings], target: str, user_settings: Settings
) -> None:
    """The file of an index's page may be on any other server."""
    sent: Sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    with client_of(keep(user_settings), answer) as client:
        client.get(FIRST)
        client.get(target)
    assert ["Authorization" in one.headers for one in sent] == [True, False]
    assert "secret" not in repr((sent[1].url, sent[1].headers.raw))


def test_it_goes_along_on_the_same_server(user_settings: Settings) -> None:
    sent: Sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return (
            httpx.Response(302, headers={"Location": "/b"})
            if len(sent) == 1
            else httpx.Response(200)
        )

    with client_of(kept_in_netrc(user_settings), answer) as client:
        client.get(FIRST)
    assert [("Authorization" in request.headers) for request in sent] == [True, True]


def ask_registry(first: str, leads_to: str, challenge: str, settings: Settings) -> Sent:
    """Return what a registry's client sends where the registry leads to one that asks who it is."""
    sent: Sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if str(request.url) == first:
            return httpx.Response(307, headers={"Location": leads_to})
        if str(request.url) == leads_to:
            return httpx.Response(401, headers={"WWW-Authenticate": challenge})
        return httpx.Response(200, content=iter([b'{"token": "any"}']))

    with client_of(settings, answer) as tokens, client_of(settings, answer) as client:
        client.auth = RegistryAuth(tokens, KNOWN, "repository:x:pull")
        client.get(first)
    return sent


@pytest.mark.parametrize("first", [REGISTRY, REGISTRY.replace("https", "http")])
@pytest.mark.parametrize("leads_to", ["https://cdn.invalid/y", "https://own.invalid:8443/y"])
@pytest.mark.parametrize("challenge", [f'Bearer realm="{THIEF}",service="x"', 'Basic realm="x"'])
def test_who_a_registry_leads_to_gets_no_password(
    challenge: str, leads_to: str, first: str, user_settings: Settings
) -> None:
    sent = ask_registry(first, leads_to, challenge, user_settings)
    assert not [r.url for r in sent if "Basic" in r.headers.get("Authorization", "")]
    assert not [r.url for r in sent if b"secret" in r.content]


@pytest.mark.parametrize("known", [KNOWN, IDENTITY])
def test_a_token_service_that_leads_elsewhere_takes_no_password_along(
    known: Credentials, user_settings: Settings
) -> None:
    sent: Sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        host = request.url.host
        if host == "auth.invalid":
            return httpx.Response(307, headers={"Location": THIEF})
        if host == "own.invalid" and "Authorization" not in request.headers:
            challenge = 'Bearer realm="https://auth.invalid/token",service="x"'
            return httpx.Response(401, headers={"WWW-Authenticate": challenge})
        return httpx.Response(200, content=iter([b'{"token": "any"}']))

    with client_of(user_settings, answer) as tokens, client_of(user_settings, answer) as client:
        client.auth = RegistryAuth(tokens, known, "repository:x:pull")
        client.get(REGISTRY)
    told = [
        r.url.host
        for r in sent
        if "Basic" in r.headers.get("Authorization", "") or b"secret" in r.content
    ]
    assert told == ["auth.invalid"]
