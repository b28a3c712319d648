"""What the chosen files say about themselves: sizes and metadata, without downloading wheels.

A wheel keeps its metadata near its end, so one request for the last part gives both; an sdist is
fetched whole into the store, because its build requirements are wanted too.  What a file says never
changes: it is kept by the file's sha256.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError
from envbuild.limits import decode_kept
from envbuild.names import Texts
from envbuild.net.answers import read_bounded
from envbuild.net.download import Download, download_file
from envbuild.net.fetch import ask_sizes
from envbuild.net.parallel import for_each_parallel
from envbuild.net.partial import is_complete
from envbuild.net.redact import redact
from envbuild.net.web import local_path, make_client, open_response, with_retries
from envbuild.progress import Silent
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.metadata import TAIL, Remote, member_names, wheel_headers, wheel_text
from envbuild.resolve.sources.sdists import read_sdist
from envbuild.resolve.stubs import parse_requirements
from envbuild.store.atomic import os_errors_as, write_bytes
from envbuild.store.layout import Store

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
FORM = 4
"""Changes whenever more is read from a file than before, so that what was kept earlier is read
anew."""
COMPUTED = ("packed", "none")
"""Where the requirements stand that a build in a base may give otherwise: those of a setup.py that
computes them."""
LARGEST_WHOLE = 64 * 1024 * 1024
"""Bytes of a wheel that is read whole where the server knows no ranges."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What one file says: ``size`` in bytes; ``requires`` and ``build`` are PEP 508 strings.

    ``read_from`` says where the requirements stand: "wheel", "built" for the wheel that an image's
    build made of an sdist, or as in sdists.Declared, which tells the rest.
    """

    size: int
    requires: Texts = ()
    requires_python: str | None = None
    build: Texts = ()
    read_from: str = "wheel"
    backend: str = ""
    stub: str | None = None
    old: Texts = ()


def describe_files(files: Iterable[Candidate], context: Context) -> dict[str, About]:
    """Return what the files say, by sha256; several are asked at once.

    Raises NetworkError, and IntegrityError for a file that is not what the index says.
    """
    wanted = {candidate.sha256: candidate for candidate in files}
    for candidate in wanted.values():
        if not SHA256.fullmatch(candidate.sha256):
            hint = f"{redact(candidate.url)} does not name one: use another index"
            raise IntegrityError(f"the index gives no sha256 for {candidate.file}", hint=hint)
    store = context.store
    folder = store.folder("metadata")
    known = {}
    for sha in wanted:
        about = decode_kept(store.metadata(f"{sha}-{FORM}.json"), About)
        if about is not None:
            known[sha] = _as_built(about, sha, folder)
    missing = [candidate for sha, candidate in wanted.items() if sha not in known]
    if not missing:
        return known
    context.report.detail(f"read the metadata of {len(missing)} files")
    with make_client(context.settings) as client:

        def one(candidate: Candidate, stop: threading.Event) -> None:
            about = _ask_file(candidate, client, store, stop)
            path = folder / f"{candidate.sha256}-{FORM}.json"
            write_bytes(path, msgspec.json.encode(about))
            known[candidate.sha256] = _as_built(about, candidate.sha256, folder)

        for_each_parallel(missing, one, workers=context.settings.downloads + 4)
    return known


def note_built(sha256: str, requires: Texts, store: Store) -> Texts:
    """Keep what a built wheel requires; return the names that its archive did not say.

    Where the archive says what holds for every build, nothing is kept.  What was resolved before is
    forgotten.
    """
    folder = store.folder("metadata")
    about = decode_kept(folder / f"{sha256}-{FORM}.json", About)
    if about is None or about.read_from not in COMPUTED:
        return ()
    write_bytes(folder / f"{sha256}-built.json", msgspec.json.encode(requires))
    required = {canonicalize_name(one.name) for one in parse_requirements(about.requires)}
    plain = [one for one in parse_requirements(requires) if "extra ==" not in str(one.marker or "")]
    new = {canonicalize_name(one.name) for one in plain} - required
    for answer in store.folder("answers").glob("*.json") if new else ():
        answer.unlink(missing_ok=True)
    return tuple(sorted(new))


def _as_built(about: About, sha256: str, folder: Path) -> About:
    """Return what an archive says, with its built wheel's requirements where these are computed."""
    if about.read_from not in COMPUTED:
        return about
    requires = decode_kept(folder / f"{sha256}-built.json", Texts)
    if requires is None:
        return about
    return structs.replace(about, requires=requires, read_from="built")


def wheel_metadata(candidate: Candidate, client: httpx.Client) -> str:
    """Return the METADATA of a wheel, from its end alone.  Raises as describe_files."""
    return _read_wheel(wheel_text, candidate, client)


def wheel_members(candidate: Candidate, client: httpx.Client) -> list[str]:
    """Return the file names in a wheel, from its end alone.  Raises as describe_files."""
    return _read_wheel(member_names, candidate, client)


def _read_wheel(
    read: Callable[[BinaryIO, str], T], candidate: Candidate, client: httpx.Client
) -> T:
    path = local_path(candidate.url)
    if path is not None:
        with os_errors_as(path), path.open("rb") as file:
            return read(file, candidate.file)
    return with_retries(
        lambda: read(_remote_wheel(candidate, client)[0], candidate.file), url=candidate.url
    )


def stored_file(
    candidate: Candidate, client: httpx.Client, store: Store, stop: threading.Event
) -> Path:
    """Bring a whole file into the store and return where it lies there."""
    size = (
        candidate.size
        if candidate.size is not None
        else ask_sizes([candidate.url], client)[candidate.url]
    )
    final = store.artifact(candidate.sha256)
    if not is_complete(final, size):
        job = Download(
            url=candidate.url, name=candidate.file, size=size, sha256=candidate.sha256, final=final
        )
        with Silent().transfer("", files=1, size=size) as transfer:
            download_file(job, client=client, transfer=transfer, report=Silent(), stop=stop)
    return final


def _ask_file(
    candidate: Candidate, client: httpx.Client, store: Store, stop: threading.Event
) -> About:
    if candidate.file.endswith(".whl"):
        path = local_path(candidate.url)
        if path is None:
            return with_retries(
                lambda: _about_remote(candidate, client), url=candidate.url, stop=stop
            )
        with os_errors_as(path), path.open("rb") as file:
            return _about_wheel(file, candidate, path.stat().st_size)
    final = stored_file(candidate, client, store, stop)
    declared = structs.asdict(read_sdist(final, candidate.file))
    return About(size=final.stat().st_size, **declared)


def _about_wheel(file: BinaryIO, candidate: Candidate, size: int) -> About:
    found = wheel_headers(file, candidate.file)
    return About(size=size, requires=found.requires, requires_python=found.requires_python)


def _about_remote(candidate: Candidate, client: httpx.Client) -> About:
    file, size = _remote_wheel(candidate, client)
    return _about_wheel(file, candidate, size)


def _remote_wheel(candidate: Candidate, client: httpx.Client) -> tuple[BinaryIO, int]:
    """Ask for the wheel's last part; further parts only where the directory points elsewhere.

    Returns the wheel as a file, and its size.
    """
    # offsets are those of the file, not of a compressed answer
    plain = {"Accept-Encoding": "identity"}
    # a suffix range (RFC 9110, 14.1.2) gives the end, where a zip keeps its directory
    tail = {**plain, "Range": f"bytes=-{TAIL}"}
    with open_response(client, candidate.url, headers=tail, accept=(200, 206)) as response:
        found = RANGE.fullmatch(response.headers.get("Content-Range", ""))
        length = response.headers.get("Content-Length", "")
        # a server without ranges sends the whole file, which is taken where it is small
        if response.status_code == 200 and not (
            length.isdecimal() and int(length) <= LARGEST_WHOLE
        ):
            raise NetworkError(
                "does not answer requests for a part of a file", where=redact(candidate.url)
            )
        data = read_bounded(response, LARGEST_WHOLE)
    size = int(found[3]) if found and response.status_code == 206 else len(data)
    if candidate.size not in (None, size):
        raise IntegrityError(
            f"the index says that {candidate.file} has {candidate.size} bytes, its server that it "
            f"has {size}",
            where=redact(candidate.url),
            hint="a damaged or hostile mirror or proxy does this, so find out before you go on",
        )

    def part(first: int, last: int) -> bytes:
        wanted = {**plain, "Range": f"bytes={first}-{last}"}
        with open_response(client, candidate.url, headers=wanted, accept=(206,)) as answer:
            return read_bounded(answer, LARGEST_WHOLE)

    return cast("BinaryIO", Remote(size, part, data)), size
