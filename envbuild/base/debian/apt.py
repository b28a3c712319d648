"""Choose Debian packages with apt's own resolver: no root, no trace on the host."""

from __future__ import annotations

import email.utils
import glob
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from envbuild import limits
from envbuild.base.debian.apt_config import apt_environment, apt_network, source_line, write_config
from envbuild.base.debian.apt_failure import install_error, too_slow_error, update_error
from envbuild.base.debian.distribution import DEBIAN, Distribution, mirror_of
from envbuild.base.debian.index import DebianIndex
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.model import AptPackage, DebianPackage
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, NetworkError, ToolFailedError, UsageError
from envbuild.names import BY_MACHINE, Paths
from envbuild.net.redact import USER, redact, without_user
from envbuild.progress import SilentStage, Stage
from envbuild.run import Command
from envbuild.store.atomic import make_folder, write_bytes, write_text
from envbuild.store.gc import tree_size
from envbuild.store.hashing import hash_bytes, hash_text
from envbuild.tools import find_tool

BASE_PACKAGES = ("apt", "ca-certificates", "python-is-python3", "python3", "python3-pip", "tzdata")
"""What a base holds beside the packages of priority "required" and the essential ones."""
UPDATE_SECONDS = 1800.0
"""How long apt may take over its lists: 9 MB, at 8 KiB a second; what hardly moves ends before."""
FRESH_SECONDS = 600.0
"""How long lists of a server count as fresh, as pages of an index do (resolve/answer_cache.py)."""
FETCHED = re.compile(r"dlstatus:\d+:(\d+)")
"""apt's own word for how many percent of the lists it has (APT::Status-Fd)."""
InstalledPackage = DebianPackage | AptPackage
"""A Debian package that is there already: of a lock, or of an image's facts."""
INSTALL_LINE = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) [^\[\n]*\[(\S+)\]\)", re.MULTILINE)
"""Name, version and architecture of ``Inst libc6 [2.36-9] (2.36-9+deb12u14 … [amd64]) []``."""


@dataclass(frozen=True, kw_only=True)
class AptLists:
    """A suite's lists: apt's configuration file, the Packages files, the release's date (ISO).

    ``release`` is what people call it: "Debian bookworm".  ``digest`` is the hash of the Release
    file, which names every Packages file with its hash.
    """

    suite: str
    release: str
    architecture: str
    config: Path
    files: Paths
    date: str
    digest: str

    @cached_property
    def index(self) -> DebianIndex:
        """The parsed Packages files: 50 MB and a second, so only where they are needed."""
        return DebianIndex.read(*self.files)


def debian_mirror(context: Context) -> str:
    """Return the URL of a Debian mirror, as mirror_of does."""
    return mirror_of(DEBIAN, context)


def read_lists(
    suite: str,
    context: Context,
    stage: Stage,
    *,
    machine: str = "x86_64",
    distribution: Distribution = DEBIAN,
    refresh: bool = False,
) -> AptLists:
    """Refresh the store's private apt lists of a suite (as it was released) and read them.

    Lists that were fetched in the last minutes count, unless ``refresh`` is asked for.  The stage
    counts the percent that apt has fetched, as 100 of 125.
    Raises NetworkError when the mirror does not answer or lacks the suite, HostError without apt or
    Debian's keys.
    """
    architecture = BY_MACHINE[machine].debian
    folder = context.store.folder("apt") / f"{suite}-{architecture}"
    url = mirror_of(distribution, context)
    find_tool("apt-get", context.settings, context.runner)
    with (
        context.store.lock(f"apt-{suite}-{architecture}", context.report),
        context.store.work("apt-update") as own,
    ):
        source = source_line(distribution, without_user(url), suite)
        config = write_config(folder, source, context, architecture=architecture)
        private = with_passwords(config, url, own, apt_network(context))
        stage.expect(125)  # after the lists are fetched, they are unpacked, and packages chosen
        options = ("-o", "APT::Update::Error-Mode=any", "-o", "APT::Status-Fd=1")
        argv = ("apt-get", "update", *options)
        lists = folder / "state/lists"
        watch = FetchWatch(stage, lists, partial(too_slow_error, url, distribution))
        # apt clears its temporary files away only where it is not killed
        env = {**apt_environment(context.settings, private), "TMPDIR": str(own)}
        fetched = folder / "fetched"
        try:
            command = Command(argv=argv, env=env, timeout=UPDATE_SECONDS, on_line=watch.read_line)
            if refresh or not _is_fresh(fetched, source):
                context.runner(command)
                write_text(fetched, source)
        except ToolFailedError as error:
            raise update_error(error, suite, url, distribution) from error
        newest = _newest_list(lists, "*_Packages", suite)
        same = newest.name.partition(f"_dists_{suite}_")[0]
        files = sorted(lists.glob(f"{glob.escape(same)}_dists_{suite}_*_Packages"))
        signed = _newest_list(lists, "*Release", suite)
    release = f"{distribution.title} {suite}"
    return AptLists(
        suite=suite,
        release=release,
        architecture=architecture,
        config=config,
        files=tuple(files),
        date=_release_date(signed),
        digest=hash_bytes(signed.read_bytes()),
    )


def _is_fresh(fetched: Path, source: str) -> bool:
    """Whether the lists of this source were fetched from a server in the last minutes."""
    with suppress(OSError):
        young = 0 <= time.time() - fetched.stat().st_mtime < FRESH_SECONDS
        return young and "http" in source and fetched.read_text("utf-8") == source
    return False


class FetchWatch:
    """Advances a stage by what apt says, and ends apt where hardly anything comes."""

    def __init__(self, stage: Stage, lists: Path, too_slow: Callable[[], NetworkError]) -> None:
        self.stage, self.done = stage, 0
        self.lists, self.too_slow = lists, too_slow
        self.since, self.had = time.monotonic(), tree_size(lists)

    def read_line(self, line: str) -> None:
        """Read a line, of which apt prints two a second while it fetches.  Raises NetworkError."""
        found = FETCHED.match(line)
        if not found:
            return
        if int(found[1]) > self.done:
            self.stage.advance(int(found[1]) - self.done)
            self.done = int(found[1])
        now, have = time.monotonic(), tree_size(self.lists)
        if abs(have - self.had) >= limits.STALL_BYTES:
            self.since, self.had = now, have
        elif now - self.since > limits.STALL_SECONDS:
            raise self.too_slow()


def resolve_debian(
    lists: AptLists,
    packages: Iterable[str],
    context: Context,
    *,
    group: Literal["base", "system", "build"],
    installed: Collection[InstalledPackage] = (),
) -> tuple[DebianPackage, ...]:
    """Return what apt would install beside ``installed``, without recommended ones, sorted.

    The same question about the same release is answered from the store: apt needs two seconds for
    it. Raises UsageError for a name that the suite lacks, NoSolutionError where dependencies cannot
    be met.
    """
    asked = sorted(set(packages))
    kept = _choice_file(lists, asked, group, installed)
    chosen = limits.decode_kept(kept, tuple[DebianPackage, ...])
    if chosen is not None:
        return chosen
    wanted = sorted({*asked, *(lists.index.required if group == "base" else ())})
    for name in wanted:
        lists.index.require(name, lists.release)
    if not wanted:
        return ()  # nothing to keep either
    with context.store.work("apt") as work:
        status = work / "status"
        write_text(status, "".join(lists.index.status_entry(package) for package in installed))
        options = ("--simulate", "--no-remove", "-o", f"Dir::State::status={status}")
        argv = ("apt-get", *options, "install", *wanted)
        try:
            result = context.runner(
                Command(argv=argv, env=apt_environment(context.settings, lists.config), timeout=300)
            )
        except ToolFailedError as error:
            raise install_error(error, wanted, lists.suite) from error
    found = INSTALL_LINE.findall(result.stdout)
    locked = [
        lists.index.locked(name.partition(":")[0], version, arch, group)
        for name, version, arch in found
    ]
    chosen = tuple(sorted(locked, key=lambda package: (package.name, package.architecture)))
    _keep_choice(kept, chosen)
    return chosen


def _choice_file(
    lists: AptLists, asked: Sequence[str], group: str, installed: Collection[InstalledPackage]
) -> Path:
    """Return where apt's choice is kept; its name begins with the release that it was made from."""
    there = sorted(f"{one.name}={one.version}:{one.architecture}" for one in installed)
    key = hash_text(json.dumps([asked, group, there]))
    return lists.config.parent / "chosen" / f"{lists.digest[:16]}-{key}.json"


def _keep_choice(file: Path, chosen: Sequence[DebianPackage]) -> None:
    """Keep apt's choice, and drop those of releases before."""
    with suppress(OSError, EnvbuildError):  # a store that cannot be written to still answers
        make_folder(file.parent)
        for other in file.parent.iterdir():
            if not other.name.startswith(file.name[:17]):
                other.unlink()
        write_bytes(file, msgspec.json.encode(chosen))


def resolve_bootstrap(suite: str, context: Context) -> Bootstrap:
    """Decide which packages a base of this suite is made of, as of now."""
    return choose_bootstrap(read_lists(suite, context, SilentStage()), context)


def choose_bootstrap(lists: AptLists, context: Context) -> Bootstrap:
    """Decide which packages a base is made of, from lists that were just read."""
    packages = resolve_debian(lists, BASE_PACKAGES, context, group="base")
    return Bootstrap(suite=lists.suite, created=lists.date, packages=packages)


def _newest_list(lists: Path, pattern: str, suite: str) -> Path:
    found = [path for path in lists.glob(pattern) if f"_dists_{suite}_" in path.name]
    # several mirrors in turn leave several lists;
    # apt removes those of earlier ones at the next update
    if not found:
        raise HostError(f"apt left no {pattern.strip('*_')} file of {suite}", where=lists)
    return max(found, key=lambda path: path.stat().st_mtime)


def _release_date(path: Path) -> str:
    found = re.search(r"^Date: (.+)$", path.read_text("utf-8", "replace"), re.MULTILINE)
    try:
        return email.utils.parsedate_to_datetime(found[1] if found else "").date().isoformat()
    except (ValueError, OverflowError) as error:
        raise HostError(f"the release file has no date: {error}", where=path) from error


def with_passwords(config: Path, url: str, own: Path, network: Iterable[str]) -> Path:
    """Return an apt configuration with passwords, in a folder ``own`` that nobody else may enter.

    ``network`` are lines that may hold those of proxies; that of the mirror ``url`` comes from it
    (apt_auth.conf(5)). Raises UsageError for blanks in user or password, which that file cannot
    hold.
    """
    parts, login = urlsplit(url), ""
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
        if not user or re.search(r"\s", user + password):
            raise UsageError(
                "user and password of a mirror cannot be empty or hold blanks", where=redact(url)
            )
        place = without_user(url).rstrip("/")
        login = f"machine {place} login {user} password {password}\n"
    write_text(own / "auth.conf", login, mode=0o600)
    secret = (line for line in network if USER.search(line))
    lines = (config.read_text("utf-8"), *secret, f'Dir::Etc::netrc "{own}/auth.conf";')
    write_text(own / "apt.conf", "\n".join(lines) + "\n", mode=0o600)
    return own / "apt.conf"
