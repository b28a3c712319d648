"""Where conda channels are on this machine, and which of them may be used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.net.redact import without_user
from envbuild.net.saved_logins import basic_login
from envbuild.net.web import is_loopback, read_netrc
from envbuild.settings import Settings
from envbuild.toml import closest

VENDOR_NAMES = re.compile(r"(defaults|anaconda|main|r|msys2|free|pro)\Z|(pkgs/)")
"""Channels of Anaconda Inc., whose terms bind larger organisations (its terms of service, 2025)."""
VENDOR_HOSTS = re.compile(r"(^|\.)anaconda\.(com|cloud)\Z")
VENDOR_PATH = re.compile(r"/pkgs/(main|r|msys2|free|pro)(/|\Z)")
VENDOR_HINT = (
    "its terms ask larger organisations for a licence; take conda-forge, or, where yours has one, "
    "write\n[conda]\nvendor = true\ninto the settings"
)


def channel_urls(settings: Settings, name: str) -> Texts:
    """Return the addresses of a channel by its name, best first, without a slash at their ends.

    They come from [channels] of the settings, then from custom_channels and channel_alias of the
    user's .condarc, then from conda's own default.  Raises UsageError for a channel that the
    settings do not allow, and for an address that is no URL.
    """
    # a channel that [conda] of the settings does not allow, by name
    allowed = settings.channels_allowed
    if allowed is not None and name not in allowed:
        raise UsageError(
            f"the channel {name} is not allowed here{closest(name, allowed)}",
            where=settings.config,
            hint=f"allowed are: {', '.join(allowed) or 'none'}  ([conda] allow)",
        )
    if VENDOR_NAMES.match(name) and name not in settings.channels:
        require_vendor(settings, f"the channel {name} is one of Anaconda Inc.")
    urls = settings.channels.get(name) or (_condarc_url(settings, name),)
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "file") or not (parts.netloc or parts.path):
            raise UsageError(
                f"the channel {name} has no address that is a URL: {without_user(url)!r}",
                where=settings.config,
                hint=f'write [channels] {name} = "https://…"',
            )
        if is_vendor_url(url):
            require_vendor(settings, f"the channel {name} leads to one of Anaconda Inc.")
    return tuple(url.rstrip("/") for url in urls)


def is_vendor_url(url: str) -> bool:
    """Tell whether an address of a channel or package is one of the vendor's, or a mirror."""
    parts = urlsplit(url)
    return bool(VENDOR_HOSTS.search(parts.hostname or "") or VENDOR_PATH.search(parts.path))


def require_vendor(settings: Settings, what: str) -> None:
    """Raise UsageError, with what leads to the vendor, where the settings do not allow it."""
    if not settings.conda_vendor:
        raise UsageError(f"{what}, which the settings do not allow", hint=VENDOR_HINT)


def _condarc_url(settings: Settings, name: str) -> str:
    condarc = _read_condarc(settings)
    custom = condarc.get("custom_channels")
    place = custom.get(name) if isinstance(custom, dict) else None
    place = place or condarc.get("channel_alias")
    if isinstance(place, str) and place:
        return f"{place.rstrip('/')}/{name}"
    from rattler import Channel

    return Channel(name).base_url


def _read_condarc(settings: Settings) -> Mapping[str, Any]:
    import yaml  # most users have no such file

    path = settings.home / ".condarc"
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # absent or broken: conda itself would say so
    return data if isinstance(data, dict) else {}


def channel_headers(
    settings: Settings, names: Sequence[str]
) -> Callable[[str, str], dict[str, str] | None]:
    """Return what gives a request its password: the one of the channel's address, or netrc's.

    A password is sent to its own host alone, and never in the open except to this machine.
    """
    known: dict[str, str] = {}
    kept = read_netrc(settings)
    for name in names:
        for url in channel_urls(settings, name):
            parts = urlsplit(url)
            host = parts.hostname or ""
            user, password = parts.username or "", parts.password or ""
            if not (user or password):
                user, password = kept.get(host, ("", ""))
            if (user or password) and (parts.scheme == "https" or is_loopback(host)):
                known[host] = basic_login(user, password)

    def headers(host: str, _path: str) -> dict[str, str] | None:
        return {"Authorization": known[host]} if host in known else None

    return headers
