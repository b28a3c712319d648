"""The doctor on servers: does the index, the mirror, the registry answer."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable

import httpx

from envbuild.app.doctor.finding import Finding, broken, differs, fine
from envbuild.base.debian.apt import debian_mirror
from envbuild.base.oci.registry import front_pages
from envbuild.context import Context
from envbuild.errors import NetworkError
from envbuild.formats.image_name import HUB
from envbuild.net.index import index_url
from envbuild.net.redact import redact
from envbuild.net.web import CERTIFICATE_HINT, make_client
from envbuild.resolve.conflict.explain import translate_failure
from envbuild.resolve.uv.query import uv_environment
from envbuild.run import Command
from envbuild.settings import Settings
from envbuild.tools import uv_program

SECONDS = 1.5
"""How long an answer is waited for."""
UV_SECONDS = 10.0
MEND = "check the network and the proxy variables (https_proxy, no_proxy); without a network only the store is used"


def probes(context: Context) -> list[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Return the probes of the package indexes, the Debian mirror and the registries."""
    settings = context.settings
    names: dict[str, str | None] = {"package index": None}
    names |= {f"index {name}": name for name in sorted(settings.indexes) if name != "default"}

    def probe_index(title: str) -> list[Finding]:
        return [reach_index(title, index_url(context, names[title]), context)]

    def probe_mirror() -> list[Finding]:
        return [reach("Debian mirror", debian_mirror(context), settings)]

    return [
        *((title, functools.partial(probe_index, title)) for title in names),
        ("Debian mirror", probe_mirror),
        ("registries", functools.partial(registries, settings)),
    ]


def reach_index(name: str, url: str, context: Context) -> Finding:
    """Ask an index both ways in which it is asked later: by envbuild, and by uv as ``envbuild lock`` runs it."""
    found = reach(name, url, context.settings)
    if found.verdict != "fine" or url.startswith("file:"):
        return found
    try:
        _ask_with_uv(url, context)
    except NetworkError as error:
        value = f"{found.value} does not answer uv: {error.what}"
        return broken(name, value, error.hint or "")
    return found


def reach(name: str, url: str, settings: Settings) -> Finding:
    """Ask a server for the head of its front page.

    Any answer that is no refusal and no server error will do.
    """
    shown = redact(url)
    if url.startswith("file:"):
        return fine(name, shown)
    answer = _ask(url, settings)
    if isinstance(answer, str):
        mend = CERTIFICATE_HINT if "CERTIFICATE_VERIFY_FAILED" in answer else MEND
        return broken(name, f"{shown} cannot be reached: {answer}", mend)
    if answer in (401, 403, 407) or answer >= 500:
        return broken(name, f"{shown} answers with HTTP {answer}", MEND)
    return fine(name, shown)


def registries(settings: Settings) -> Iterable[Finding]:
    """Ask each registry and mirror; one that wants a password answers too (401).

    None is needed for a base that is made from Debian packages, so none that is silent breaks
    ``make``.
    """
    for registry, url in front_pages(settings):
        shown, answer = redact(url), _ask(url, settings)
        if isinstance(answer, int) and answer < 500 and answer not in (403, 407):
            yield fine("registry", f"{registry}: {shown}")
            continue
        reason = answer if isinstance(answer, str) else f"HTTP {answer}"
        mend = "check the network and the proxy variables; docker:// bases need it, bootstrap bases do not"
        if registry == HUB:
            mend = (
                'take a base that needs no registry (bootstrap = "debian:bookworm"), or name a mirror in '
                f'{settings.config}:\n[registries."{HUB}"]\nmirrors = ["https://…"]'
            )
        value = f"{registry}: {shown} cannot be reached: {reason}"
        yield differs("registry", value, mend)


def _ask_with_uv(url: str, context: Context) -> None:
    """Let uv read one page of an index.

    Raises NetworkError where it cannot, and leaves all else to ``lock``.
    """
    # the address goes by the environment: it may hold a password
    own = {"UV_DEFAULT_INDEX": url, "UV_NO_CACHE": "1", "UV_HTTP_RETRIES": "0"}
    argv = (
        uv_program(context.settings),
        "pip",
        "compile",
        "--no-config",
        "--no-deps",
        "--python",
        sys.executable,
        "-",
    )
    env = uv_environment(context.settings) | own
    command = Command(argv=argv, env=env, stdin="pip\n", timeout=UV_SECONDS)
    result = context.runner(command, check=False)
    if result.timed_out:
        raise NetworkError(f"no answer within {UV_SECONDS:.0f} s", hint=MEND)
    failure = translate_failure(result.stderr) if result.code else None
    if isinstance(failure, NetworkError):
        raise failure


def _ask(url: str, settings: Settings) -> int | str:
    """Return the status of an answer, or why there was none."""
    try:
        with make_client(settings) as client:
            return client.head(url, timeout=SECONDS).status_code
    except httpx.HTTPError as error:
        return str(error).strip() or type(error).__name__
