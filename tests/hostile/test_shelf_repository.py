"""A shelf in a stranger's bare repository: nothing that its hooks or settings name runs as who reads or publishes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import HostError
from tests.shelf.people import bare, member
from tests.support import needs

pytestmark = needs("git")
HOOKS = (
    *("pre-receive", "update", "post-receive", "post-update", "reference-transaction"),
    *("proc-receive", "push-to-checkout", "pre-auto-gc", "post-index-change", "post-checkout"),
)
"""Hooks that git's other end may start (githooks(5))."""


def git(place: Path, *words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def configure(place: Path, **settings: str) -> None:
    for key, value in settings.items():
        git(place, "config", key.replace("__", "."), value)


def plant_hooks(folder: Path, harm: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in HOOKS:
        (folder / name).write_text(f"#!/bin/sh\n{harm}\n")
        (folder / name).chmod(0o755)


def hooks(place: Path, harm: str) -> None:
    plant_hooks(place / "hooks", harm)
    configure(place, receive__procReceiveRefs="refs/heads/none")


def hooks_elsewhere(place: Path, harm: str) -> None:
    plant_hooks(place / "elsewhere", harm)
    configure(place, core__hooksPath=str(place / "elsewhere"))


def settings_that_are_included(place: Path, harm: str) -> None:
    plant_hooks(place / "elsewhere", harm)
    (place / "more").write_text(f"[core]\n\thooksPath = {place / 'elsewhere'}\n")
    git(place, "config", f"includeIf.gitdir:{place}.path", str(place / "more"))


def command_for_alternates(place: Path, harm: str) -> None:
    bare(place / "other.git")
    (place / "objects/info").mkdir(exist_ok=True)
    (place / "objects/info/alternates").write_text(f"{place / 'other.git/objects'}\n")
    configure(place, core__alternateRefsCommand=f"{harm}; true")


def work_tree_with_filters(place: Path, harm: str) -> None:
    git(place, "symbolic-ref", "HEAD", "refs/heads/main")
    (place / "tree").mkdir()
    (place / "info").mkdir(exist_ok=True)
    (place / "info/attributes").write_text("* filter=harm\n")
    configure(
        place,
        core__bare="false",
        core__worktree=str(place / "tree"),
        receive__denyCurrentBranch="updateInstead",
        core__fsmonitor=f"{harm}; false",
        filter__harm__smudge=f"{harm}; cat",
        filter__harm__clean=f"{harm}; cat",
    )


def packing_and_housekeeping(place: Path, harm: str) -> None:
    configure(
        place,
        uploadpack__packObjectsHook=f"{harm}; exec",
        gc__recentObjectsHook=harm,
        gc__auto="1",
        receive__autogc="true",
        core__pager=harm,
        core__editor=harm,
        gpg__program=harm,
        receive__certNonceSeed="seed",
    )


def objects_that_others_have(place: Path, harm: str) -> None:
    configure(
        place,
        core__repositoryformatversion="1",
        extensions__partialClone="origin",
        remote__origin__promisor="true",
        remote__origin__url="ssh://lab.invalid/x",
        remote__origin__uploadpack=harm,
        core__sshCommand=f"{harm}; false",
        core__gitProxy=harm,
        protocol__ssh__allow="always",
        protocol__ext__allow="always",
    )


Plant = Callable[[Path, str], None]
ATTACKS: dict[Plant, bool] = {
    hooks: True,
    hooks_elsewhere: True,
    settings_that_are_included: True,
    command_for_alternates: True,
    work_tree_with_filters: True,
    packing_and_housekeeping: False,
    objects_that_others_have: False,
}
"""Each with whether git alone falls for it, at a push to a folder of one's own."""


@pytest.mark.parametrize("plant", ATTACKS)
@pytest.mark.parametrize("address", ["{}", "git+file://{}"])
def test_nothing_runs_as_who_publishes_or_reads(address: str, plant: Plant, tmp_path: Path) -> None:
    place, ran = Path(bare(tmp_path / "shelf.git")), tmp_path / "ran"
    ann = member(tmp_path / "ann", address.format(place))
    ann.recipe("first")
    ann.publish("first")
    plant(place, f"touch {ran}")
    ann.recipe("second")
    # git refuses to push into a work tree
    refused = plant is work_tree_with_filters
    with pytest.raises(HostError) if refused else contextlib.nullcontext():
        ann.publish("second")
    assert ann.take("first" if refused else "second").recipe.recipe.name
    assert not ran.exists()


@pytest.mark.parametrize("plant", [plant for plant, springs in ATTACKS.items() if springs])
def test_with_git_alone_it_would(plant: Plant, tmp_path: Path) -> None:
    """The traps are ones."""
    place, ran, work = Path(bare(tmp_path / "shelf.git")), tmp_path / "ran", tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "x").touch()
    git(work, "add", ".")
    git(work, "-c", "user.name=a", "-c", "user.email=a@lab.invalid", "commit", "-qm", "x")
    git(place, "symbolic-ref", "HEAD", "refs/heads/main")
    plant(place, f"touch {ran}")
    push = ["git", "push", "-q", str(place), "main"]
    subprocess.run(push, cwd=work, capture_output=True, check=False)
    assert ran.exists()
