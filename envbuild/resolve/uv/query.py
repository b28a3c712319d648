"""One question to uv: its files, its arguments, its environment."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from envbuild.base.model import BaseFacts
from envbuild.names import Pairs, Texts
from envbuild.net.redact import without_user
from envbuild.records import frozen_record
from envbuild.resolve.platform import uv_platform
from envbuild.resolve.pylock import write_seed
from envbuild.resolve.stubs import extras_named
from envbuild.settings import Settings
from envbuild.toml import quote, write_pairs, write_value

KEPT_VARIABLES = re.compile(
    r"UV_(CACHE_DIR|SYSTEM_CERTS|NATIVE_TLS|INSECURE_HOST|HTTP_\w+|KEYRING_PROVIDER|OFFLINE|CONCURRENT_\w+"
    r"|REQUEST_TIMEOUT|INDEX_\w+_(USERNAME|PASSWORD))"
)
"""What uv may still take from the environment: cache, trust, credentials, limits.  Everything else
would leak in."""
PASSED_ON = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
QUIET = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
BUILDS = "uv_client=debug,uv_distribution=debug"
"""As REQUESTS, and the names of what is built."""
REQUESTS = "uv_client=debug"
"""Makes uv name the addresses that it asks: known when it is ended because one of them is slow."""
CACHE_CONTROL = '{ api = "max-age=600", files = "max-age=31536000, immutable" }'
"""Mirrors without validators would else be asked again for every page at every question."""


@frozen_record
class Question:
    """One call of uv.

    ``seed`` are versions to prefer; without ``deps`` only the requirements themselves are looked
    at; without ``soft`` the base's replaceable packages are not offered; ``lowest`` asks for the
    oldest versions; ``as_of`` is an ISO date or None, which ``fresh`` names are free of; ``binary``
    names are not taken as source; ``seconds`` is a time limit; ``refresh`` asks the index for
    pages that were just read.
    """

    requirements: Texts
    constraints: Texts = ()
    seed: Pairs = ()
    deps: bool = True
    soft: bool = True
    lowest: bool = False
    as_of: str | None = None
    fresh: Texts = ()
    binary: Texts = ()
    seconds: float | None = None
    refresh: bool = False


def uv_environment(settings: Settings) -> dict[str, str]:
    """Return uv's environment without what would change an answer (UV_CONSTRAINT, …).

    uv trusts the certificates that envbuild itself trusts: those of the settings, else the
    system's.
    """
    kept = {
        name: value
        for name, value in settings.environment.items()
        if not name.startswith(("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON"))
        or KEPT_VARIABLES.fullmatch(name)
    }
    trust, cache = _trust_variables(settings.certificates), cache_variables(settings)
    return trust | kept | cache | QUIET | {"RUST_LOG": REQUESTS}


def _trust_variables(certificates: Path | None) -> dict[str, str]:
    """Return the variables that make uv and pip trust a bundle; None is the system's.

    uv takes its own bundled ones else (uv's documentation, "TLS certificates").
    """
    if certificates is None:
        return {"UV_SYSTEM_CERTS": "1"}
    if certificates.is_dir():
        return {"SSL_CERT_DIR": str(certificates)}
    return {"SSL_CERT_FILE": str(certificates), "PIP_CERT": str(certificates)}


def building_environment(settings: Settings, home: Path) -> dict[str, str]:
    """Return uv's environment where it may build: made from nothing, with an empty home.

    What uv itself needs of the user's home is named: its cache, and the file of passwords.
    """
    kept = {
        name: value
        for name, value in settings.environment.items()
        if KEPT_VARIABLES.fullmatch(name) or name.lower() in PASSED_ON
    }
    # an empty home holds neither configuration nor keys of the user
    own = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    netrc = settings.environment.get("NETRC") or str(settings.home / ".netrc")
    return {
        **_trust_variables(settings.certificates),
        "UV_CACHE_DIR": str(usual_cache(settings)),
        **kept,
        **cache_variables(settings),
        **own,
        "NETRC": netrc,
        **QUIET,
        "RUST_LOG": BUILDS,
    }


def uv_arguments(
    question: Question, place: Path, facts: BaseFacts, python: str, *, builds: bool = False
) -> Texts:
    """Return uv's arguments for a question whose files lie in ``place``.

    Without ``builds``, ``python`` runs nothing (interpreter.py), and nothing is fetched for a
    build.
    """
    options = [
        "pip", "compile", "--color", "never", "--no-header", "--no-python-downloads",
        "--config-file", "uv.toml", "--python", python, "--python-version", facts.python,
        "--python-platform", uv_platform(facts),
        "--constraints", "constraints.txt", "--output-file", "pylock.toml",
    ]  # fmt: skip
    # without isolation uv fetches nothing for a build, which then ends in the mute interpreter
    if not builds:
        options.append("--no-build-isolation")
    if question.soft:
        options += ["--find-links", str((place.parent / "soft").resolve())]
    if not question.deps:
        options.append("--no-deps")
    if question.lowest:
        options += ["--resolution", "lowest"]
    if question.refresh:
        options.append("--refresh")
    for name in question.binary:
        options += ["--only-binary", name]
    # --exclude-newer goes by the upload times of the index (PEP 700)
    if question.as_of:
        options += ["--exclude-newer", question.as_of]
        for name in question.fresh:
            options += ["--exclude-newer-package", f"{name}=false"]
    return (*options, "requirements.in")


def write_question(
    place: Path,
    question: Question,
    *,
    hard: Path,
    indexes: Mapping[str, str],
    static: Mapping[tuple[str, str], Texts],
    from_source: Texts = (),
) -> None:
    """Write a question's files: uv.toml, requirements.in, constraints.txt, preferences."""
    blocks = [*_index_blocks(question, hard, indexes), *_metadata_blocks(static)]
    if from_source:
        blocks.append(f"[pip]\nno-binary = {write_value(from_source)}\n")
    (place / "uv.toml").write_text("\n".join(blocks), "utf-8")
    (place / "requirements.in").write_text(
        "".join(f"{line}\n" for line in question.requirements), "utf-8"
    )
    (place / "constraints.txt").write_text(
        "".join(f"{line}\n" for line in question.constraints), "utf-8"
    )
    (place / "pylock.toml").write_text(write_seed(question.seed), "utf-8")


def _index_blocks(question: Question, hard: Path, indexes: Mapping[str, str]) -> list[str]:
    # uv stays with the first index that has a name: protected ones come from the stubs alone
    blocks = [f'[[index]]\nname = "base"\nurl = {quote(str(hard))}\nformat = "flat"\n']
    for name, url in indexes.items():
        default = "default = true\n" if name == "default" else ""
        # where uv is told how long a page counts, that counts more than --refresh
        told = url.startswith("http") and not question.refresh
        remote = f"cache-control = {CACHE_CONTROL}\n" if told else ""
        blocks.append(f"[[index]]\nname = {quote(name)}\nurl = {quote(url)}\n{default}{remote}")
    return blocks


def _metadata_blocks(static: Mapping[tuple[str, str], Texts]) -> Iterator[str]:
    """Yield what uv is told of releases, so that it asks nobody for it."""
    for (name, version), requires in sorted(static.items()):
        row = {
            "name": name,
            "version": version,
            "requires-dist": requires,
            "provides-extra": extras_named(requires),
        }
        yield "\n".join(("[[dependency-metadata]]", *write_pairs(row), ""))


def read_origins(text: str, indexes: Mapping[str, str]) -> dict[str, str]:
    """Read uv's index annotations (``name==version``, ``# from URL``) of extra indexes."""
    by_url = {redacted(url): name for name, url in indexes.items() if name != "default"}
    found: dict[str, str] = {}
    name = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("# from ") and redacted(line.removeprefix("# from ")) in by_url:
            found[name] = by_url[redacted(line.removeprefix("# from "))]
        elif line and not line.startswith("#"):
            name = line.partition("==")[0]
    return found


def redacted(url: str) -> str:
    """Return a URL without credentials and final slash, to compare it with what uv prints."""
    return without_user(url).rstrip("/")


NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
"""What link(2) says on disks without hard links."""
LOCAL = "/var/tmp"  # noqa: S108  (a folder there is looked at before it is used)
"""Where files outlive a restart; the system removes what is old."""


def cache_variables(settings: Settings) -> dict[str, str]:
    """Return the variable that gives uv another cache; none where its own can be used.

    uv puts its locks in place by a hard link, and ends without ("Could not acquire lock") on sshfs,
    some NFS and exFAT.
    """
    named = settings.environment.get("UV_CACHE_DIR")
    if _takes_links(Path(named) if named else usual_cache(settings)):
        return {}
    folder = Path(settings.environment.get("TMPDIR") or LOCAL) / f"envbuild-uv-{os.getuid()}"
    return {"UV_CACHE_DIR": str(folder)} if _is_private(folder) else {}


def usual_cache(settings: Settings) -> Path:
    """Return the folder that uv takes where nobody names one."""
    return Path(settings.environment.get("XDG_CACHE_HOME") or settings.home / ".cache") / "uv"


@functools.cache
def _takes_links(folder: Path) -> bool:
    """Tell whether a folder takes hard links; of one that cannot be written, uv itself tells."""
    first, second = (folder / f".envbuild-{os.getpid()}-{name}" for name in "ab")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        first.touch()
        os.link(first, second)
    except OSError as error:
        return error.errno not in NO_LINKS or not first.exists()
    finally:
        with contextlib.suppress(OSError):
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
    return True


def _is_private(folder: Path) -> bool:
    """Make a folder of this user alone; False where somebody else has put one there."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:  # TMPDIR may name no folder
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )
