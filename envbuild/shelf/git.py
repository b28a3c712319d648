"""A shelf in a bare git repository: a push publishes, and no push is forced."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

from envbuild import limits
from envbuild.context import Context
from envbuild.errors import (
    EnvbuildError,
    HostError,
    IntegrityError,
    NetworkError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from envbuild.limits import GIT_BOUNDS, SMALL_GIT
from envbuild.names import Texts
from envbuild.net.git import ask_patiently
from envbuild.net.redact import redact
from envbuild.run import Command, Result
from envbuild.shelf.backend import (
    BIGGEST_TEXT,
    MARKER,
    MARKER_TEXT,
    NAMES,
    SlotTakenError,
    slot_path,
)
from envbuild.shelf.model import SLOT
from envbuild.store.atomic import is_older, make_own_folder, os_errors_as
from envbuild.store.hashing import hash_text
from envbuild.tools import package_hint

BRANCH = "refs/heads/main"
OnLine = Callable[[str], None] | None
MIRROR_REF = "refs/envbuild/shelf"
"""Where the mirror keeps what it fetched."""
SECONDS = 600.0
BATCH = 4 * 1024 * 1024
"""Bytes asked of git at once; the runner keeps at most CAPTURE_LIMIT of an answer."""
GIT_URL = re.compile(
    r"git\+(file|ssh|https)://.+|ssh://.+|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:.+"
)
RACE_MESSAGES = (
    "fetch first", "non-fast-forward", "stale info", "cannot lock ref", "failed to update ref",
    "incorrect old",
)  # fmt: skip
"""Git's messages to a push that came second (receive-pack.c, refs/files-backend.c)."""
SAFE_OPTIONS = (
    "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "transfer.fsckObjects=true",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false",
    "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", *SMALL_GIT,
)  # fmt: skip
BOUNDS = (*GIT_BOUNDS, (resource.RLIMIT_FSIZE, limits.SHELF_PACK))
LOCAL_GIT = (
    "env GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null "
    "-c core.fsmonitor=false -c core.alternateRefsCommand=true -c receive.denyCurrentBranch=refuse "
    "-c receive.autogc=false"
)
"""How git serves a repository of this machine: its settings and hooks would run as the user."""


def is_git(url: str) -> bool:
    """Tell whether a place is a git repository, by its form or its files."""
    # os.path: a folder that may not be entered is no repository, and no error yet
    parts = (os.path.exists(os.path.join(url, name)) for name in ("HEAD", "objects", "refs"))  # noqa: PTH110, PTH118
    return GIT_URL.fullmatch(url) is not None or all(parts)


class GitBackend:
    """A bare repository, looked at through a mirror of one's own in the cache."""

    pieces = None

    def __init__(self, url: str, context: Context) -> None:
        self.url = url.removeprefix("git+")
        if re.match(r"\w+://[^/?#]*:[^/?#]*@", self.url):
            hint = "take it out, and let git keep it: git config --global credential.helper store"
            what = "holds a password, which every user of the machine sees while git runs"
            raise UsageError(what, where=redact(self.url), hint=hint)
        self._context = context
        mirror = hash_text(self.url)[:32]
        # not in the store, which the lab may share: git refuses repositories of other users
        home = context.settings.home
        cache = Path(context.settings.environment.get("XDG_CACHE_HOME") or home / ".cache")
        self._mirror = cache / "envbuild/shelves" / f"{mirror}.git"
        self._tree: dict[str, tuple[str, int]] = {}

    def refresh(self) -> None:
        """Fetch.  Raises NetworkError for no answer, HostError where there is no shelf."""
        if not self._fetch():
            raise self._branch_missing()
        self._list()
        if MARKER not in self._tree:
            raise UsageError(f"is a git repository, but no shelf (no {MARKER})", where=self.url)

    def _branch_missing(self) -> EnvbuildError:
        hint = "was it made again? nothing was changed"
        if not self.url.startswith("https:"):
            what = "the repository is there, but it has no branch main"
            return HostError(what, where=self.url, hint=hint)
        hint += "\na network that wants a login answers like this too: open any page in a browser"
        return NetworkError("shows no branch main", where=self.url, hint=hint)

    def create(self) -> bool:
        """Make an empty repository a shelf by its first commit."""
        if self._fetch():
            self.refresh()
            return False
        self._push(self._commit({MARKER: MARKER_TEXT}, None, "Begin a shelf"))
        return True

    def slots(self) -> Texts:
        """Return the entries of the commit that was fetched last."""
        names = (
            path.removeprefix(f"{NAMES}/") for path in self._tree if path.startswith(f"{NAMES}/")
        )
        return tuple(sorted(name for name in names if SLOT.fullmatch(name)))

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return files of the commit that was fetched last."""
        if not self._tree:
            self.refresh()
        found: dict[str, bytes] = {}
        batch: list[str] = []
        for path in paths:
            if path not in self._tree:
                continue
            size = self._tree[path][1]
            if size > BIGGEST_TEXT:
                raise IntegrityError(f"is {size} bytes long: too large for such a file", where=path)
            if batch and sum(self._tree[item][1] for item in batch) + size > BATCH:
                found.update(self._batch(batch))
                batch = []
            batch.append(path)
        return {**found, **self._batch(batch)}

    def append(self, slot: str, entry: bytes, objects: Mapping[str, bytes]) -> None:
        """Commit entry and objects on what was fetched, and push; whoever pushed meanwhile wins."""
        self.refresh()
        path = slot_path(slot)
        if path in self._tree:
            raise SlotTakenError(slot)
        new = {name: data for name, data in objects.items() if name not in self._tree}
        commit = self._commit({**new, path: entry}, MIRROR_REF, f"Publish {slot}")
        self._push(commit)

    def _fetch(self) -> bool:
        """Bring the branch; return False for a repository without one."""
        self._make_mirror()
        options = ("--quiet", "--no-tags", "--no-write-fetch-head")
        served = self._served_by("upload-pack")
        result = self._ask("fetch", *options, *served, self.url, f"+{BRANCH}:{MIRROR_REF}")
        if result.code == 0:
            return True
        if "couldn't find remote ref" in result.stderr:
            return False
        raise self._unreachable(result)

    def _served_by(self, service: str) -> Texts:
        """Return the option that names git's other end, where that runs on this machine."""
        is_local = self.url.startswith(("/", "file:"))
        return (f"--{service}={LOCAL_GIT} {service}",) if is_local else ()

    def _make_mirror(self) -> None:
        # git clears what a fetch leaves that was cut off in gc alone, which is off
        for path in self._mirror.glob("objects/pack/tmp_*"):
            with contextlib.suppress(OSError):
                if is_older(path, SECONDS):
                    path.unlink()
        if (self._mirror / "HEAD").is_file():
            return
        with os_errors_as(self._mirror):
            make_own_folder(self._mirror.parents[1])
            # its settings name programs, and git gives them the mode that the umask says
            self._mirror.parent.mkdir(0o700, exist_ok=True)
            fresh = self._mirror.with_suffix(f".{os.getpid()}.new")
            self._run(("git", "init", "--quiet", "--bare", str(fresh)), check=True)
            try:
                fresh.rename(self._mirror)
            except OSError:  # another process was quicker
                shutil.rmtree(fresh, ignore_errors=True)

    def _list(self) -> None:
        """Read the tree's table: of every plain file its object and size in bytes."""
        self._tree = {}
        lines = count(1)

        def note(line: str) -> None:
            if next(lines) > limits.SHELF_FILES:
                what = f"has more than {limits.SHELF_FILES} files: too many for a shelf"
                raise IntegrityError(what, where=self.url)
            about, _, path = line.partition("\t")
            fields = about.split()
            if len(fields) == 4 and fields[0] == "100644" and fields[1] == "blob":
                self._tree[path] = (fields[2], int(fields[3]))

        result = self._git("ls-tree", "-r", "-t", "-l", "--full-tree", MIRROR_REF, on_line=note)
        if result.code != 0:
            raise HostError(
                f"the mirror of the shelf is damaged: {_last_message(result)}",
                where=self._mirror,
            )

    def _batch(self, paths: list[str]) -> dict[str, bytes]:
        if not paths:
            return {}
        asked = "".join(f"{self._tree[path][0]}\n" for path in paths)
        answer = self._git("cat-file", "--batch", stdin=asked)
        data, at, found = answer.stdout.encode(), 0, {}
        for path in paths:
            number, size = self._tree[path]
            head = f"{number} blob {size}\n".encode()
            if answer.code != 0 or data[at : at + len(head)] != head:
                raise IntegrityError("cannot be read from the repository as text", where=path)
            at += len(head)
            found[path] = data[at : at + size]
            at += size + 1
        return found

    def _commit(self, files: Mapping[str, bytes], parent: str | None, message: str) -> str:
        """Make a commit without a work tree and return its id."""
        name = f"refs/envbuild/publishing-{os.getpid()}"
        who = self._identity()
        lines = [f"commit {name}\n", f"committer {who} now\n", _import_data(message.encode())]
        if parent:
            lines.append(f"from {parent}^0\n")
        for path, data in files.items():
            lines += [f"M 100644 inline {path}\n", _import_data(data)]
        text = "".join(lines) + "\ndone\n"
        made = self._git(
            "fast-import", "--quiet", "--force", "--done", "--date-format=now", stdin=text
        )
        if made.code != 0:
            raise ToolFailedError(
                f"git could not write the commit: {_last_message(made)}", where=self._mirror
            )
        return name

    def _identity(self) -> str:
        found = self._git("var", "GIT_COMMITTER_IDENT")
        author = re.match(r"([^<>\n]*<[^<>\n]*>)", found.stdout) if found.code == 0 else None
        return author[1] if author else "envbuild <envbuild@localhost>"

    def _push(self, name: str) -> None:
        served = self._served_by("receive-pack")
        try:
            result = self._ask("push", "--porcelain", *served, self.url, f"{name}:{BRANCH}")
        finally:
            self._git("update-ref", "-d", name)
        if result.code == 0:
            return
        rejection = next((line for line in result.stdout.splitlines() if line.startswith("!")), "")
        if any(mark in rejection or mark in result.stderr for mark in RACE_MESSAGES):
            raise SlotTakenError(rejection)
        if rejection:
            reason = rejection.rpartition(BRANCH)[2].strip() or rejection
            what = f"the repository refused the push: {reason}"
            hint = _push_hint(result) or "ask whoever keeps the repository; nothing was published"
            raise HostError(f"{what}\n{_hook_output(result)}".rstrip(), where=self.url, hint=hint)
        raise self._unreachable(result)

    def _unreachable(self, result: Result) -> EnvbuildError:
        output = result.last_lines(4)
        if "invalid index-pack output" in output:
            most = limits.SHELF_PACK // limits.MIB
            what = f"sends what is damaged or too much for a shelf (more than {most} MiB)\n{output}"
            return IntegrityError(what, where=self.url)
        if result.code == 128 and (
            "dubious ownership" in output or "detected dubious" in result.stderr
        ):
            path = self.url.removeprefix("file://")
            hint = f"if you trust who owns it: git config --global --add safe.directory {path}"
            return HostError(
                "git does not read repositories of other users unasked", where=self.url, hint=hint
            )
        return NetworkError(
            f"the shelf's repository cannot be reached\n{output}",
            where=self.url,
            hint=self._unreachable_hint(),
        )

    def _unreachable_hint(self) -> str:
        return f"try: git ls-remote {self.url}"

    def _ask(self, *arguments: str) -> Result:
        """Run git with the other side, again where its failure may pass."""
        hint = self._unreachable_hint()
        return ask_patiently(lambda: self._git(*arguments), self.url, hint)

    def _git(self, *arguments: str, stdin: str | None = None, on_line: OnLine = None) -> Result:
        return self._run(
            ("git", "-C", str(self._mirror), *SAFE_OPTIONS, *arguments),
            stdin=stdin,
            on_line=on_line,
        )

    def _run(
        self,
        argv: Texts,
        *,
        stdin: str | None = None,
        on_line: OnLine = None,
        check: bool = False,
    ) -> Result:
        env = {
            name: value
            for name, value in self._context.settings.environment.items()
            if name not in GIT_VARIABLES
        }
        fixed = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        env = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **env, **fixed}
        command = Command(
            argv=argv, env=env, stdin=stdin, timeout=SECONDS, on_line=on_line, bounds=BOUNDS
        )
        try:
            return self._context.runner(command, check=check)
        except ToolMissingError as error:
            hint = package_hint("git", self._context.settings.environment)
            raise HostError("a git shelf needs git", hint=hint) from error


GIT_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
"""Variables of a git command around us, which would lead git to another repository."""


def _import_data(content: bytes) -> str:
    return f"data {len(content)}\n{content.decode()}\n"


def _last_message(result: Result) -> str:
    return result.last_lines(3) or f"exit code {result.code}"


def _hook_output(result: Result) -> str:
    """Return what the other side's hook printed."""
    lines = [
        line.removeprefix("remote:").strip()
        for line in result.stderr.splitlines()
        if line.startswith("remote:")
    ]
    return "\n".join(line for line in lines if line)


def _push_hint(result: Result) -> str | None:
    if "Permission denied" in result.stderr or "unable to create temporary object" in result.stderr:
        return "you may read it, but not write to it; nothing was published"
    return None
