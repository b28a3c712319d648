"""Who may pull: credentials as docker, apptainer and podman keep them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.formats.image_name import HUB
from envbuild.names import Texts
from envbuild.records import field, frozen_record
from envbuild.run import Command
from envbuild.settings import Settings

HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
"""Names under which docker and others file Docker Hub."""
HELPER_SECONDS = 30.0


@frozen_record
class Credentials:
    """A user and a password, or an identity token (``token``); ``origin`` is their source."""

    user: str
    password: str = field(repr=False)
    token: bool = False
    origin: str = ""


def find_credentials(host: str, context: Context) -> Credentials | None:
    """Return the credentials of a registry's host, None where there are none.

    APPTAINER_DOCKER_USERNAME and _PASSWORD (or DOCKER_, SINGULARITY_DOCKER_) win, as they do for
    the runtime. They name no registry, and a recipe of a stranger names any: they count for Docker
    Hub and for those of the settings file.
    """
    settings = context.settings
    env = settings.environment
    prefixes = ("APPTAINER_DOCKER", "SINGULARITY_DOCKER", "DOCKER")
    for prefix in prefixes if host == HUB or host in settings.registries else ():
        user, password = env.get(f"{prefix}_USERNAME"), env.get(f"{prefix}_PASSWORD")
        if user and password:
            return Credentials(user=user, password=password, origin=f"{prefix}_USERNAME")
    for path in _credential_files(settings):
        found = _in_file(path, host, context)
        if found is not None:
            return found
    return None


def _credential_files(settings: Settings) -> Iterator[Path]:
    env, home = settings.environment, settings.home
    if env.get("REGISTRY_AUTH_FILE"):
        yield Path(env["REGISTRY_AUTH_FILE"])
    yield Path(env.get("APPTAINER_CONFIGDIR") or home / ".apptainer") / "docker-config.json"
    yield Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    yield home / ".singularity/docker-config.json"
    if env.get("XDG_RUNTIME_DIR"):
        yield Path(env["XDG_RUNTIME_DIR"]) / "containers/auth.json"
    yield home / ".config/containers/auth.json"


def _in_file(path: Path, host: str, context: Context) -> Credentials | None:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # absent, another user's or broken: as every other program does, go on without
    if not isinstance(data, dict):
        return None
    for key in _keys_of(host):
        helper = _table_of(data, "credHelpers").get(key)
        entry = _table_of(data, "auths").get(key)
        if isinstance(helper, str):
            return _from_helper(helper, key, context)
        found = _from_entry(entry, path) if isinstance(entry, dict) else None
        if found is not None:
            return found
        if entry is not None and isinstance(data.get("credsStore"), str):
            return _from_helper(data["credsStore"], key, context)
    return None


def _keys_of(host: str) -> Texts:
    names = HUB_KEYS if host == HUB else (host,)
    keys: list[str] = []
    for name in names:
        keys += [name, f"https://{name}", f"http://{name}"]
    return tuple(dict.fromkeys(keys))


def _table_of(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _from_entry(entry: Mapping[str, Any], path: Path) -> Credentials | None:
    if entry.get("identitytoken"):
        return Credentials(
            user="<token>", password=str(entry["identitytoken"]), token=True, origin=str(path)
        )
    try:
        user, colon, password = (
            base64.b64decode(str(entry.get("auth", "")), validate=True).decode().partition(":")
        )
    except ValueError:  # no base64, or no text
        return None
    return (
        Credentials(user=user, password=password.rstrip("\0"), origin=str(path)) if colon else None
    )


def _from_helper(name: str, key: str, context: Context) -> Credentials | None:
    """Ask docker-credential-NAME; one that is missing or fails knows nothing."""
    if not name.replace("-", "").replace("_", "").isalnum():
        return None
    command = Command(
        argv=(f"docker-credential-{name}", "get"),
        stdin=key,
        env=context.settings.environment,
        timeout=HELPER_SECONDS,
    )
    try:
        reply = json.loads(context.runner(command).stdout)
        user, secret = str(reply["Username"]), str(reply["Secret"])
    except (EnvbuildError, ValueError, KeyError, TypeError):
        return None
    return Credentials(user=user, password=secret, token=user == "<token>", origin=command.argv[0])
