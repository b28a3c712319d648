"""Where things are on this machine: flags over environment over the user's file over defaults.

The only module that reads the environment.  Everything else is handed a Settings record.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.errors import UsageError
from envbuild.toml import closest, place_of, read_toml

SECTIONS: dict[str, tuple[str, ...] | None] = {
    "store": ("path", "below"),
    "recipes": ("folders",),
    "indexes": None,  # names are the user's
    "channels": None,  # the same
    "conda": ("allow", "deny-licenses", "vendor"),
    "mirrors": ("debian", "ubuntu"),
    "registries": None,  # names are hosts
    "build": ("tmpdir", "downloads"),
    "runtime": ("program",),
    "caches": ("folder",),
}
DOWNLOADS = 6
"""Files fetched at the same time unless [build] downloads says otherwise."""


REGISTRY_KEYS = ("mirrors", "plain-http")


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry:
    """How a container registry is reached: ``mirrors`` are URLs that are asked first, in order."""

    mirrors: tuple[str, ...] = ()
    plain_http: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What this machine and this user configured.

    ``store`` is the folder of the content-addressed store, ``stores_below`` are other ones that are
    only read, ``tmpdir`` is where builds work; ``indexes`` maps names to package index URLs
    ("default" is the index for everything that names none; absent: the resolver's own default);
    ``registries`` maps hosts of container registries ("docker.io", "127.0.0.1:5000") to how they
    are reached; ``channels`` maps names of conda channels to URLs, best first, ``channels_allowed``
    are those that may be used (None: all), ``conda_vendor`` allows those of Anaconda Inc.;
    ``licenses_denied`` are patterns of licences that no conda package may have;
    ``debian_mirror`` and ``ubuntu_mirror`` are URLs (None: ask apt); ``certificates``
    is a CA bundle file (None: the system's); ``environment`` is the process environment that
    children get; ``origin`` tells where each value came from; ``config`` is the user's settings
    file, whether it exists or not; ``host_builds`` tells that the user lets source archives of an
    index run on this machine, which no variable and no file says for him; ``caches`` is the folder
    in which programs inside images keep downloads and compiled code (None: nowhere).
    """

    store: Path
    recipe_folders: tuple[Path, ...]
    shipped: Path
    tmpdir: Path
    home: Path
    cwd: Path
    indexes: Mapping[str, str] = field(default_factory=dict)
    registries: Mapping[str, Registry] = field(default_factory=dict)
    channels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    channels_allowed: tuple[str, ...] | None = None
    conda_vendor: bool = False
    licenses_denied: tuple[str, ...] = ()
    debian_mirror: str | None = None
    ubuntu_mirror: str | None = None
    certificates: Path | None = None
    downloads: int = DOWNLOADS
    runtime: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    stores_below: tuple[Path, ...] = ()
    config: Path = Path("/nonexistent/config.toml")
    host_builds: bool = False
    caches: Path | None = None

    @property
    def state(self) -> Path:
        """The folder for what this user has seen and nobody else may write down."""
        return (
            Path(self.environment.get("XDG_STATE_HOME") or self.home / ".local/state") / "envbuild"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sources:
    """Where values come from; ``origin`` collects which source gave each."""

    env: Mapping[str, str]
    config: Path
    data: Mapping[str, Any]
    home: Path
    cwd: Path
    origin: dict[str, str] = field(default_factory=dict)

    def pick(self, key: str, variable: str, place: tuple[str, str]) -> str | None:
        """Return the value of a variable, else of a section's key in the file."""
        if self.env.get(variable):
            self.origin[key] = variable
            return self.env[variable]
        section, name = place
        value = self.data.get(section, {}).get(name)
        self.origin[key] = "default" if value is None else str(self.config)
        return None if value is None else str(value)

    def list_of(self, section: str, key: str, what: str) -> tuple[str, ...] | None:
        """Return a list of texts of the file; None where it has no such key.

        ``what`` says what the list is of, for the UsageError about anything else.
        """
        found = self.data.get(section, {}).get(key)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise UsageError(f"[{section}] {key} takes a list of {what}", where=self.config)
        return tuple(found)

    def absolute(self, text: str) -> Path:
        """Return a path as the user means it: "~" is home, others begin in the current folder."""
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return self.cwd / text


def load_settings(
    environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Settings:
    """Read the settings of this user.

    Variables: ENVBUILD_STORE, ENVBUILD_STORE_BELOW (folders, separated by ":"), ENVBUILD_CONFIG,
    ENVBUILD_RECIPES (folders, separated by ":"), ENVBUILD_INDEX, ENVBUILD_DEBIAN_MIRROR,
    ENVBUILD_RUNTIME, ENVBUILD_CACHES (a folder, or "none"), TMPDIR, XDG_CACHE_HOME,
    XDG_CONFIG_HOME.
    Raises UsageError for a settings file that does not parse or has unknown keys.
    """
    sources = _open_sources(environment, cwd)
    pick, absolute, data, config = sources.pick, sources.absolute, sources.data, sources.config
    cache = Path(sources.env.get("XDG_CACHE_HOME") or sources.home / ".cache")
    store = pick("store", "ENVBUILD_STORE", ("store", "path")) or str(cache / "envbuild")
    caches = pick("caches", "ENVBUILD_CACHES", ("caches", "folder"))
    caches = caches or str(cache / "envbuild-caches")
    tmpdir = pick("tmpdir", "TMPDIR", ("build", "tmpdir")) or "/tmp"  # noqa: S108  (documented)
    folders = [str(folder) for folder in _recipe_folders(sources.env, data) if folder]
    return Settings(
        store=absolute(store),
        recipe_folders=tuple(map(absolute, folders)),
        shipped=shipped_folder(),
        tmpdir=absolute(tmpdir),
        home=sources.home,
        cwd=sources.cwd,
        indexes=_indexes(sources),
        registries=_registries(data, config),
        channels=_channels(data, config),
        channels_allowed=sources.list_of("conda", "allow", 'channels: ["conda-forge"]'),
        conda_vendor=_conda_vendor(data, config),
        licenses_denied=sources.list_of("conda", "deny-licenses", 'patterns: ["AGPL-*"]') or (),
        ubuntu_mirror=pick("ubuntu_mirror", "ENVBUILD_UBUNTU_MIRROR", ("mirrors", "ubuntu")),
        debian_mirror=pick("debian_mirror", "ENVBUILD_DEBIAN_MIRROR", ("mirrors", "debian")),
        certificates=_certificates(sources.env),
        downloads=_downloads(data, config),
        runtime=pick("runtime", "ENVBUILD_RUNTIME", ("runtime", "program")),
        environment=sources.env,
        origin=sources.origin,
        stores_below=tuple(map(absolute, _stores_below(sources))),
        config=config,
        caches=None if caches == "none" else absolute(caches),
    )


def _open_sources(environment: Mapping[str, str] | None, cwd: Path | None) -> _Sources:
    env = dict(os.environ if environment is None else environment)
    home = Path(env.get("HOME") or _home_of_user())
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    config = Path(env.get("ENVBUILD_CONFIG") or folder / "envbuild/config.toml")
    data = _read_config(config) if config.is_file() else {}
    return _Sources(env=env, config=config, data=data, home=home, cwd=cwd or _current_folder())


def _indexes(sources: _Sources) -> dict[str, str]:
    indexes = dict(sources.data.get("indexes", {}))
    default = sources.pick("index", "ENVBUILD_INDEX", ("indexes", "default"))
    return {**indexes, "default": default} if default else indexes


def _registries(data: Mapping[str, Any], config: Path) -> dict[str, Registry]:
    tables = data.get("registries", {})
    return {host: _registry(host, table, config) for host, table in tables.items()}


def _certificates(env: Mapping[str, str]) -> Path | None:
    bundle = env.get("SSL_CERT_FILE") or env.get("PIP_CERT") or env.get("REQUESTS_CA_BUNDLE")
    return Path(bundle) if bundle else None


def _downloads(data: Mapping[str, Any], config: Path) -> int:
    downloads = data.get("build", {}).get("downloads", DOWNLOADS)
    if not isinstance(downloads, int) or not 1 <= downloads <= 32:
        raise UsageError("[build] downloads takes a whole number from 1 to 32", where=config)
    return downloads


def _channels(data: Mapping[str, Any], config: Path) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, value in data.get("channels", {}).items():
        urls = [value] if isinstance(value, str) else value
        if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
            raise UsageError(
                f"[channels] {name} takes a URL, or a list of them, best first", where=config
            )
        found[name] = tuple(urls)
    return found


def _conda_vendor(data: Mapping[str, Any], config: Path) -> bool:
    vendor = data.get("conda", {}).get("vendor", False)
    if not isinstance(vendor, bool):
        raise UsageError("[conda] vendor takes true or false", where=config)
    return vendor


def _recipe_folders(env: Mapping[str, str], data: Mapping[str, Any]) -> Sequence[Any]:
    if env.get("ENVBUILD_RECIPES"):
        return env["ENVBUILD_RECIPES"].split(":")
    folders: Sequence[Any] = data.get("recipes", {}).get("folders", [])
    return folders


def _stores_below(sources: _Sources) -> Sequence[str]:
    written = sources.env.get("ENVBUILD_STORE_BELOW")
    if written:
        return [path for path in written.split(":") if path]
    return sources.list_of("store", "below", 'folders: ["/shared/envbuild"]') or ()


def shipped_folder() -> Path:
    """Return the folder of shipped ``recipes`` and ``lockfiles``: in the wheel or source tree."""
    package = Path(__file__).resolve().parent
    return package / "shipped" if (package / "shipped").is_dir() else package.parent


def _registry(host: str, written: Any, config: Path) -> Registry:
    where = f'{config}, [registries."{host}"]'
    if not isinstance(written, dict):
        raise UsageError(
            "must be a table", where=where, hint='write: mirrors = ["https://…"], plain-http = true'
        )
    for key in written:
        if key not in REGISTRY_KEYS:
            raise UsageError(f"unknown key {key!r}{closest(key, REGISTRY_KEYS)}", where=where)
    mirrors, plain = written.get("mirrors", []), written.get("plain-http", False)
    if not isinstance(mirrors, list) or not all(
        re.fullmatch(r"https?://[^\s@]+", str(url)) for url in mirrors
    ):
        raise UsageError(
            'mirrors takes a list of URLs: ["https://…", "http://127.0.0.1:5000"]', where=where
        )
    if not isinstance(plain, bool):
        raise UsageError("plain-http takes true or false", where=where)
    return Registry(mirrors=tuple(url.rstrip("/") for url in mirrors), plain_http=plain)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder was removed", hint="cd into a folder that exists, and try again"
        ) from error


def _home_of_user() -> str:
    """Return the home folder that the system knows; / for a user whom it does not know."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def _read_config(path: Path) -> dict[str, Any]:
    data, text = read_toml(path)
    for section, content in data.items():
        if section not in SECTIONS:
            raise UsageError(
                f"unknown section [{section}]{closest(section, SECTIONS)}",
                where=place_of(path, text, section),
            )
        if not isinstance(content, dict):
            raise UsageError(f"{section} must be a section", where=place_of(path, text, section))
        known = SECTIONS[section]
        for key in content:
            if known is not None and key not in known:
                raise UsageError(
                    f"unknown key {key!r} in [{section}]{closest(key, known)}",
                    where=place_of(path, text, section, key),
                )
    return data
