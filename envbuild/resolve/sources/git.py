"""Fetch one commit of a git repository with git(1); nothing of the repository is run."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild import limits
from envbuild.context import Context
from envbuild.errors import HostError, IntegrityError, NetworkError, UsageError
from envbuild.limits import GIT_BOUNDS, SMALL_GIT
from envbuild.names import Texts, Variables
from envbuild.net.git import ask_patiently
from envbuild.net.redact import mask_users, without_user
from envbuild.recipe.trees import COMMIT, submodule_address
from envbuild.run import Command, Result
from envbuild.store.atomic import os_errors_as

SECONDS = 600.0
SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "protocol.file.allow=never",
    "-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", "core.attributesFile=/dev/null",
    "-c", "core.symlinks=true", "-c", "advice.detachedHead=false",
    "-c", "init.defaultBranch=main", "-c", "core.fsmonitor=false",
    "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", *SMALL_GIT,
)  # fmt: skip
"""Settings under which git starts no program that a repository names, and writes the same bytes
everywhere."""
UNREACHABLE_HINT = (
    "check the address and the network; for a private one set up git's credential helper, or use "
    "git+ssh"
)
BOUNDS = (*GIT_BOUNDS, (resource.RLIMIT_FSIZE, limits.REPOSITORY))


def checkout(url: str, revision: str, target: Path, context: Context, *, below: str = "") -> str:
    """Put the files of a revision into a new folder, and return its commit.

    A commit is fetched alone where the server allows it; a branch or tag is looked up.  Submodules
    come along, those at or under the folder ``below`` of the repository.  Raises NetworkError;
    UsageError for a submodule that cannot be taken.
    """
    found: list[str] = []
    weight = _Weight()
    waiting = [(url, revision, target, below)]
    while waiting:
        if len(found) > limits.SUBMODULES:
            raise IntegrityError(f"brings more than {limits.SUBMODULES} submodules", where=url)
        address, name, folder, part = waiting.pop()
        with os_errors_as(folder):
            folder.mkdir(exist_ok=True)  # git makes an empty folder for a submodule
        git = _Git(folder, context)
        commit = _fetch_commit(address, name, folder, git)
        git.run("ls-tree", "-r", "-t", "-l", "--full-tree", commit, on_line=weight.adder(address))
        git.run("checkout", "--quiet", "--force", commit)
        found.append(commit)
        waiting += [
            (below_address, below_commit, folder / path, "")
            for path, below_address, below_commit in _find_submodules(address, part, git)
        ]
    return found[0]


def _fetch_commit(url: str, revision: str, folder: Path, git: _Git) -> str:
    """Bring the objects of a revision and return its commit."""
    git.run("init", "--quiet")
    attributes = folder / ".git/info/attributes"
    with os_errors_as(attributes):
        attributes.parent.mkdir(exist_ok=True)
        # a repository may choose the user's own filters (git-lfs), and where these ask for more
        attributes.write_text("* !filter\n", "utf-8")
    wanted = [revision] if revision else ["HEAD"]
    if not COMMIT.fullmatch(revision or ""):
        wanted += [f"refs/tags/{revision}", f"refs/heads/{revision}"] if revision else []
    # a server may allow a branch or tag alone, and refuse a single commit
    alone = next((name for name in wanted if git.fetched(url, "--depth", "1", refs=(name,))), None)
    if alone is None:
        # servers of plain files know no single commits
        every = ("+HEAD:refs/envbuild/head", "+refs/heads/*:refs/remotes/origin/*")
        if not git.fetched(url, "--tags", refs=every):
            raise _unreachable_error(url, git.last)
    names = (revision, f"refs/remotes/origin/{revision}") if revision else ("refs/envbuild/head",)
    names = ("FETCH_HEAD",) if alone else names
    for name in names:
        if git.tried("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"):
            found = git.last.stdout.strip()
            break
    else:
        raise NetworkError(f"the repository has no commit, tag or branch {revision!r}", where=url)
    if COMMIT.fullmatch(revision or "") and found != revision:
        raise NetworkError(f"the repository answers with commit {found}, not {revision}", where=url)
    return found


class _Weight:
    """Files and bytes of a requirement and its submodules: a few kB may unfold to any number."""

    files = 0
    size = 0

    def adder(self, url: str) -> Callable[[str], None]:
        """Return what adds a line of git's list of a tree.

        It raises IntegrityError for more than any project has.
        """

        def add(line: str) -> None:
            number = line.partition("\t")[0].split()[-1]
            self.files += 1
            self.size += int(number) if number.isdecimal() else 0
            if self.files > limits.REPOSITORY_FILES or self.size > limits.REPOSITORY:
                most = f"{limits.REPOSITORY_FILES} files or {limits.REPOSITORY // limits.GIB} GiB"
                raise IntegrityError(f"unfolds to more than {most}", where=url)

        return add


def _find_submodules(url: str, below: str, git: _Git) -> Iterator[tuple[str, str, str]]:
    """Yield path, address and commit of the submodules at or under a folder ("" for all)."""
    commits = {}
    for entry in git.run("ls-files", "-z", "--stage").stdout.split("\0"):
        kind, _, path = entry.partition("\t")
        # mode 160000 is the commit of a submodule (gitlink)
        if kind.startswith("160000 ") and f"{path}/".startswith(f"{below}/" if below else ""):
            commits[path] = kind.split()[1]
    if not commits:
        return
    names = r"^submodule\..*\.(path|url)$"
    # from the commit itself: in the work tree .gitmodules may be a link
    git.tried("config", "--blob", "HEAD:.gitmodules", "-z", "--get-regexp", names)
    settings_by_key = dict(
        line.split("\n", 1) for line in git.last.stdout.split("\0") if "\n" in line
    )
    addresses = {
        path: settings_by_key.get(f"{key[: -len('.path')]}.url", "")
        for key, path in settings_by_key.items()
        if key.endswith(".path")
    }
    for path, commit in commits.items():
        hint = (
            "fork the repository and let the submodule's address be https, ssh or relative; or "
            "vendor its files"
        )
        if not addresses.get(path):
            raise UsageError(
                f"its submodule {path} has no address in .gitmodules", where=url, hint=hint
            )
        try:
            address = submodule_address(url, addresses[path])
        except UsageError as error:
            what = (
                f"its submodule {path} has an address that is not taken: "
                f"{without_user(addresses[path])}"
            )
            raise UsageError(what, where=url, hint=hint) from error
        yield path, address, commit


def is_repository(folder: Path, context: Context) -> bool:
    """Tell whether git knows which files of a folder belong to a project."""
    if not any(
        (parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents)
    ):
        return False
    return _Git(folder, context).tried("rev-parse", "--is-inside-work-tree")


def listed_files(folder: Path, context: Context) -> Texts:
    """Return the files below a folder that git knows or does not ignore, submodules' included.

    Raises UsageError for a submodule that is not checked out.
    """
    git = _Git(folder, context)
    listed = git.run(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."
    ).stdout.split("\0")
    files: dict[str, None] = {}
    for name in filter(None, listed):
        inner = folder / name
        if name.endswith("/") or inner.is_symlink() or not inner.is_dir():
            files[name] = None
        elif (inner / ".git").exists():
            files |= dict.fromkeys(f"{name}/{below}" for below in listed_files(inner, context))
        else:
            hint = f"run: git submodule update --init --recursive {shlex.quote(name)}"
            raise UsageError(f"its submodule {name} is not checked out", where=folder, hint=hint)
    return tuple(files)


class _Git:
    """git in one folder; ``last`` is what it said last."""

    def __init__(self, folder: Path, context: Context) -> None:
        self._folder = folder
        self._git_environment = git_environment(context.settings.environment)
        self._runner = context.runner
        self.last = Result(argv=(), code=0, stdout="", stderr="", seconds=0.0)

    def tried(self, *arguments: str, on_line: Callable[[str], None] | None = None) -> bool:
        """Run git and tell whether it succeeded."""
        command = Command(
            argv=("git", *SAFE, *arguments),
            cwd=self._folder,
            env=self._git_environment,
            timeout=SECONDS,
            on_line=on_line,
            bounds=BOUNDS,
        )
        self.last = self._runner(command, check=False)
        return self.last.code == 0

    def fetched(self, url: str, *options: str, refs: Texts) -> bool:
        """Fetch and tell whether it succeeded.  Raises NetworkError where nobody answers."""

        def fetch() -> Result:
            self.tried("fetch", "--quiet", *options, url, *refs)
            return self.last

        return ask_patiently(fetch, url, UNREACHABLE_HINT).code == 0

    def run(self, *arguments: str, on_line: Callable[[str], None] | None = None) -> Result:
        """Run git.  Raises HostError where it fails."""
        if not self.tried(*arguments, on_line=on_line):
            raise HostError(
                f"git {arguments[0]} failed: {self.last.last_lines(2)}", where=self._folder
            )
        return self.last


def git_environment(environment: Variables) -> dict[str, str]:
    """Return git's environment: it names no other repository and asks for no password."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_SSL_", "GIT_SSH", "GIT_ASKPASS"))
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_ATTR_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def _unreachable_error(url: str, result: Result) -> NetworkError:
    message = mask_users(result.last_lines(2))
    return NetworkError(
        f"the repository cannot be read: {message}",
        where=url,
        hint=UNREACHABLE_HINT,
    )
