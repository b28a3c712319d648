"""Where things are on this machine: flags over environment over the user's file over defaults.

The only module that reads the environment.  Everything else is handed a Settings record.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.names import Paths, Texts, Variables
from envbuild.pip_files import pip_files, read_pip_option
from envbuild.records import field, frozen_record
from envbuild.settings_file import DOWNLOADS, Registry, SettingsFile, read_settings_file

CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Name the certificates to trust (OpenSSL, pip, Requests, curl); the first that is set counts."""
XDG_FOLDERS = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


@frozen_record
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
    is a CA bundle (None: the system's); ``environment`` is the process environment that
    children get; ``origin`` says where each value came from; ``config`` is the user's settings
    file, whether it exists or not; ``host_builds`` says that the user lets source archives of an
    index run on this machine, which no variable and no file says for him; ``caches`` is the folder
    in which programs inside images keep downloads and compiled code (None: nowhere).
    """

    store: Path
    recipe_folders: Paths
    shipped: Path
    tmpdir: Path
    home: Path
    cwd: Path
    indexes: Mapping[str, str] = field(default_factory=dict)
    registries: Mapping[str, Registry] = field(default_factory=dict)
    channels: Mapping[str, Texts] = field(default_factory=dict)
    channels_allowed: Texts | None = None
    conda_vendor: bool = False
    licenses_denied: Texts = ()
    debian_mirror: str | None = None
    ubuntu_mirror: str | None = None
    certificates: Path | None = None
    downloads: int = DOWNLOADS
    runtime: str | None = None
    environment: Variables = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    stores_below: Paths = ()
    config: Path = Path("/nonexistent/config.toml")
    host_builds: bool = False
    caches: Path | None = None

    @property
    def data_home(self) -> Path:
        """The folder for this user's data, as the XDG Base Directory Specification has it."""
        return Path(self.environment.get("XDG_DATA_HOME") or self.home / ".local/share")

    @property
    def state(self) -> Path:
        """The folder for what this user has seen and nobody else may write down."""
        return (
            Path(self.environment.get("XDG_STATE_HOME") or self.home / ".local/state") / "envbuild"
        )


@frozen_record
class _Sources:
    """Where values come from; ``origin`` collects which source gave each."""

    env: Variables
    config: Path
    written: SettingsFile
    home: Path
    cwd: Path
    origin: dict[str, str] = field(default_factory=dict)

    def pick(self, key: str, variable: str, written: str | None) -> str | None:
        """Return the value of a variable, else what is written in the file."""
        if self.env.get(variable):
            self.origin[key] = variable
            return self.env[variable]
        self.origin[key] = "default" if written is None else str(self.config)
        return written

    def pick_folders(self, variable: str, written: Sequence[str]) -> Paths:
        """Return the folders that a variable lists, separated by ":", else those of the file."""
        listed = self.env.get(variable)
        folders = listed.split(":") if listed else written
        return tuple(self.absolute(folder) for folder in folders if folder)

    def absolute(self, text: str) -> Path:
        """Return a path as the user means it: "~" is home, others begin in the current folder."""
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return self.cwd / text


def load_settings(environment: Variables | None = None, cwd: Path | None = None) -> Settings:
    """Read the settings of this user.

    Variables: ENVBUILD_STORE, ENVBUILD_STORE_BELOW (folders, separated by ":"), ENVBUILD_CONFIG,
    ENVBUILD_RECIPES (folders, separated by ":"), ENVBUILD_INDEX, ENVBUILD_DEBIAN_MIRROR,
    ENVBUILD_RUNTIME, ENVBUILD_CACHES (a folder, or "none"), TMPDIR, XDG_CACHE_HOME,
    XDG_CONFIG_HOME.
    Raises UsageError for a settings file that does not parse or has unknown keys.
    """
    sources = _open_sources(environment, cwd)
    pick, absolute, written = sources.pick, sources.absolute, sources.written
    cache = Path(sources.env.get("XDG_CACHE_HOME") or sources.home / ".cache")
    store = pick("store", "ENVBUILD_STORE", written.store.path) or str(cache / "envbuild")
    caches = pick("caches", "ENVBUILD_CACHES", written.caches.folder)
    caches = caches or str(cache / "envbuild-caches")
    tmpdir = pick("tmpdir", "TMPDIR", written.build.tmpdir) or "/tmp"  # noqa: S108  (documented)
    return Settings(
        store=absolute(store),
        recipe_folders=sources.pick_folders("ENVBUILD_RECIPES", written.recipes.folders),
        shipped=shipped_folder(),
        tmpdir=absolute(tmpdir),
        home=sources.home,
        cwd=sources.cwd,
        indexes=_indexes(sources),
        registries=written.registries,
        channels=_channels(written),
        channels_allowed=written.conda.allow,
        conda_vendor=written.conda.vendor,
        licenses_denied=written.conda.deny_licenses,
        ubuntu_mirror=pick("ubuntu_mirror", "ENVBUILD_UBUNTU_MIRROR", written.mirrors.ubuntu),
        debian_mirror=pick("debian_mirror", "ENVBUILD_DEBIAN_MIRROR", written.mirrors.debian),
        certificates=_certificates(sources),
        downloads=written.build.downloads,
        runtime=pick("runtime", "ENVBUILD_RUNTIME", written.runtime.program),
        environment=sources.env,
        origin=sources.origin,
        stores_below=sources.pick_folders("ENVBUILD_STORE_BELOW", written.store.below),
        config=sources.config,
        caches=None if caches == "none" else absolute(caches),
    )


def _open_sources(environment: Variables | None, cwd: Path | None) -> _Sources:
    env = dict(os.environ if environment is None else environment)
    for name in XDG_FOLDERS:
        # the specification has relative ones ignored: a stranger's folder would have the settings
        if not env.get(name, "/").startswith("/"):
            del env[name]
    home = Path(env.get("HOME") or _home_of_user())
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    config = Path(env.get("ENVBUILD_CONFIG") or folder / "envbuild/config.toml")
    written = read_settings_file(config)
    return _Sources(
        env=env, config=config, written=written, home=home, cwd=cwd or _current_folder()
    )


def _indexes(sources: _Sources) -> dict[str, str]:
    indexes = sources.written.indexes
    default = sources.pick("index", "ENVBUILD_INDEX", indexes.get("default"))
    return {**indexes, "default": default} if default else indexes


def _channels(written: SettingsFile) -> dict[str, Texts]:
    return {
        name: (urls,) if isinstance(urls, str) else urls for name, urls in written.channels.items()
    }


def _certificates(sources: _Sources) -> Path | None:
    """Return the bundle that a variable names, else the one of pip's configuration."""
    bundle = next(filter(None, map(sources.env.get, CERTIFICATE_VARIABLES)), None)
    if bundle:
        return Path(bundle)
    if sources.env.get("SSL_CERT_DIR"):  # OpenSSL's own; uv reads it too
        return None
    for path in pip_files(sources.env, sources.home):
        # a broken file is told of where the index is looked for, not by every command
        with suppress(UsageError):
            written = read_pip_option(path, "cert")
            if written:
                return sources.absolute(written)
    return None


def shipped_folder() -> Path:
    """Return the folder of shipped ``recipes`` and ``lockfiles``: in the wheel or source tree."""
    package = Path(__file__).resolve().parent
    return package / "shipped" if (package / "shipped").is_dir() else package.parent


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
