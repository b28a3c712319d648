"""The HTTP client for indexes and mirrors: credentials, retries, clear errors."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import netrc
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from envbuild import __version__, limits
from envbuild.errors import NetworkError, RateLimitError, UsageError
from envbuild.net.answers import drop_body
from envbuild.net.redact import redact
from envbuild.net.saved_logins import basic_login, saved_logins
from envbuild.settings import CERTIFICATE_VARIABLES, Settings

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")
CONNECT_SECONDS = 15.0
READ_SECONDS = 30.0
"""Longest silence on an open connection."""
TRIES = 5
"""Attempts without any progress before a passing failure is reported."""
FIRST_PAUSE = 0.5
"""Seconds before the second attempt; each further pause is twice as long."""
LONGEST_WAIT = 60.0
"""Seconds that a server may ask for with Retry-After."""
NETWORK_HINT = (
    "check the network and the proxy variables, then start again: what has arrived is kept"
)

PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
UNTRUSTED = "shows a certificate that is not trusted"
CERTIFICATE_HINT = (
    "this network or this server has a certificate authority of its own, whose certificate is missing here\n"
    "for the whole machine, as root: put it into /usr/local/share/ca-certificates/NAME.crt; update-ca-certificates\n"
    "for you alone: export SSL_CERT_FILE=BUNDLE, a file that holds it and all others that are needed"
)
SERVER_HINT = (
    "the fault is the server's: try again later, or name another mirror or index in the settings"
)


class PassingError(Exception):
    """A failure that may pass: ``reason``, ``wait`` in seconds, ``hint`` what to do.

    ``progressed`` says that bytes arrived, so that patience starts anew; ``kind`` is the error
    once patience ends.
    """

    def __init__(
        self,
        reason: str,
        *,
        wait: float | None = None,
        progressed: bool = False,
        hint: str = NETWORK_HINT,
        kind: type[NetworkError] = NetworkError,
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.hint = hint
        self.reason = reason
        self.wait = wait
        self.progressed = progressed


class StoppedError(Exception):
    """Another thread failed or the user interrupted: end quietly."""


class GoneError(NetworkError):
    """The server answers, and says that it has no such thing (404, 410)."""


@contextlib.contextmanager
def local_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors over a file of an index on this machine into those of a server."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise GoneError("is not there", where=path) from error
    except OSError as error:
        raise NetworkError(f"cannot be read: {error.strerror}", where=path) from error


def local_path(url: str) -> Path | None:
    """Return the path that a ``file:`` URL of this machine names, None for any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return Path(unquote(parts.path))


def make_client(settings: Settings) -> httpx.Client:
    """Make the client for indexes and mirrors.

    Proxies come from the usual variables, trust from ``settings.certificates`` or the system,
    passwords from URLs and netrc; each is sent to its own host only.  Raises UsageError for a
    certificate bundle or a proxy's address that cannot be read.
    """
    import httpx

    try:
        return _open_client(settings)
    except (ValueError, httpx.InvalidURL) as error:
        named = [name for name in PROXIES if settings.environment.get(name)]
        if not named:
            raise
        raise UsageError(
            f"a proxy is named that has no usable address: {redact(str(error))}",
            where=", ".join(named),
            hint="write it as http://HOST:PORT, or unset the variable",
        ) from error


def _open_client(settings: Settings) -> httpx.Client:
    import httpx

    return httpx.Client(
        verify=_trusted_certificates(settings.certificates),
        auth=_credentials_hook(settings),
        follow_redirects=True,
        max_redirects=10,
        headers={"User-Agent": f"envbuild/{__version__}", "Accept-Encoding": "gzip"},
        event_hooks={"response": [functools.partial(drop_body, httpx.ByteStream(b""))]},
        timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=None),
        limits=httpx.Limits(
            max_connections=settings.downloads + 8, max_keepalive_connections=settings.downloads + 8
        ),
    )


@functools.cache  # reading the system's certificates takes 20 ms, and a lock makes ten clients
def _trusted_certificates(bundle: Path | None) -> ssl.SSLContext:
    import ssl

    import certifi

    paths = ssl.get_default_verify_paths()
    if bundle is None and not paths.cafile and not paths.capath:
        bundle = Path(certifi.where())  # a relocated Python does not know the system's folder
    try:
        if bundle is None:
            context = ssl.create_default_context()
        elif bundle.is_dir():
            context = ssl.create_default_context(capath=str(bundle))
        else:
            context = ssl.create_default_context(cafile=str(bundle))
    except OSError as error:
        empty = isinstance(error, ssl.SSLError)
        reason = "it holds no certificate" if empty else error.strerror
        first, *others = CERTIFICATE_VARIABLES
        raise UsageError(
            f"is not a readable bundle of certificates: {reason}",
            where=bundle,
            hint=f"correct {first} (or {', '.join(others)}), or unset it: then the system's are used",
        ) from error
    # Python 3.13 also asks for fields of RFC 5280 that the certificate of a campus may lack; uv and apt do not
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _credentials_hook(settings: Settings) -> Callable[[httpx.Request], httpx.Request]:
    """Return what adds a password to a request: the URL's, the same origin's, netrc's, a saved one.

    Known are those of the configured indexes and channels, and of URLs seen before: links on an
    index's pages have none.
    """
    import httpx

    known: dict[tuple[str, str, int | None], str] = {}
    secrets, logins = read_netrc(settings), saved_logins(settings)
    channels = chain.from_iterable(settings.channels.values())
    for address in (*settings.indexes.values(), *channels):
        with contextlib.suppress(httpx.InvalidURL):
            index = httpx.URL(address)
            if index.username or index.password:
                known[origin_of(index)] = basic_login(index.username, index.password)

    def add(request: httpx.Request) -> httpx.Request:
        url = request.url
        origin = origin_of(url)
        user, password = url.username, url.password
        if not user and origin not in known and url.host in secrets and is_safe(url):
            user, password = secrets[url.host]
        if user or password:
            known[origin] = basic_login(user, password)
        if origin in known:
            request.headers["Authorization"] = known[origin]
        elif url.host in logins and is_safe(url):
            request.headers["Authorization"] = logins[url.host]
        return request

    return add


def origin_of(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return what a password belongs to: scheme, host and port."""
    return (url.scheme, url.host, url.port)


def is_safe(url: httpx.URL) -> bool:
    """Tell whether a kept password may be sent there: nobody on the way can read it."""
    return url.scheme == "https" or is_loopback(url.host)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine; a name that only begins like an address is not."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_netrc(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return user and password by host, as netrc has them; none where it cannot be read."""
    path = Path(settings.environment.get("NETRC") or settings.home / ".netrc")
    try:
        hosts = netrc.netrc(str(path)).hosts
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return {}  # absent, another user's or broken: as every other program does, go on without
    known = {}
    for host, (user, _, password) in hosts.items():
        known[host] = (user or "", password or "")
    return known


@contextlib.contextmanager
def open_response(
    client: httpx.Client,
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    accept: Sequence[int] = (200,),
) -> Iterator[httpx.Response]:
    """Send a request and yield its streamed answer, whose status is one of ``accept``.

    Raises PassingError for what may pass (broken connection, 429, 5xx), also while the answer is
    read; GoneError for 404 and 410; NetworkError for everything else.
    """
    import httpx

    try:
        request = client.build_request(method, url, headers=dict(headers or {}))
        with contextlib.closing(_send(client, request)) as response:
            if response.status_code not in accept:
                _raise_for_status(response, url)
            yield response
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise NetworkError("is not a usable http or https address", where=redact(url)) from error
    except httpx.TooManyRedirects as error:
        raise NetworkError("redirects in a circle", where=redact(url)) from error
    except (httpx.TransportError, zlib.error) as error:
        _raise_plainly(error, url)


def _send(client: httpx.Client, request: httpx.Request) -> httpx.Response:
    """Send a request and return its answer, which is still to be read.

    httpx limits the time of each read alone: headers that drip byte by byte never end.
    """
    answers: queue.SimpleQueue[httpx.Response | BaseException] = queue.SimpleQueue()

    def send() -> None:
        try:
            answers.put(client.send(request, stream=True))
        except BaseException as error:  # noqa: BLE001  (handed to the caller's thread)
            answers.put(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        answer = answers.get(timeout=limits.ANSWER_SECONDS)
    except queue.Empty as error:
        what = f"took longer than {limits.ANSWER_SECONDS:.0f} s to begin an answer"
        raise NetworkError(what, where=redact(str(request.url))) from error
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _raise_for_status(response: httpx.Response, url: str) -> None:
    status, where = response.status_code, redact(url)
    if status in (404, 410):
        raise GoneError(f"is not there (HTTP {status})", where=where)
    if status in (401, 403, 407):
        hint = "give user and password in ~/.netrc, or ask who runs this server; a proxy may refuse it too"
        raise NetworkError(f"refuses access (HTTP {status})", where=where, hint=hint)
    if status in (408, 425, 429) or (status >= 500 and status != 501):
        wait = _retry_after(response.headers.get("Retry-After", ""))
        hint = SERVER_HINT if status >= 500 else NETWORK_HINT
        kind = RateLimitError if status == 429 else NetworkError
        raise PassingError(f"answers with HTTP {status}", wait=wait, hint=hint, kind=kind)
    raise NetworkError(f"answers with HTTP {status}, which is of no use here", where=where)


def _retry_after(text: str) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3: seconds or a date)."""
    if text.strip().isdecimal():
        return float(text[:12])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _raise_plainly(error: Exception, url: str) -> None:
    """Raise the error that tells a transport failure; what cannot pass is reported at once."""
    import httpx

    text = str(error).strip() or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        raise NetworkError(UNTRUSTED, where=redact(url), hint=CERTIFICATE_HINT) from error
    if isinstance(error, httpx.TimeoutException):
        raise PassingError("did not answer in time") from error
    if isinstance(error, httpx.ConnectError):
        raise PassingError(f"cannot be reached: {text}") from error
    raise PassingError(f"broke off: {text}") from error


def with_retries(action: Callable[[], T], *, url: str, stop: threading.Event | None = None) -> T:
    """Repeat an action while it raises PassingError, with growing pauses.

    Raises NetworkError after TRIES attempts without progress, or when the server asks for more than
    LONGEST_WAIT seconds; StoppedError once ``stop`` is set.
    """
    halt = stop or threading.Event()
    failures = 0
    while True:
        try:
            return action()
        except PassingError as error:
            failures = 1 if error.progressed else failures + 1
            if (error.wait or 0) > LONGEST_WAIT:
                reason = f"{error.reason} and asks to wait {error.wait:.0f} s"
                raise error.kind(reason, where=redact(url), hint="try again later") from error
            if failures >= TRIES:
                what = f"{error.reason} ({failures} attempts)"
                raise error.kind(what, where=redact(url), hint=error.hint) from error
            pause = error.wait if error.wait is not None else FIRST_PAUSE * 2 ** (failures - 1)
        if halt.wait(pause):
            raise StoppedError
