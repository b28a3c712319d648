"""What a conda package says of itself: index.json, paths.json and link.json (CEP 34 and CEP 19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from envbuild.errors import IntegrityError
from envbuild.formats.fields import Sha256
from envbuild.limits import PATH, UNREADABLE, split_words
from envbuild.names import Texts

INDEX, PATHS = "info/index.json", "info/paths.json"
LINK, ABOUT = "info/link.json", "info/about.json"
FILES, HAS_PREFIX = "info/files", "info/has_prefix"
WANTED = (INDEX, PATHS, LINK, FILES, HAS_PREFIX)
"""Members of the archive that are read as a whole."""
LISTS = (PATHS, FILES, HAS_PREFIX)
"""Those of them that grow with the package."""
SIGNS = ((PATHS, b"{"), (FILES, b"\n"), (HAS_PREFIX, b"\n"))
"""What stands once for each path in a list."""
MOST_PATHS = 300_000
"""Files of a package; the largest of conda-forge have some 50,000."""
OLD_PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3"
"""The placeholder of packages that name none (conda's PREFIX_PLACEHOLDER)."""
LONGEST_LINE = 3 * PATH
"""Letters of a line of these lists: at most placeholder, mode and path."""
Placeholder = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00\n]+\Z")]
Mode = Literal["text", "binary"]
Kind = TypeVar("Kind")


class CondaPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a package; ``sha256`` and ``size`` are of the file as it lies in the archive."""

    path: Annotated[str, Meta(max_length=PATH)] = msgspec.field(name="_path")
    type: Literal["hardlink", "softlink", "directory"] = msgspec.field(
        name="path_type", default="hardlink"
    )
    placeholder: Placeholder | None = msgspec.field(name="prefix_placeholder", default=None)
    mode: Mode | None = msgspec.field(name="file_mode", default=None)
    sha256: Sha256 | None = None
    size: int | None = msgspec.field(name="size_in_bytes", default=None)


class CondaIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The index.json of a package, as far as its record in the prefix repeats it."""

    name: str
    version: str
    build: str
    build_number: int = 0
    depends: Texts = ()
    constrains: Texts = ()
    license: str | None = None
    license_family: str | None = None
    noarch: Literal["python", "generic"] | bool | None = None
    timestamp: int | None = None
    track_features: str | Texts | None = None
    arch: str | None = None
    platform: str | None = None
    python_site_packages_path: str | None = None


class CondaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that linking needs to know; ``entry_points`` are lines ``command = module:function``."""

    index: CondaIndex
    paths: tuple[CondaPath, ...]
    entry_points: Texts = ()

    @property
    def is_python(self) -> bool:
        """Whether its files go where the Python of the environment looks for them."""
        return self.index.noarch == "python"


class _PathsFile(msgspec.Struct, frozen=True):
    paths: tuple[CondaPath, ...]
    paths_version: int = 1


class _NoArchLinks(msgspec.Struct, frozen=True):
    type: str
    entry_points: Texts = ()


class _LinkFile(msgspec.Struct, frozen=True):
    noarch: _NoArchLinks


# made when this is imported, as threads must not be the first to do (parts/cache.py)
INDEX_READER = msgspec.json.Decoder(CondaIndex)
PATHS_READER = msgspec.json.Decoder(_PathsFile)
LINK_READER = msgspec.json.Decoder(_LinkFile)


def read_info(held: Mapping[str, bytes]) -> CondaInfo:
    """Return what the members of WANTED say, by their names.

    Raises IntegrityError for a package without them, or with others than the specification has.
    """
    if INDEX not in held:
        raise IntegrityError(f"has no {INDEX}, which every conda package has")
    # each becomes an object of many times its bytes
    if any(held.get(name, b"").count(sign) > MOST_PATHS for name, sign in SIGNS):
        raise IntegrityError(f"lists more than {MOST_PATHS} files")
    index = _decode(held, INDEX, INDEX_READER)
    paths = _decode(held, PATHS, PATHS_READER).paths if PATHS in held else _old_paths(held)
    points: Texts = ()
    if index.noarch == "python" and LINK in held:
        points = _decode(held, LINK, LINK_READER).noarch.entry_points
    if len({path.path for path in paths}) != len(paths):
        raise IntegrityError("names a path twice")
    return CondaInfo(index=index, paths=paths, entry_points=points)


def _decode(held: Mapping[str, bytes], name: str, reader: msgspec.json.Decoder[Kind]) -> Kind:
    try:
        return reader.decode(held[name])
    except UNREADABLE as error:
        raise IntegrityError(f"its {name} cannot be read: {error}") from error


def _old_paths(held: Mapping[str, bytes]) -> tuple[CondaPath, ...]:
    """Return the paths of a package older than paths.json (conda-build 2), which name no hashes."""
    if FILES not in held:
        raise IntegrityError(f"has neither {PATHS} nor {FILES}")
    prefixed: dict[str, tuple[str, Mode]] = {}
    for line in _lines_of(held.get(HAS_PREFIX, b""), HAS_PREFIX):
        match split_words(line):
            case [marker, "text" | "binary" as kind, path]:
                prefixed[path] = (marker, kind)
            case [path]:
                prefixed[path] = (OLD_PLACEHOLDER, "text")
            case [_, *_]:
                raise IntegrityError(f"its {HAS_PREFIX} has the line {line[:200]!r}")
    found = []
    for name in _lines_of(held[FILES], FILES):
        placeholder, mode = prefixed.get(name, (None, None))
        found.append(CondaPath(path=name, placeholder=placeholder, mode=mode))
    return tuple(found)


def _lines_of(data: bytes, member: str) -> Iterator[str]:
    """Yield the lines of a list that are not empty, as they were counted: only \\n ends one."""
    for line in data.decode().split("\n"):
        if len(line) > LONGEST_LINE:
            raise IntegrityError(f"its {member} has a line of {len(line)} letters")
        if line.rstrip("\r"):
            yield line.rstrip("\r")
