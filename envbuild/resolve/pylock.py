"""Read and seed uv's PEP 751 output, as far as a resolution needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from envbuild.errors import IntegrityError, ToolFailedError
from envbuild.names import Pairs
from envbuild.net.redact import redact
from envbuild.records import frozen_record
from envbuild.resolve.stubs import is_stub
from envbuild.toml import parse_toml, quote

FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!~-]{0,254}", re.ASCII)


@frozen_record
class Candidate:
    """One file of a chosen version; ``size`` in bytes or None, ``uploaded`` an ISO date."""

    file: str
    url: str
    sha256: str
    size: int | None = None
    uploaded: str | None = None


@frozen_record
class Chosen:
    """One package of the answer: the wheels that uv kept for the platform, and the sdist."""

    name: str
    version: str
    wheels: tuple[Candidate, ...] = ()
    sdist: Candidate | None = None

    @property
    def from_base(self) -> bool:
        """Whether a stub was chosen: the base holds it."""
        return is_stub(self.version)

    @property
    def files(self) -> tuple[Candidate, ...]:
        """All of them."""
        return (*self.wheels, *filter(None, (self.sdist,)))

    @property
    def uploaded(self) -> str:
        """The ISO date of the first file; empty where the index tells none."""
        return min(filter(None, (file.uploaded for file in self.files)), default="")


def new_versions(answer: Mapping[str, Chosen]) -> dict[str, str]:
    """Return what an answer brings: name to version."""
    return {name: chosen.version for name, chosen in answer.items() if not chosen.from_base}


def read_pylock(text: str) -> dict[str, Chosen]:
    """Read uv's answer by name.  Raises ToolFailedError for an unknown form."""
    data = parse_toml(text, "uv's answer")
    try:
        return {entry["name"]: _read_package(entry) for entry in data.get("packages", ())}
    except (KeyError, TypeError, AttributeError) as error:
        raise ToolFailedError(f"uv's answer is not a lock as PEP 751 has it: {error}") from error


def _read_package(entry: Mapping[str, Any]) -> Chosen:
    version = entry["version"]
    if not isinstance(version, str) or not isinstance(entry["name"], str):
        raise TypeError("name and version have to be strings")
    # of a stub nothing counts but name and version: its file is one of ours
    if is_stub(version):
        return Chosen(name=entry["name"], version=version)
    wheels = tuple(_read_candidate(wheel) for wheel in entry.get("wheels", ()))
    sdist = _read_candidate(entry["sdist"]) if "sdist" in entry else None
    return Chosen(name=entry["name"], version=version, wheels=wheels, sdist=sdist)


def _read_candidate(entry: Mapping[str, Any]) -> Candidate:
    url = entry["url"] if "url" in entry else f"file://{entry['path']}"
    uploaded = entry.get("upload-time")
    # PEP 751 lets the name be left out where the address ends with it
    file = entry.get("name") or _file_of(url)
    if not FILE.fullmatch(file):
        raise IntegrityError(
            f"the index offers a file named {file[:80]!r}: not the name of a package file"
        )
    return Candidate(
        file=file,
        url=url,
        sha256=entry["hashes"]["sha256"],
        size=entry.get("size"),
        uploaded=uploaded.date().isoformat() if uploaded is not None else None,
    )


def _file_of(url: str) -> str:
    try:
        path = urlsplit(url).path
    except ValueError as error:
        raise IntegrityError(
            f"the index offers {redact(url)[:80]!r}, which is no address"
        ) from error
    return unquote(path.rsplit("/", 1)[-1])


def write_seed(pins: Iterable[tuple[str, str]]) -> str:
    """Write the smallest lock that uv reads preferences from: names and versions."""
    entries = "".join(
        f"\n[[packages]]\nname = {quote(n)}\nversion = {quote(v)}\n" for n, v in sorted(pins)
    )
    # uv takes preferences from its own output file, where it needs names and versions alone
    return 'lock-version = "1.0"\ncreated-by = "envbuild"\n' + (entries or "packages = []\n")


def refuse_local(answer: Mapping[str, Chosen], archives: Pairs) -> None:
    """Raise IntegrityError for a file of this machine that an index elsewhere names.

    ``archives`` are names and paths of archives that are the caller's own.
    """
    own = {name for name, _ in archives} | {Path(archive).name for _, archive in archives}
    for chosen in answer.values():
        for file in chosen.files:  # a stub has none
            if not file.url.startswith("http") and file.file not in own:
                raise IntegrityError(
                    f"the index offers {chosen.name} as a file of this machine: {file.url[:200]}",
                    hint=(
                        "a damaged or hostile index or mirror does this, so find out before you "
                        "go on"
                    ),
                )
