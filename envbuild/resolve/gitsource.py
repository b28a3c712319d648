"""Bring one commit of a git repository into a folder, with git(1); nothing of the repository is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from envbuild.errors import HostError, NetworkError
from envbuild.recipe.trees import COMMIT
from envbuild.run import Command, Result, Runner
from envbuild.settings import Settings
from envbuild.store.atomic import telling

SECONDS = 600.0
SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "protocol.file.allow=never",
    "-c", "core.autocrlf=false", "-c", "core.symlinks=true", "-c", "advice.detachedHead=false",
    "-c", "init.defaultBranch=main", "-c", "core.fsmonitor=false",
)  # fmt: skip
"""Settings under which git starts no program that a repository names, and writes the same bytes everywhere."""


def checkout(url: str, revision: str, target: Path, settings: Settings, runner: Runner) -> str:
    """Put the files of a revision into a new folder, and return its commit.

    A commit is fetched alone where the server allows it; a branch or tag is looked up.  Raises NetworkError.
    """
    with telling(target):
        target.mkdir()
    git = _Git(target, settings, runner)
    git.run("init", "--quiet")
    wanted = [revision] if revision else ["HEAD"]
    if not COMMIT.fullmatch(revision or ""):
        wanted += [f"refs/tags/{revision}", f"refs/heads/{revision}"] if revision else []
    alone = next((name for name in wanted if git.tried("fetch", "--quiet", "--depth", "1", url, name)), None)
    if alone is None:
        # servers of plain files know no single commits
        every = ("+HEAD:refs/envbuild/head", "+refs/heads/*:refs/remotes/origin/*")
        if not git.tried("fetch", "--quiet", "--tags", url, *every):
            raise _unreachable(url, git.last)
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
    git.run("checkout", "--quiet", "--force", found)
    return found


def is_repository(folder: Path, settings: Settings, runner: Runner) -> bool:
    """Tell whether git knows which files of a folder belong to a project."""
    if not any((parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents)):
        return False
    return _Git(folder, settings, runner).tried("rev-parse", "--is-inside-work-tree")


def listed_files(folder: Path, settings: Settings, runner: Runner) -> tuple[str, ...]:
    """Return the files below a folder that git knows or does not ignore, as paths below it."""
    result = _Git(folder, settings, runner).run("ls-files", "-z", "--cached", "--others", "--exclude-standard", ".")
    return tuple(dict.fromkeys(name for name in result.stdout.split("\0") if name))


class _Git:
    """git in one folder; ``last`` is what it said last."""

    def __init__(self, folder: Path, settings: Settings, runner: Runner) -> None:
        self._folder = folder
        self._environment = _environment(settings.environment)
        self._runner = runner
        self.last = Result(argv=(), code=0, stdout="", stderr="", seconds=0.0)

    def tried(self, *arguments: str) -> bool:
        """Run git and tell whether it succeeded."""
        command = Command(argv=("git", *SAFE, *arguments), cwd=self._folder, env=self._environment, timeout=SECONDS)
        self.last = self._runner(command, check=False)
        return self.last.code == 0

    def run(self, *arguments: str) -> Result:
        """Run git.  Raises HostError where it fails."""
        if not self.tried(*arguments):
            raise HostError(f"git {arguments[0]} failed: {self.last.last_lines(2)}", where=str(self._folder))
        return self.last


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return git's environment: the user's, without what names another repository, and never asking for a password."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_SSL_", "GIT_SSH", "GIT_ASKPASS"))
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}


def _unreachable(url: str, result: Result) -> NetworkError:
    said = re.sub(r"//[^/@\s]*@", "//***@", result.last_lines(2))
    return NetworkError(
        f"the repository cannot be read: {said}",
        where=url,
        hint="check the address and the network; for a private one set up git's credential helper, or use git+ssh",
    )
