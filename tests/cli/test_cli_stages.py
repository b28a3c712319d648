"""Whatever lasts over five seconds shows how far it is; the stages that cannot are named here, each with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from envbuild.base.digests import known_digest
from envbuild.build.in_base.overlay_run import OverlayScript
from envbuild.formats.sif_writer import DEFINITION
from envbuild.lock.digest import lock_digest
from envbuild.shelf.pieces import describe_image
from envbuild.store.atomic import clone_file
from envbuild.store.layout import Store
from tests.base.siffiles import partition, write_sif
from tests.cli.test_cli_current import LOCK
from tests.support import CountingStage

ROOT = Path(__file__).parents[2] / "envbuild"
UNCOUNTED = {
    # one question to a server, which gives no number
    "reach conda's channels",
    "ask the channels about {}",
    "ask the channels what each package requires",
    "ask for the newest releases of {}",
    "ask the registry for {}",
    "look up where {}",
    # downloads below it show their bytes
    "bring {} {}, which packs",
    "fetch {}",
    # one run of somebody else's program, which tells nothing
    "activate the conda environment",
    "choose conda's packages{}",
    "look which commands {} has",
    "no Python {} here: pip-tools runs in {}",
    "pack {}",
    "read Debian {} for {} from its packages",
    "read what {} holds",
    # files of a folder of people's size
    "compare {} with what it was",
    "read {}",
    "write the pages",
}
"""Titles of stages that show seconds only."""


def _title(call: ast.Call) -> str:
    """Return the title of a stage, with {} for what is filled in; empty where it is a variable."""
    first = call.args[0]
    if isinstance(first, ast.Constant):
        return str(first.value)
    if not isinstance(first, ast.JoinedStr):
        return ""
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "{}"
        for part in first.values
    )


def _uncounted() -> set[str]:
    """Return the titles of the stages that a with statement opens and does not name."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for item in node.items if isinstance(node, ast.With) else ():
                call = item.context_expr
                if (
                    item.optional_vars is None
                    and isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "stage"
                ):
                    found.add(_title(call))
    return found


def test_only_these_stages_show_seconds_alone() -> None:
    assert _uncounted() == UNCOUNTED


def test_debian_packages_are_counted_as_dpkg_tells_of_them() -> None:
    script = OverlayScript(
        name="x",
        script=(),
        files=(("debian/a.deb", Path("a"), ""), ("debian/b.deb", Path("b"), "")),
    )
    told = (
        "Selecting previously unselected package a.",
        "Unpacking a (1.0) ...",
        "Setting up a (1.0) ...",
        "Unpacking b:amd64 (2) ...",
        "Setting up b:amd64 (2) ...",
        "Processing triggers for libc-bin (2.36-9) ...",
    )
    assert sum(map(script.counts, told)) == script.steps == 4
    own = OverlayScript(name="post", script=("make",))
    assert own.steps == 0
    assert own.counts("gcc -c a.c")


@pytest.mark.parametrize("again", [False, True])
def test_bytes_of_an_image_are_counted_while_they_are_hashed(again: bool, tmp_path: Path) -> None:
    label = f"Bootstrap: scratch\n\n%labels\n    envbuild.lock {lock_digest(LOCK)}\n"
    image = write_sif(
        tmp_path / "x.sif", [(DEFINITION, label.encode(), b""), partition(bytes(1_000_000))]
    )
    store, stage = Store(tmp_path / "store"), CountingStage()
    if again:
        known_digest(image, store)
    describe_image(image, lock_digest(LOCK), store, stage.advance)
    times = 1 if again else 2
    assert times * 1_000_000 <= stage.done <= times * image.stat().st_size


def test_bytes_of_a_copy_are_counted(tmp_path: Path) -> None:
    source, stage = tmp_path / "a", CountingStage()
    source.write_bytes(bytes(5_000_000))
    shared = Path("/dev/shm/envbuild-copy-test")  # another file system: no shared blocks
    try:
        with shared.open("wb") as out:
            clone_file(source, out, stage.advance)
        assert shared.read_bytes() == source.read_bytes()
    finally:
        shared.unlink(missing_ok=True)
    assert stage.done == 5_000_000
