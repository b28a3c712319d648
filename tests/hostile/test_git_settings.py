"""A copied folder brings its ``.git/config``: a job of it notes the commit, and runs nothing that stands there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.errors import EnvbuildError, UsageError
from envbuild.job.compose import git_commit
from envbuild.settings import load_settings
from tests.lock.test_lock_trees import Desk, desk, index
from tests.support import quiet_context

__all__ = ["desk", "index"]
"""Fixtures of another folder."""

PROGRAMS = (
    *("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.pager", "core.editor"),
    *("core.alternateRefsCommand", "credential.helper", "gpg.program", "diff.external"),
    *("filter.a.clean", "filter.a.smudge", "filter.a.process", "diff.a.command", "diff.a.textconv"),
    *("uploadpack.packObjectsHook", "alias.ls-files", "alias.status"),
)
"""Settings of a repository that name a program."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "below").mkdir(parents=True)
    for name, text in {"train.py": "1", "below/x": "1", ".gitattributes": "* filter=a.b"}.items():
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=x", "-c", "user.email=x@y.invalid", "commit", "-qm", "first")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit_of(folder: Path) -> str:
    settings = load_settings({"HOME": str(folder.parent), "PATH": os.defpath}, folder)
    return git_commit(quiet_context(settings))


@pytest.mark.parametrize("key", ["core.fsmonitor", "filter.a.b.clean", "filter.a.b.process"])
def test_no_program_of_it_runs(key: str, folder: Path) -> None:
    head, ran = git(folder, "rev-parse", "HEAD"), folder.parent / "ran"
    git(folder, "config", key, f"touch {ran}; cat")
    git(folder, "config", "filter.a.b.required", "true")
    (folder / "train.py").write_text("2")
    assert commit_of(folder) == f"{head} (modified)"
    assert not ran.exists()


def test_a_filter_that_no_option_can_name_is_not_met(folder: Path) -> None:
    ran = folder.parent / "ran"
    (folder / ".gitattributes").write_text("* filter=a=b")
    with (folder / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tclean = touch {ran}\n')
    assert commit_of(folder) == "none"
    assert not ran.exists()


def test_what_lacks_is_fetched_from_nowhere(folder: Path) -> None:
    """A repository may say that others hold its missing objects, and name the program that asks them."""
    ran = folder.parent / "ran"
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://x.invalid/y",
        "core.sshCommand": f"touch {ran}; false",
        "protocol.ssh.allow": "always",
    }.items():
        git(folder, "config", key, value)
    for name in ("HEAD:below", "HEAD^{tree}"):
        digest = git(folder, "rev-parse", name)
        (folder / ".git/objects" / digest[:2] / digest[2:]).unlink()
    (folder / ".git/index").unlink()
    commit_of(folder)
    assert not ran.exists()


def test_a_git_around_us_names_no_other_repository(folder: Path) -> None:
    """As a hook of git does that calls envbuild."""
    settings = load_settings(
        {"HOME": str(folder), "PATH": os.defpath, "GIT_DIR": str(folder.parent / "none")}, folder
    )
    assert git_commit(quiet_context(settings)) == git(folder, "rev-parse", "HEAD")


def test_locking_the_folder_starts_no_program_of_its_settings(desk: Desk) -> None:
    ran = desk.project.parent / "ran"
    desk.write(
        "setup.cfg", "[metadata]\nname = mine\nversion = 1.0\n[options]\npy_modules = mine\n"
    )
    desk.write("mine.py", "1")
    desk.write(".gitattributes", "* filter=a diff=a")
    git(desk.project, "init", "-q")
    git(desk.project, "add", ".")
    harm = f"touch {ran}; cat"
    for key in PROGRAMS:
        git(desk.project, "config", key, harm)
    hook = desk.project / "hooks/post-index-change"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(desk.project, "config", "core.hooksPath", str(hook.parent))
    git(desk.project, "config", f"url.ext::sh -c touch% {ran}.insteadOf", "https://")
    desk.write("mine.py", "2")
    for asked in (".", "-e ."):
        with contextlib.suppress(EnvbuildError):
            desk.lock(asked)
        assert not ran.exists()


@pytest.mark.parametrize("place", ["../own", "OWN", "our/..", "door"])
def test_no_file_of_the_users_is_packed_that_its_index_names(place: str, desk: Desk) -> None:
    """The list of a repository's files may be written by hand, or be older than a link."""
    own = desk.project.parent / "own"
    own.mkdir()
    (own / "key.py").write_text("secret")
    named = place.replace("OWN", str(own))
    stand_in = "a" * len(named)
    desk.write(f"{stand_in}/key.py", "theirs")
    git(desk.project, "init", "-q")
    git(desk.project, "add", ".")
    shutil.rmtree(desk.project / stand_in)
    (desk.project / "door").symlink_to(own)
    path = desk.project / ".git/index"
    listed = path.read_bytes()[:-20].replace(f"{stand_in}/".encode(), f"{named}/".encode())
    path.write_bytes(listed + hashlib.sha1(listed).digest())  # noqa: S324  (git's own)
    (desk.project / "key.py").write_text("mine")
    with pytest.raises(UsageError, match="is outside of the tree, or a link leads there"):
        desk.lock(".")
