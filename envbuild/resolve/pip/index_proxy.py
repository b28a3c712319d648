"""A package index on this machine's loopback, for pip: the real ones as they were on a day.

pip knows no dates, takes a project's files from any index, and reads whole wheels where a mirror
has no metadata files.  What answers it here leaves out files that came later, asks the indexes in
their order and stays with the first that has a project, and reads metadata from the end of a wheel.
Source archives are shown as wheels without content that require what is read from them: pip builds
nothing.  pip itself needs no network, proxy or password then.
"""

from __future__ import annotations

import html
import io
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.limits import read_kept
from envbuild.net.index import read_links
from envbuild.net.simple import Link
from envbuild.net.web import GoneError, StoppedError, make_client
from envbuild.progress import Silent
from envbuild.records import replace
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import SHA256, describe_files, stored_file, wheel_metadata
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.versions import release_of
from envbuild.store.atomic import write_text
from envbuild.store.hashing import hash_text

if TYPE_CHECKING:
    import httpx

Answer = tuple[str, bytes | Path]
"""A content type, and a body or the file that is one."""
POLL_SECONDS = 0.05


class IndexProxy:
    """Several indexes as one.  ``indexes`` maps names to URLs in the order in which they are asked.

    ``hidden`` are canonical names that no index is asked for, ``from_source`` those whose wheels do
    not count. ``failure`` is the first error that pip was kept from seeing: it is told in place of
    pip's own words.
    """

    def __init__(
        self,
        indexes: Mapping[str, str],
        context: Context,
        hidden: Collection[str] = (),
        from_source: Collection[str] = (),
    ) -> None:
        self.failure: EnvbuildError | None = None
        self._indexes = tuple(indexes.values())
        self._context = replace(context, report=Silent())
        self._hidden = frozenset(hidden)
        self._from_source = frozenset(map(canonicalize_name, from_source))
        self._pages: dict[str, tuple[Link, ...] | None] = {}
        self._files: dict[str, Candidate] = {}
        self._stop = threading.Event()

    @contextmanager
    def serving(self, as_of: str | None = None, fresh: Collection[str] = ()) -> Iterator[str]:
        """Serve the index as it was at the end of the day ``as_of``; ``fresh`` names know no date.

        A secret word in the address keeps other users of this machine out.
        """
        self.failure = None
        self._stop.clear()
        word = secrets.token_urlsafe(16)
        with ExitStack() as stack:
            client = stack.enter_context(make_client(self._context.settings))

            def answer(path: str) -> Answer | None:
                parts = [unquote(part) for part in path.strip("/").split("/")]
                if len(parts) < 3 or not secrets.compare_digest(parts[0].encode(), word.encode()):
                    return None
                if parts[1] == "simple" and len(parts) == 3:
                    return self._project_page(canonicalize_name(parts[2]), client, as_of, fresh)
                return (
                    self._serve_file(parts[2], parts[-1], client)
                    if parts[1] == "file" and len(parts) == 4
                    else None
                )

            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_class(answer, self._note_error))
            thread = threading.Thread(
                target=server.serve_forever, args=(POLL_SECONDS,), daemon=True
            )
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}/{word}/simple"
            finally:
                self._stop.set()
                server.shutdown()
                server.server_close()
                thread.join()

    def _note_error(self, error: EnvbuildError) -> None:
        self.failure = self.failure or error

    def _project_page(
        self, project: str, client: httpx.Client, as_of: str | None, fresh: Collection[str]
    ) -> Answer | None:
        """Write a project's page as it was; None where no index has the project."""
        if project in self._hidden:
            return None
        if project not in self._pages:
            self._pages[project] = self._project_links(project, client)
        links = self._pages[project]
        if links is None:
            return None
        day = None if project in fresh else as_of
        # a file without a day came from an index that tells none: it is left out where a day counts
        shown = [link for link in links if day is None or _day_of(link) <= day]
        if project in self._from_source:
            shown = [link for link in shown if not link.file.endswith(".whl")]
        # a release with a pure wheel needs no sdist, which pip might else choose
        pure = {_release_text(link.file) for link in shown if link.file.endswith("-none-any.whl")}
        shown = [
            link
            for link in shown
            if link.file.endswith(".whl") or _release_text(link.file) not in pure
        ]
        lines = map(self._file_anchor, shown)
        return (
            "text/html; charset=utf-8",
            f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>".encode(),
        )

    def _project_links(self, project: str, client: httpx.Client) -> tuple[Link, ...] | None:
        pages = (self._read_listed(index, project, client) for index in self._indexes)
        return next((links for links in pages if links is not None), None)

    def _read_listed(
        self, index: str, project: str, client: httpx.Client
    ) -> tuple[Link, ...] | None:
        try:
            return read_links(index, project, client, stop=self._stop)
        except GoneError:
            return None

    def _file_anchor(self, link: Link) -> str:
        """Write one file; those without a sha256 cannot be locked and are not offered."""
        if link.sha256 is None or not SHA256.fullmatch(link.sha256):
            return ""
        key = hash_text(link.url)[:24]
        release = _release_text(link.file)
        self._files[key] = Candidate(
            file=link.file, url=link.url, sha256=link.sha256, size=link.size
        )
        is_wheel = link.file.endswith(".whl")
        if not is_wheel and release is None:
            return ""
        file = link.file if is_wheel or release is None else _stub_file(*release)
        # the hash of an sdist is not that of the wheel which stands for it; PEP 658 and PEP 714
        # name the metadata
        attributes = {
            "href": f"../../file/{key}/{file}",
            "data-requires-python": link.requires_python,
        }
        if is_wheel:
            attributes["href"] = f"{attributes['href']}#sha256={link.sha256}"
            attributes |= {"data-core-metadata": "true", "data-dist-info-metadata": "true"}
        if link.yanked:
            attributes["data-yanked"] = ""
        given = " ".join(
            f'{name}="{html.escape(value)}"'
            for name, value in attributes.items()
            if value is not None
        )
        return f"<a {given}>{html.escape(file)}</a>\n"

    def _serve_file(self, key: str, name: str, client: httpx.Client) -> Answer | None:
        candidate = self._files.get(key)
        release = _release_text(candidate.file) if candidate is not None else None
        if candidate is not None and release is not None and name == _stub_file(*release):
            return "application/octet-stream", self._stub_wheel(candidate, release)
        if candidate is None or name not in (candidate.file, f"{candidate.file}.metadata"):
            return None
        if name.endswith(".metadata"):
            return "application/octet-stream", self._read_metadata(candidate, client).encode()
        return "application/octet-stream", stored_file(
            candidate, client, self._context.store, self._stop
        )

    def _stub_wheel(self, candidate: Candidate, release: tuple[str, str]) -> bytes:
        """Return a wheel without content that requires what a source archive says.

        A placeholder requires what is nowhere, so that it is no answer.
        """
        about = describe_files([candidate], self._context)[candidate.sha256]
        requires = (
            about.requires
            if about.stub is None
            else (*about.requires, f"{release[0]}==0+placeholder")
        )
        with self._context.store.outside(self._context.settings.tmpdir) as folder:
            return write_wheel(folder, *release, requires).read_bytes()

    def _read_metadata(self, candidate: Candidate, client: httpx.Client) -> str:
        """Return a wheel's METADATA, kept in the store by the wheel's sha256."""
        kept: Path = self._context.store.folder("metadata") / f"{candidate.sha256}.txt"
        try:
            return read_kept(kept).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            text = wheel_metadata(candidate, client)
            write_text(kept, text)
            return text


def _release_text(file: str) -> tuple[str, str] | None:
    """Return name and version of a file of an index, None for one that is no file of a package."""
    found = release_of(file)
    return None if found is None else (found[0], str(found[1]))


def _day_of(link: Link) -> str:
    return (link.uploaded or "9")[:10]


def _stub_file(name: str, version: str) -> str:
    """Return the file name of the wheel that stands for a source archive."""
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def _handler_class(
    answer: Callable[[str], Answer | None], note: Callable[[EnvbuildError], None]
) -> type:
    """Return the class that answers requests; failures are noted and answered with an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer one request."""
            try:
                found = answer(self.path.partition("?")[0])
            except StoppedError:
                return
            except EnvbuildError as error:
                note(error)
                self.send_error(502)
                return
            if found is None:
                self.send_error(404)
                return
            kind, body = found
            self.send_response(200)
            self.send_header("Content-Type", kind)
            size = body.stat().st_size if isinstance(body, Path) else len(body)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            with body.open("rb") if isinstance(body, Path) else io.BytesIO(body) as source:
                shutil.copyfileobj(source, self.wfile)

        def log_message(self, *_: object) -> None:
            """Say nothing: pip tells what it did."""

    return Handler
