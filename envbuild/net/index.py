"""Find the package index of this machine and list a project's files on it."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from envbuild import limits
from envbuild.context import Context
from envbuild.errors import NetworkError, UsageError
from envbuild.limits import read_kept
from envbuild.net.answers import read_bounded
from envbuild.net.redact import redact
from envbuild.net.simple import (
    ACCEPT,
    HTML_TYPES,
    JSON_TYPE,
    Link,
    PageError,
    links_of_html,
    links_of_json,
)
from envbuild.net.web import (
    GoneError,
    local_errors,
    local_path,
    make_client,
    open_response,
    with_retries,
)
from envbuild.pip_files import config_folders, pip_files, read_pip_option
from envbuild.run import Command, Runner
from envbuild.settings import Settings
from envbuild.store.atomic import write_text
from envbuild.toml import closest, read_toml
from envbuild.tools import uv_program

if TYPE_CHECKING:
    import httpx

__all__ = ["Link", "index_url", "make_client", "read_links"]


def index_url(context: Context, name: str | None = None) -> str:
    """Return the URL of the default package index, or of the one that the settings call ``name``.

    The default is the first of: [indexes] default (or ENVBUILD_INDEX); UV_DEFAULT_INDEX,
    UV_INDEX_URL, PIP_INDEX_URL; uv's configuration files; pip's; what uv itself prints as its
    default.  pip's extra-index-url and find-links are ignored on purpose: a recipe names its extra
    indexes, or another machine would find other files.  Raises UsageError for an unknown name, an
    address that is no URL, or a configuration file that does not parse.
    """
    settings = context.settings
    if name is not None and name != "default":
        return _named_index(settings, name)
    for origin, value in _default_indexes(settings):
        if value:
            return _require_url(value, origin)
    return _require_url(_index_of_uv(context), "uv's default index")


def read_links(
    index: str, project: str, client: httpx.Client, *, stop: threading.Event | None = None
) -> tuple[Link, ...]:
    """List a project's files on an index: JSON where it is served, else HTML.

    Entries that name no package file are left out.  Raises GoneError when the index has no such
    project, NetworkError when it does not answer, refuses, or answers with something that is no
    index page; StoppedError once ``stop`` is set.
    """
    page = f"{index.rstrip('/')}/{canonicalize_name(project)}/"
    folder = local_path(page)
    try:
        if folder is not None:
            return _read_local(folder, page)
        return with_retries(lambda: _read_page(page, client), url=page, stop=stop)
    except GoneError as error:
        raise GoneError(f"the index has no project {project!r}", where=redact(page)) from error
    except PageError as error:
        hint = f"is {redact(index)} a package index? It may also be a proxy's login page"
        raise NetworkError(str(error), where=redact(page), hint=hint) from error


def _read_page(page: str, client: httpx.Client) -> tuple[Link, ...]:
    with open_response(client, page, headers={"Accept": ACCEPT}) as response:
        content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if content_type != JSON_TYPE and content_type not in HTML_TYPES:
            raise PageError(f"is {content_type[:60] or 'of no stated type'}, not an index page")
        data = read_bounded(response, limits.PAGE)
        base = str(response.url)
        if content_type == JSON_TYPE:
            return links_of_json(data, base)
        return links_of_html(data.decode("utf-8", "replace"), base)


def _read_local(folder: Path, page: str) -> tuple[Link, ...]:
    path = folder / "index.html"
    with local_errors(path):
        if path.stat().st_size > limits.PAGE:
            size = f"{limits.PAGE // 2**20} MiB"
            raise PageError(f"is larger than {size}: too large for an index page")
        return links_of_html(path.read_text("utf-8", "replace"), page)


def index_variable(name: str) -> str:
    """Return the variable with an extra index's address, for settings without a password."""
    return "ENVBUILD_INDEX_" + re.sub("[^A-Z0-9]", "_", name.upper())


def _named_index(settings: Settings, name: str) -> str:
    variable = index_variable(name)
    if settings.environment.get(variable):
        return _require_url(settings.environment[variable], variable)
    if name in settings.indexes:
        return _require_url(settings.indexes[name], f"[indexes] {name}")
    known = [key for key in settings.indexes if key != "default"]
    raise UsageError(
        f"no index is called {name!r} on this machine{closest(name, known)}",
        hint=f'write its address into {settings.config}:\n[indexes]\n{name} = "https://…/simple"\n'
        f"or set {variable}",
    )


def _require_url(value: str, origin: str) -> str:
    """Return the URL without white space and without uv's ``name=`` before it."""
    url = re.sub(r"^[\w.-]+=(?=[a-z]+:)", "", value.strip())
    if not re.fullmatch(
        r"https?://[^\s/?#][^\s?#]*|file:(//(localhost)?/|/(?!/))[^\s?#]*", url, re.IGNORECASE
    ):
        raise UsageError(
            f"{redact(url)!r} is not the address of a package index",
            where=origin,
            hint="write it as https://…/simple, or file:///… for a folder on this machine",
        )
    return url


def _default_indexes(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield (where it was looked for, what is there) in order of precedence."""
    env = settings.environment
    yield settings.origin.get("index", "[indexes] default"), settings.indexes.get("default")
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        yield variable, env.get(variable)
    for path in _uv_files(settings):
        yield str(path), _of_uv_file(path)
    for path in pip_files(env, settings.home):
        yield str(path), read_pip_option(path, "index-url")


def _uv_files(settings: Settings) -> list[Path]:
    """Return uv's configuration files, the strongest first (uv, "Configuration files")."""
    env = settings.environment
    if env.get("UV_CONFIG_FILE"):
        return [Path(env["UV_CONFIG_FILE"])]
    folders = (*config_folders(env, settings.home), Path("/etc"))
    return [folder / "uv" / "uv.toml" for folder in folders]


def _of_uv_file(path: Path) -> str | None:
    if not path.is_file():
        return None
    data, _ = read_toml(path)
    pip = data.get("pip")
    for table in (data, pip if isinstance(pip, dict) else {}):
        found = _of_uv_table(table)
        if found:
            return found
    return None


def _of_uv_table(table: dict[str, Any]) -> str | None:
    entries = table.get("index")
    for entry in entries if isinstance(entries, list) else []:
        if (
            isinstance(entry, dict)
            and entry.get("default") is True
            and isinstance(entry.get("url"), str)
        ):
            return str(entry["url"])
    value = table.get("index-url")
    return value if isinstance(value, str) else None


def _index_of_uv(context: Context) -> str:
    """Return uv's own default index, which is kept as long as the program stays the same file."""
    program = uv_program(context.settings)
    try:
        stat = Path(program).stat()
    except OSError:
        return _built_in(context.runner, program)  # type: ignore[arg-type]  # by identity
    this = f"{program} {stat.st_size} {stat.st_mtime_ns}"
    path = context.store.folder("metadata") / "uv-default-index.txt"
    with suppress(OSError, UnicodeDecodeError):
        known, _, url = read_kept(path).decode("utf-8").partition("\n")
        if known == this:
            return url
    url = _built_in(context.runner, program)  # type: ignore[arg-type]  # by identity
    write_text(path, f"{this}\n{url}")
    return url


@functools.lru_cache(maxsize=4)
def _built_in(runner: Runner, program: str) -> str:
    """Ask uv for its default index, so that no registry's name is in this program."""
    result = runner(Command(argv=(program, "pip", "compile", "--help"), timeout=60))
    found = re.search(r"by\s+default:\s+<([^>\s]+)>", result.stdout)
    if not found:
        hint = "set ENVBUILD_INDEX to its address"
        raise UsageError("uv does not print its default package index", hint=hint)
    return found[1]
