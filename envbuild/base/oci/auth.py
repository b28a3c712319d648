"""Answer a registry's question who asks: Basic, or a token from the service that it names."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator

import httpx
import msgspec

from envbuild import limits
from envbuild.base.oci.credentials import Credentials
from envbuild.net.answers import read_bounded
from envbuild.net.saved_logins import basic_login, is_word
from envbuild.net.web import is_safe, origin_of

CLIENT = "envbuild"


class RegistryAuth(httpx.Auth):
    """Add the header that a registry wants; a token that has run out is fetched anew.

    ``refused`` is the status of the last answer that denied access, None while none did.
    Credentials are sent to the registry's own host and to the token service that it names, over
    https or on loopback only.
    """

    def __init__(self, client: httpx.Client, credentials: Credentials | None, scope: str) -> None:
        self._client = client
        self._credentials = credentials
        self._scope = scope
        self._header: str | None = None
        self._lock = threading.Lock()
        self.refused: int | None = None

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send with what is known; after 401 learn what is wanted and send once more."""
        used = self._header
        if used:
            request.headers["Authorization"] = used
        response = yield request
        if response.status_code == 401:
            with self._lock:
                if self._header == used:  # no other thread has learned it meanwhile
                    self._header = self._learn(request, response)
            if self._header:
                request.headers["Authorization"] = self._header
                response = yield request
        if response.status_code in (401, 403):
            self.refused = response.status_code

    def _learn(self, request: httpx.Request, response: httpx.Response) -> str | None:
        challenge = response.headers.get("WWW-Authenticate", "")[: limits.CHALLENGE]
        scheme, _, rest = challenge.partition(" ")
        parameters = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        # a server that the registry only redirects to does not get the registry's password
        is_registry = origin_of(response.request.url) == origin_of(request.url)
        known = self._credentials if is_registry else None
        if scheme.lower() == "basic" and known and is_safe(request.url):
            return basic_login(known.user, known.password)
        if scheme.lower() == "bearer" and re.match(r"https?://", parameters.get("realm", "")):
            return self._token(parameters["realm"], parameters.get("service", ""), known)
        return None

    def _token(self, address: str, service: str, credentials: Credentials | None) -> str | None:
        """Fetch a token (distribution's token and OAuth 2 specifications); None where it is denied.

        Pulling from this repository is all that is asked for, whatever the registry would have us
        ask.
        """
        question = {"service": service, "scope": self._scope}
        try:
            realm = httpx.URL(address)
            known = credentials if is_safe(realm) else None
            if known and known.token:
                form = {
                    **question,
                    "grant_type": "refresh_token",
                    "refresh_token": known.password,
                    "client_id": CLIENT,
                }
                request = self._client.build_request("POST", realm, data=form)
            else:
                headers = (
                    {"Authorization": basic_login(known.user, known.password)} if known else {}
                )
                request = self._client.build_request(
                    "GET", realm.copy_merge_params(question), headers=headers
                )
            reply = msgspec.json.decode(self._ask(request))
        except (ValueError, RecursionError, httpx.InvalidURL):
            return None
        token = reply.get("token") or reply.get("access_token") if isinstance(reply, dict) else None
        return f"Bearer {token}" if isinstance(token, str) and is_word(token) else None

    def _ask(self, request: httpx.Request) -> bytes:
        """Return the answer of a token service, "" for a refusal; redirects are not followed."""
        follow = request.method == "GET"
        answer = self._client.send(request, stream=True, auth=httpx.Auth(), follow_redirects=follow)
        try:
            return read_bounded(answer, limits.TOKEN) if answer.status_code == 200 else b""
        finally:
            answer.close()
