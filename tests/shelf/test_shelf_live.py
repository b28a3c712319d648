"""Over the shelf for real: the published image, the same bytes built again, and a build that sees nothing of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.project import SMALL, Project, shared_store, small_project
from tests.support import needs

pytestmark = [pytest.mark.live, needs("apptainer", "mmdebstrap", "apt-get")]

CURIOUS = """
post = [
  "ls -A /root /home > /seen 2>&1 || true",
  "cat CANARY >> /seen 2>&1 || true",
  "(echo stolen > WRITTEN) >> /seen 2>&1 || true",
]
"""


def empty(folder: Path, shelf: Path) -> Project:
    """Somebody who has nothing but the shelf."""
    project = Project(folder)
    project.succeed("shelf", "add", "lab", str(shelf))
    return project


def test_an_image_is_taken_checked_and_built_again_to_the_same_bytes(tmp_path: Path) -> None:
    ann = small_project(tmp_path / "ann")
    assert ann.run("shelf", "add", "lab", str(tmp_path / "shelf")).code == 0
    assert ann.run("lock", "small").code == 0
    ann.succeed("make", "small", "--mode", "flat")
    ann.succeed("shelf", "publish", "small", "--image")
    bob = empty(tmp_path / "bob", tmp_path / "shelf")
    taken = bob.succeed("make", "lab/small")
    assert "take small from the shelf" in taken.stderr
    assert "checks passed: " in taken.stdout
    assert (bob.folder / "small.sif").read_bytes() == (ann.folder / "small.sif").read_bytes()
    built = bob.succeed("make", "lab/small", "--mode", "flat", "-o", "again.sif")
    assert "the same bytes as published" in built.stderr
    assert (bob.folder / "again.sif").read_bytes() == (ann.folder / "small.sif").read_bytes()
    assert not (bob.folder / "recipes").exists(), (
        "making from a shelf leaves the project folder alone"
    )


@pytest.mark.slow
def test_lines_of_a_stranger_s_recipe_are_told_and_see_nothing_of_the_host(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = (
        shared_store()
    )  # the host's /tmp is hidden from builds anyway, so the bait lies elsewhere
    store.mkdir(parents=True, exist_ok=True)
    canary, written = store / f"canary-{os.getpid()}", store / f"written-{os.getpid()}"
    request.addfinalizer(lambda: canary.unlink(missing_ok=True))
    eve = Project(tmp_path / "eve")
    lines = CURIOUS.replace("CANARY", str(canary)).replace("WRITTEN", str(written))
    eve.write("recipes/small.toml", SMALL.replace('packages = ["hello-traditional"]', lines))
    eve.write("recipes/check.py", "import six\n")
    assert eve.run("shelf", "add", "lab", str(tmp_path / "shelf")).code == 0
    eve.succeed("lock", "small")
    assert eve.run("shelf", "publish", "small").code == 0
    bob = empty(tmp_path / "bob", tmp_path / "shelf")
    canary.write_text("secret")
    shown = bob.run("show", "lab/small", "--script")
    assert f"cat {canary} >> /seen" in shown.stdout
    result = bob.succeed("make", "lab/small")
    assert f"  runs as root in its build: cat {canary} >> /seen" in result.stderr
    seen = bob.run("exec", "small.sif", "--", "cat", "/seen").stdout
    assert "No such file or directory" in seen
    assert "cannot create" in seen
    assert "secret" not in seen
    assert not written.exists()
