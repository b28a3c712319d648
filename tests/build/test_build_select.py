"""``auto``: what each way needs, which one a machine can go, and what it says where there is none; then for real."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from envbuild.build.modes.select import (
    HostCapabilities,
    ModeChoice,
    ModeSearch,
    read_capabilities,
)
from envbuild.errors import HostError
from envbuild.formats.sif_reader import image_digest
from envbuild.host import Host
from envbuild.lock.read import read_lock
from envbuild.recipe.model import Recipe
from envbuild.recipe.read import read_recipe
from envbuild.run import Result
from envbuild.settings import load_settings
from envbuild.store.layout import Store
from tests.base.interpreters import interpreter
from tests.base.ociimages import image_of, programs, push, python_tar
from tests.hosts import RECIPE, ROOT, ROOT_ONLY, UID, Bench, Lack
from tests.project import Project
from tests.support import ScriptedRunner, context_for, needs
from tests.tiny_image import open_folder

AUTO = ("flat", "fakeroot", "sandbox")
"""What ``auto`` tries, the best first."""

SHIPPED = read_recipe(ROOT / "recipes/torch-mnist.toml")[0]
LOCK = read_lock(ROOT / "lockfiles/torch-mnist.lock")
POST = msgspec.structs.replace(
    SHIPPED, system=msgspec.structs.replace(SHIPPED.system, post=("true",))
)
ALL = HostCapabilities(missing={})


def search(recipe: Recipe, ground: HostCapabilities, roots: tuple[str, ...] = ()) -> ModeSearch:
    return ModeSearch(recipe=recipe, lock=LOCK, host=ground, roots=roots)


def told(recipe: Recipe, ground: HostCapabilities, roots: tuple[str, ...] = ()) -> str:
    return str(search(recipe, ground, roots).select())


def test_an_ordinary_machine_puts_images_together() -> None:
    assert told(SHIPPED, ALL) == "mode flat: put together from the store, without root"


def test_what_a_recipe_asks_for_counts() -> None:
    said = "mode fakeroot: built from its definition; not flat, for /dev/fuse cannot be opened, "
    assert (
        told(POST, dataclasses.replace(ALL, fuse=False))
        == f"{said}and Debian packages' scripts and [system] post need it"
    )
    assert (
        told(POST, ALL) == told(SHIPPED, dataclasses.replace(ALL, fuse=False)) == told(SHIPPED, ALL)
    )


@pytest.mark.parametrize(
    ("change", "recipe", "roots", "mode"),
    [
        ({"ids": False}, SHIPPED, ("flat",), "flat"),
        ({"ids": False, "root": True}, SHIPPED, (), "flat"),
        (
            {"missing": {"mmdebstrap": "mmdebstrap was not found on PATH"}},
            SHIPPED,
            ("flat",),
            "flat",
        ),
        ({"missing": {"mksquashfs": "mksquashfs was not found on PATH"}}, SHIPPED, (), "flat"),
        ({"missing": {"mksquashfs": "mksquashfs was not found on PATH"}}, POST, (), "flat"),
        (
            {"missing": {"mksquashfs": "mksquashfs was not found on PATH"}, "fuse": False},
            POST,
            (),
            "sandbox",
        ),
        (
            {"missing": {"fuse-overlayfs": "fuse-overlayfs was not found on PATH"}},
            POST,
            (),
            "fakeroot",
        ),
        ({"ids": False}, SHIPPED, (), None),
        ({"ids": False}, POST, AUTO, None),
        (
            {"containers": "user namespaces are off, and apptainer is not setuid"},
            SHIPPED,
            AUTO,
            None,
        ),
        ({"missing": {"mmdebstrap": "mmdebstrap was not found on PATH"}}, SHIPPED, (), None),
        ({"layers": "squashfuse was not found"}, SHIPPED, (), "flat"),
    ],
)
def test_what_a_machine_lacks_counts(
    change: dict[str, object], recipe: Recipe, roots: tuple[str, ...], mode: str | None
) -> None:
    ground = dataclasses.replace(ALL, **change)  # type: ignore[arg-type]
    if mode is not None:
        assert search(recipe, ground, roots).select().mode == mode
        return
    with pytest.raises(HostError) as caught:
        search(recipe, ground, roots).select()
    assert caught.value.code == 7
    for name in AUTO:
        assert f"\n  {name}: " in caught.value.what
    assert "envbuild make --on SITE" in (caught.value.hint or "")
    assert ("root can give the user ids" in (caught.value.hint or "")) == (
        change.get("ids") is False
    )


@pytest.mark.parametrize(
    ("mode", "change", "why"),
    [
        (
            "layered",
            {"layers": "squashfuse was not found"},
            "squashfuse was not found, and an image of layers cannot be",
        ),
        (
            "layered",
            {"ids": False},
            "the user has no ids in /etc/subuid and /etc/subgid to make a Debian root with",
        ),
        (
            "docker",
            {"missing": {"mksquashfs": "mksquashfs was not found on PATH"}},
            "mksquashfs was not found on PATH",
        ),
        ("docker", {"containers": "user namespaces are off"}, "user namespaces are off"),
        ("sandbox", {"ids": False}, "the user has no ids"),
        ("sandbox", {"missing": {"mksquashfs": "mksquashfs was not found on PATH"}}, None),
        ("fakeroot", {"layers": "squashfuse was not found", "fuse": False}, None),
    ],
)
def test_a_mode_that_was_asked_for_is_refused_before_it_fails(
    mode: str, change: dict[str, object], why: str | None
) -> None:
    ground = dataclasses.replace(ALL, **change)  # type: ignore[arg-type]
    if why is None:
        search(SHIPPED, ground).require(mode)
        return
    with pytest.raises(HostError) as caught:
        search(SHIPPED, ground).require(mode)
    assert caught.value.what.startswith(
        f"torch-mnist cannot be built with --mode {mode} on this machine: {why}"
    )
    assert (caught.value.hint or "").startswith("leave --mode out for a way that works here, or:\n")


def test_an_image_as_base_needs_no_ids() -> None:
    image = msgspec.structs.replace(
        SHIPPED, base=msgspec.structs.replace(SHIPPED.base, bootstrap=None, image="a.sif")
    )
    ground = HostCapabilities(ids=False, missing={})
    assert search(image, ground).blocker("fakeroot") is None


def test_more_never_makes_a_way_worse() -> None:
    """A machine that has one thing more chooses the same way, or one before it."""
    tools = ("mmdebstrap", "mksquashfs")

    def rank(
        ids: bool, root: bool, missing: frozenset[str], roots: tuple[str, ...], recipe: Recipe
    ) -> int:
        ground = HostCapabilities(ids=ids, root=root, missing=dict.fromkeys(missing, "is missing"))
        try:
            return AUTO.index(search(recipe, ground, roots).select().mode)
        except HostError:
            return len(AUTO)

    flags = (False, True)
    for recipe, ids, root, made in itertools.product((SHIPPED, POST), flags, flags, ((), AUTO)):
        for missing in (
            frozenset(tools),
            frozenset(tools[:1]),
            frozenset(tools[1:]),
            frozenset[str](),
        ):
            here = rank(ids, root, missing, made, recipe)
            assert rank(True, root, missing, made, recipe) <= here
            assert rank(ids, True, missing, made, recipe) <= here
            assert rank(ids, root, missing, AUTO, recipe) <= here
            for tool in missing:
                assert rank(ids, root, missing - {tool}, made, recipe) <= here


@pytest.mark.parametrize(
    ("who", "namespaces", "setuid", "starts"),
    [((1000, True), 0, 0, True), ((1000, True), 1, 0, False), ((1000, True), 1, 1, True), ((0, False), 1, 0, True), ((0, True), 1, 1, False)],
    ids=["user", "no namespaces", "setuid", "root", "root that lacks"],
)  # fmt: skip
def test_who_can_start_containers(
    who: tuple[int, bool], namespaces: int, setuid: int, starts: bool, tmp_path: Path
) -> None:
    uid, lacking = who
    for name in ("apptainer", "mksquashfs"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    host = Host(
        uid=uid,
        user="ada",
        architecture="x86_64",
        missing_capabilities=frozenset({24}) if lacking else frozenset(),
        subuid=(100000, 65536),
        subgid=(100000, 1000),
        user_namespace_limit=None,
        fuse=True,
        driver=None,
    )
    answers = {
        "unshare": (namespaces, "", ""),
        "--version": (0, "apptainer version 1.4.5", ""),
        "buildcfg": (0, f"APPTAINER_SUID_INSTALL={setuid}\n", ""),
        "-version": (0, "mksquashfs version 4.5.1", ""),
    }
    settings = load_settings({"PATH": str(tmp_path), "HOME": str(tmp_path)}, tmp_path)
    ground = read_capabilities(context_for(settings, ScriptedRunner(answers)), host)
    assert (ground.containers is None) == starts
    assert not ground.ids
    assert list(ground.missing) == ["mmdebstrap", "fuse-overlayfs"]


def test_a_way_is_told_in_one_line() -> None:
    way = ModeChoice(mode="sandbox", passed_over=(("flat", "a"), ("fakeroot", "b")))
    assert (
        str(way)
        == "mode sandbox: a writable tree, for nothing here packs an image; not flat, for a; not fakeroot, for b"
    )


# ---- on hosts that lack something

WHEEL_ONLY = RECIPE.replace('  "docopt==0.6.2",  # published as source only\n', "").replace(
    '"six", "docopt"', '"six"'
)
WITH_POST = WHEEL_ONLY.replace("[check]", '[system]\npost = ["true"]\n\n[check]')
POSSIBLE = [
    pytest.mark.live,
    ROOT_ONLY,
    needs("apptainer", "docker-registry", "mmdebstrap", "unshare", "setpriv"),
]


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The locks of the two recipes, and their Debian root in the shared store."""
    project = Project(tmp_path_factory.mktemp("locks"))
    found = {}
    for name, text in (("wheel", WHEEL_ONLY), ("post", WITH_POST)):
        project.write("recipes/small.toml", text)
        project.succeed("lock", "small")
        found[name] = (project.folder / "lockfiles/small.lock").read_text()
        project.succeed(
            "make", "small", "--mode", "flat" if name == "wheel" else "auto", "--no-check"
        )
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    path = open_folder() / "host"
    yield path
    shutil.rmtree(path, ignore_errors=True)


def make(bench: Bench, lack: Lack, lock: str, recipe: str, *arguments: str) -> Result:
    bench.write("recipes/small.toml", recipe)
    bench.write("lockfiles/small.lock", lock)
    return bench.run(lack, "make", "small", *arguments)


WORKS = {
    "ordinary user": Lack(),
    "root without all capabilities": Lack(root=True),
    "no subuid": Lack(subuid=True),
    "no fuse": Lack(fuse=True),
    "no squashfuse": Lack(squashfuse=True),
    "no network": Lack(network=True),
    "no mksquashfs": Lack(programs=("mksquashfs",)),
}
FAILS = {
    "no user namespaces": (
        Lack(namespaces=True),
        7,
        "user namespaces are off, and apptainer is not setuid",
    ),
    "small TMPDIR": (Lack(tmpdir="64m"), 8, "MB are needed, "),
}


@dataclasses.dataclass(frozen=True)
class Tiny:
    """A recipe on an image of some megabytes, its lock, and the store that has all of it."""

    recipe: str
    lock: str
    store: Path


@pytest.fixture(scope="module")
def tiny(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    python = interpreter("3.11")
    if python is None:
        pytest.skip("no Python 3.11 on this machine")
    image = image_of(
        programs(),
        python_tar(python.resolve(), "/usr/local"),
        env=("PATH=/usr/local/bin:/usr/bin:/bin",),
    )
    push(image, registry, "lab/tiny", "1")
    base = f'image = "docker://{registry.removeprefix("http://")}/lab/tiny:1"'
    recipe = WHEEL_ONLY.replace('bootstrap = "debian:bookworm"', base)
    project = Project(tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("tiny-store"))
    project.write("recipes/small.toml", recipe)
    # a written definition brings an installer of its own, which assembling does without
    for verb in (("lock",), ("make", "--no-check"), ("make", "--no-check", "--mode", "fakeroot")):
        project.succeed(*verb)
    return Tiny(recipe, (project.folder / "lockfiles/small.lock").read_text(), project.store)


UNPACKING = ("no fuse", "no squashfuse")
"""Hosts on which each start of an image unpacks it first."""


@pytest.mark.parametrize("name", WORKS)
class TestAutoOnHostsThatLackSomething:
    pytestmark = POSSIBLE

    def test_auto_finds_a_way(
        self, name: str, locks: dict[str, str], tiny: Tiny, folder: Path
    ) -> None:
        lack = WORKS[name]
        small = name in UNPACKING
        kept = ("artifacts", "facts") if small else ("artifacts", "bases", "facts")
        bench = Bench(
            folder, kept, uid=0 if lack.root else UID, store=tiny.store if small else None
        )
        made = make(
            bench, lack, *((tiny.lock, tiny.recipe) if small else (locks["wheel"], WHEEL_ONLY))
        )
        assert made.code == 0, made.stderr
        assert "small: mode flat: put together from the store, without root\n" in made.stderr
        assert (bench.folder / "small.sif").is_file()
        assert "checks passed" in made.stdout


class TestPackagesWithScripts:
    """Both packages' scripts write to /dev/null: without it that of x11-common fails, the other one goes on unseen."""

    pytestmark = POSSIBLE

    def test_an_ordinary_user_makes_the_same_bytes_as_root(
        self, folder: Path, tmp_path: Path
    ) -> None:
        recipe = WHEEL_ONLY.replace(
            "[check]", '[system]\npackages = ["openssh-client", "x11-common"]\n\n[check]'
        )
        project = Project(tmp_path / "root")
        project.write("recipes/small.toml", recipe)
        for verb in (("lock",), ("make", "--no-check")):
            project.succeed(*verb)
        bench, base = (
            Bench(folder, ("artifacts",)),
            read_lock(project.folder / "lockfiles/small.lock").base,
        )
        for kept in (
            Store(project.store).base(base.digest),
            Store(project.store).facts(base.digest),
        ):
            # not the root over it, which is the one to be made
            (bench.below / "v1" / kept.parent.name).mkdir()
            (bench.below / "v1" / kept.parent.name / kept.name).hardlink_to(kept)
        made = make(
            bench,
            Lack(),
            (project.folder / "lockfiles/small.lock").read_text(),
            recipe,
            "--no-check",
        )
        assert made.code == 0, made.stderr
        assert image_digest(bench.folder / "small.sif") == image_digest(
            project.folder / "small.sif"
        )


class TestASandbox:
    pytestmark = POSSIBLE

    def test_an_ordinary_user_installs_in_it_with_both_programs(
        self, locks: dict[str, str], folder: Path
    ) -> None:
        """The lines of docs/howto-sandbox.md."""
        bench = Bench(folder)
        made = make(bench, Lack(), locks["wheel"], WHEEL_ONLY, "--mode", "sandbox")
        assert made.code == 0, made.stderr
        enter = (
            "apptainer",
            "--quiet",
            "exec",
            "--fakeroot",
            "--writable",
            "--no-home",
            "small.sandbox",
            "sh",
            "-euc",
        )
        tried = bench.start(
            Lack(),
            *enter,
            "apt-get update; apt-get install -y hello; pip install pygments==2.18.0; hello",
        )
        assert tried.code == 0, tried.stderr
        assert tried.stdout.endswith("Hello, world!\n")
        told = bench.run(Lack(), "make", "--from-sandbox", "small.sandbox", "--dry-run")
        assert told.code == 0, told.stderr
        assert "files (" not in told.stdout
        assert told.stdout.endswith(
            'in the recipe this would be:\n  [python]\n  dependencies = [\n    "Pygments==2.18.0",\n  ]\n'
            '  [system]\n  packages = ["hello"]\n'
        )
        packed = bench.run(Lack(), "make", "--from-sandbox", "small.sandbox")
        assert packed.code == 0, packed.stderr
        rows = json.loads(bench.run(Lack(), "list", "--json").stdout)
        assert rows[0]["image"] == "unknown"
        compared = bench.run(Lack(), "verify", "small")
        assert compared.code == 1, compared.stdout
        assert "extra     /var/lib/dpkg/info/hello.list" in compared.stdout


NO_NAMESPACES = "user namespaces are off, and apptainer is not setuid"
NO_LAYERS = "and an image of layers cannot be run without"
NO_PACKER = "mksquashfs was not found on PATH"
NO_ROOM = "MB are needed, "
FINE = {"layered": "", "fakeroot": "", "sandbox": ""}
CELLS: dict[str, dict[str, str]] = {
    "ordinary user": FINE,
    "root without all capabilities": {**FINE, "docker": ""},
    "no subuid": {"layered": ""},
    "no user namespaces": dict.fromkeys((*FINE, "flat", "docker"), NO_NAMESPACES),
    "no fuse": {**FINE, "layered": NO_LAYERS},
    "no squashfuse": {**FINE, "layered": NO_LAYERS},
    "no network": FINE,
    "small TMPDIR": {"layered": NO_ROOM, "fakeroot": NO_ROOM, "sandbox": "", "docker": NO_ROOM},
    "no mksquashfs": {"layered": "", "fakeroot": NO_PACKER, "sandbox": "", "docker": NO_PACKER},
}
"""What a mode that somebody asks for says on a host; "" where it works."""


@pytest.mark.parametrize("name", CELLS)
class TestEveryModeOnHostsThatLackSomething:
    pytestmark = POSSIBLE

    def test_it_works_or_says_why_not(
        self, name: str, tiny: Tiny, folder: Path, request: pytest.FixtureRequest
    ) -> None:
        lack = WORKS[name] if name in WORKS else FAILS[name][0]
        bench = Bench(folder, ("artifacts", "facts"), uid=0 if lack.root else UID, store=tiny.store)
        for mode, said in CELLS[name].items():
            if (mode, said) == ("docker", ""):
                if shutil.which("dockerd") is None:
                    continue
                # Debian's own docker builds without plugins
                bench.more = {
                    "DOCKER_HOST": request.getfixturevalue("engine"),
                    "PATH": f"/usr/bin:{bench.path}",
                }
            target = f"small.{'sandbox' if mode == 'sandbox' else mode}"
            made = make(
                bench, lack, tiny.lock, tiny.recipe, "--mode", mode, "--no-check", "-o", target
            )
            code = 0 if not said else 8 if said == NO_ROOM else 7
            assert (made.code, said in made.stderr) == (code, True), f"{mode}: {made.stderr}"
            assert (bench.folder / target).exists() == (code == 0)
            assert ("what to do: " in made.stderr) == (code != 0)


@pytest.mark.parametrize("mode", ["fakeroot", "sandbox"])
class TestDebianRootsWithoutIds:
    pytestmark = POSSIBLE

    def test_they_cannot_be_unpacked(self, mode: str, locks: dict[str, str], folder: Path) -> None:
        made = make(Bench(folder), Lack(subuid=True), locks["wheel"], WHEEL_ONLY, "--mode", mode)
        said = "the user has no ids in /etc/subuid and /etc/subgid to unpack a Debian root with"
        assert (made.code, said in made.stderr) == (7, True), made.stderr


@pytest.mark.parametrize("name", FAILS)
class TestAutoOnHostsThatCannot:
    pytestmark = POSSIBLE

    def test_auto_says_what_is_missing_and_what_to_do(
        self, name: str, locks: dict[str, str], folder: Path
    ) -> None:
        lack, code, what = FAILS[name]
        bench = Bench(folder)
        made = make(bench, lack, locks["wheel"], WHEEL_ONLY)
        assert made.code == code, made.stderr
        assert what in made.stderr
        assert "what to do: " in made.stderr
        assert not list(bench.folder.glob("*.sif"))


@dataclasses.dataclass(frozen=True)
class TooMany:
    """A host that lacks one thing more than can be made up for; ``kept`` is what its store has."""

    lack: Lack
    said: str
    recipe: str = "wheel"
    kept: tuple[str, ...] = ("artifacts", "bases", "facts")
    code: int = 7


NOTHING_MADE = ("artifacts", "facts")
TOO_MANY = {
    "no subuid, no root yet": TooMany(
        Lack(subuid=True),
        "flat: the user has no ids in /etc/subuid and /etc/subgid to make a Debian root with",
        kept=NOTHING_MADE,
    ),
    "no subuid, a shell in the build": TooMany(
        Lack(subuid=True),
        "fakeroot: the user has no ids in /etc/subuid and /etc/subgid to unpack a Debian root with",
        recipe="post",
    ),
    "no mmdebstrap": TooMany(
        Lack(programs=("mmdebstrap",)), "flat: mmdebstrap was not found on PATH", kept=NOTHING_MADE
    ),
    "no network, nothing in the store": TooMany(
        Lack(network=True), "check the network and the proxy variables", kept=("facts",), code=5
    ),
    "no mksquashfs and no fuse-overlayfs, a shell in the build": TooMany(
        Lack(programs=("mksquashfs", "fuse-overlayfs")),
        "mode sandbox: a writable tree",
        recipe="post",
        code=0,
    ),
}


@pytest.mark.parametrize("name", TOO_MANY)
class TestOneThingTooMany:
    pytestmark = POSSIBLE

    def test_the_obstacle_is_named(self, name: str, locks: dict[str, str], folder: Path) -> None:
        case = TOO_MANY[name]
        bench = Bench(folder, case.kept)
        made = make(
            bench,
            case.lack,
            locks[case.recipe],
            WHEEL_ONLY if case.recipe == "wheel" else WITH_POST,
        )
        assert made.code == case.code, made.stderr
        assert case.said in made.stderr
        assert (bench.folder / "small.sandbox").is_dir() == (case.code == 0)
