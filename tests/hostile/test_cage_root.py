"""What root's builds keep from the machine: foreign code gets ids that own nothing, or is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from envbuild.build.modes.select import (
    HostCapabilities,
    ModeSearch,
    Trust,
)
from envbuild.cage import Cage, closed_folders, find_cage
from envbuild.errors import HostError
from envbuild.host import ID_COUNT, read_host, root_is_mapped
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.recipe.read import read_recipe
from envbuild.run import Command, LocalRunner, Result
from envbuild.runtime import ExecOptions
from envbuild.runtime_search import find_runtime
from envbuild.settings import load_settings
from tests.hosts import ROOT, ROOT_ONLY
from tests.support import ScriptedRunner, needs
from tests.tiny_image import open_folder, runtime, tiny_image

RECIPE = read_recipe(ROOT / "recipes/torch-mnist.toml")[0]
LOCK = read_lock(ROOT / "lockfiles/torch-mnist.lock")
FIRST = msgspec.structs.replace(LOCK.python[0], file="package-1.tar.gz")
SOURCE = msgspec.structs.replace(LOCK, python=(FIRST, *LOCK.python[1:]))
USER, BARE, CAGED = (
    HostCapabilities(missing={}),
    HostCapabilities(root=True, missing={}),
    HostCapabilities(root=True, caged=True, missing={}),
)
OWN, SHELF, BUNDLE = Trust(), Trust(origin="a shelf"), Trust(origin="a bundle")
MODES = ("flat", "layered", "fakeroot", "sandbox", "docker")


def refused(ground: HostCapabilities, trust: Trust, lock: Lock = LOCK) -> tuple[str, ...]:
    search = ModeSearch(recipe=RECIPE, lock=lock, host=ground, trust=trust)
    return tuple(mode for mode in MODES if search.exposure(mode))


def test_who_may_build_what_in_which_mode() -> None:
    assert refused(USER, OWN) == refused(USER, OWN, SOURCE) == ()
    assert refused(USER, SHELF) == refused(USER, BUNDLE, SOURCE) == ("fakeroot", "sandbox")
    assert refused(replace(USER, caged=True), SHELF) == ("sandbox",)
    assert refused(BARE, OWN) == ()
    assert (
        refused(BARE, SHELF)
        == refused(BARE, OWN, SOURCE)
        == ("flat", "layered", "fakeroot", "sandbox")
    )
    assert refused(CAGED, BUNDLE) == refused(CAGED, OWN, SOURCE) == ("sandbox",)
    for ground in (BARE, CAGED):
        assert refused(ground, Trust(origin="a shelf", as_root=True), SOURCE) == ()
    assert refused(replace(BARE, mapped=True), SHELF, SOURCE) == ("fakeroot", "sandbox")
    assert refused(USER, Trust(origin="a shelf", as_root=True)) == ("fakeroot", "sandbox")


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(HostError) as told:
        ModeSearch(recipe=RECIPE, lock=SOURCE, host=BARE).select()
    assert (
        "\n  flat: the build of its source packages would run with root's own rights"
        in told.value.what
    )
    assert "--as-root" in (told.value.hint or "")
    with pytest.raises(
        HostError, match="what it brings from a shelf would run with root's own rights"
    ):
        ModeSearch(recipe=RECIPE, lock=LOCK, host=BARE, trust=SHELF).require_trust()
    with pytest.raises(HostError, match="could reach your home folder in this mode"):
        ModeSearch(recipe=RECIPE, lock=LOCK, host=USER, trust=BUNDLE).require("fakeroot")
    caged = replace(USER, caged=True)
    search = ModeSearch(recipe=RECIPE, lock=LOCK, host=caged, roots=("fakeroot",), trust=BUNDLE)
    search.require("fakeroot")


def test_an_ordinary_user_needs_no_cage() -> None:
    assert (
        find_cage(read_host(uid=1000, user="ada"), ScriptedRunner({}), Command(argv=("true",)))
        is None
    )


@pytest.mark.parametrize(
    ("table", "mapped"), [("0 0 4294967295", False), ("0 1000 1", True), ("", False)]
)
def test_root_of_an_ordinary_users_namespace_is_told_apart(
    table: str, mapped: bool, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/uid_map").write_text(table)
    assert root_is_mapped(tmp_path) is mapped


def test_no_ids_no_cage() -> None:
    host = read_host(uid=0)
    runner = ScriptedRunner(
        {"unshare": (1, "", "unshare: unrecognized option '--map-users=100000,0,65536'")}
    )
    trial = Command(argv=("true",), env={"PATH": os.defpath})
    assert find_cage(replace(host, subuid=None), runner, trial) is None
    assert (
        find_cage(replace(host, subuid=(100000, 1000), subgid=(100000, ID_COUNT)), runner, trial)
        is None
    )
    assert (
        find_cage(
            replace(host, subuid=(100000, ID_COUNT), subgid=(100000, ID_COUNT)), runner, trial
        )
        is None
    )


def test_every_closed_folder_on_the_way_is_covered() -> None:
    free, closed = open_folder() / "free", open_folder() / "a b/closed"
    for folder in (free, closed / "inner"):
        folder.mkdir(parents=True)
    closed.parent.chmod(0o755)
    closed.chmod(0o700)
    found = closed_folders([closed / "inner/x", free / "y", Path("/no/such/place")])
    assert str(closed) in found
    assert not any(str(free).startswith(place) for place in found)


def test_the_command_names_what_is_shown_and_nothing_of_roots() -> None:
    cage = Cage(program="/usr/bin/unshare", uids=(100000, ID_COUNT), gids=(200000, ID_COUNT))
    given = {
        "PATH": "/bin",
        "HOME": "/root",
        "TMPDIR": "/root/tmp",
        "APPTAINER_CACHEDIR": "/root/c",
        "A": "b",
    }
    command = cage.around(
        Command(argv=("id",), env=given), show=[Path("/srv/x.sif")], write=[Path("/var/w")]
    )
    assert command.env == {"PATH": "/bin", "A": "b", "HOME": "/mnt/home", "TMPDIR": "/mnt/tmp"}
    line = command.argv[command.argv.index("envbuild-cage") :]
    assert line[:6] == ("envbuild-cage", "100000:200000", "/mnt", "/", "ro:/srv/x.sif", "rw:/var/w")
    assert "--map-users=100000,0,65536" in line
    assert "--map-groups=200000,0,65536" in line
    beside = cage.around(Command(argv=("id",)), show=[Path("/mnt/disk/x.sif")])
    assert "/media" in beside.argv
    kept = cage.around(Command(argv=("id",), env=given), show=(), write=[Path("/root/tmp")])
    assert (kept.env or {})["TMPDIR"] == "/root/tmp"


@pytest.fixture
def closed_home() -> Iterator[Path]:
    """A folder of root's own that nobody else may enter, below a name with blanks."""
    top = Path("/root/envbuild cage test")
    top.mkdir(mode=0o700)
    try:
        yield top
    finally:
        shutil.rmtree(top)


@pytest.mark.live
@ROOT_ONLY
@needs("apptainer", "unshare", "newuidmap")
class TestLive:
    """Real runs, as root."""

    @pytest.mark.parametrize("sealed", [True, False])
    def test_what_runs_is_nobody_and_sees_nothing_of_roots(
        self, sealed: bool, closed_home: Path
    ) -> None:
        mine = runtime()
        if mine.cage is None:
            pytest.skip("root has no ids in /etc/subuid, or unshare is older than util-linux 2.38")
        (closed_home / "secret").write_text("private")
        for name in ("given", "out", "home"):
            (closed_home / name).mkdir()
        (closed_home / "given/file").write_text("given\n")
        image = closed_home / "x.sif"
        shutil.copy(tiny_image(), image)
        pattern = Path("/proc/sys/kernel/core_pattern").read_text()
        script = (
            "id -u; cat /mnt/file; for f in /proc/sys/kernel/core_pattern /mnt/file; do "
            f"(echo x >$f) 2>/dev/null && echo wrote $f; done; touch /opt/x 2>/dev/null && echo wrote /opt; touch /srv/x; "
            f"ls {str(closed_home)!r} 2>/dev/null; cat /proc/self/uid_map"
        )
        command = mine.exec_command(
            image,
            ("sh", "-c", script),
            ExecOptions(
                sealed=sealed,
                home=None if sealed else closed_home / "home",
                binds=((closed_home / "given", "/mnt", False), (closed_home / "out", "/srv", True)),
                network=False,
                timeout=60,
            ),
        )
        told = LocalRunner()(command, check=False)
        assert told.code == 0, told.stderr
        first, given, *rest, mapped = told.stdout.splitlines()
        assert (first, given) == ("0", "given")
        assert not {
            "secret",
            "wrote /opt",
            "wrote /mnt/file",
            "wrote /proc/sys/kernel/core_pattern",
        } & set(rest)
        assert mapped.split() == ["0", str(mine.cage.uids[0]), str(ID_COUNT)]
        assert Path("/proc/sys/kernel/core_pattern").read_text() == pattern
        assert (closed_home / "out/x").stat().st_uid == mine.cage.uids[0]
        assert (closed_home / "secret").read_text() == "private"

    def test_a_captured_run_may_change_owners_and_leaves_none_of_roots(
        self, closed_home: Path
    ) -> None:
        mine = runtime()
        if mine.cage is None:
            pytest.skip("root has no ids in /etc/subuid, or unshare is older than util-linux 2.38")
        overlay = closed_home / "overlay"
        overlay.mkdir()
        script = "touch /opt/x && chown 5:7 /opt/x && cat /proc/net/dev"
        told = LocalRunner()(
            mine.root_command(tiny_image(), ("sh", "-c", script), overlay=overlay, timeout=60)
        )
        assert [line.split(":")[0].strip() for line in told.stdout.splitlines()[2:]] == ["lo"]
        found = (overlay / "upper/opt/x").stat()
        assert (found.st_uid, found.st_gid) == (mine.cage.uids[0] + 5, mine.cage.gids[0] + 7)


def test_the_cage_is_tried_with_the_variables_of_what_runs_in_it(tmp_path: Path) -> None:
    """A library that the caller preloads may lie where nobody else reads: the cage would be called impossible."""
    tried: list[Command] = []

    def answer(command: Command, *, check: bool = True) -> Result:
        tried.append(command)
        return Result(
            argv=command.argv, code=0, stdout="apptainer version 1.4.5", stderr="", seconds=0.0
        )

    given = {"PATH": os.defpath, "LD_PRELOAD": "/root/x.so", "ENVBUILD_RUNTIME": "/bin/true"}
    ids = (100000, ID_COUNT)
    host = replace(read_host(uid=0, user="root"), subuid=ids, subgid=ids)
    find_runtime(load_settings(given, tmp_path), answer, host)
    assert [("LD_PRELOAD" in (one.env or {})) for one in tried if "unshare" in one.argv[0]] in (
        [],
        [False],
    )
