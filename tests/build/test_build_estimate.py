"""Room is looked at before anything is done: for every mode, every kind of base, every folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from envbuild.build import make
from envbuild.build.fetch import assembled_files, locked_bootstrap, wanted_files
from envbuild.build.image_cache import locked_codec
from envbuild.build.make import plan_work
from envbuild.build.model import BuildSpec, Estimate
from envbuild.build.modes import MODES
from envbuild.build.modes.estimate import SpaceNeed, check_space
from envbuild.build.modes.sandbox import SandboxNote, packing_sandbox
from envbuild.context import Context
from envbuild.errors import SpaceError
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.quota import Quota
from envbuild.recipe.read import read_recipe
from envbuild.settings import load_settings
from tests.support import quiet_context

ROOT = Path(__file__).parents[2]
RECIPE = read_recipe(ROOT / "recipes/torch-mnist.toml")[0]
LOCK = read_lock(ROOT / "lockfiles/torch-mnist.lock")
IMAGE = msgspec.structs.replace(
    LOCK,
    debian=(),
    base=msgspec.structs.replace(
        LOCK.base, reference="docker://lab.invalid/torch:1", size=4_000_000_000
    ),
)
FOLDERS = {"ENVBUILD_STORE": "store", "TMPDIR": "tmp", "-o": "out"}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    for name in FOLDERS.values():
        (tmp_path / name).mkdir()
    environment = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "ENVBUILD_STORE": str(tmp_path / "store"),
    }
    settings = load_settings(environment, tmp_path)
    return quiet_context(settings)


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the three folders file systems of their own, with so many bytes free."""

    def give(**rooms: int) -> None:
        real = Path.stat

        def device(path: Path, **flags: bool) -> object:
            found = real(path, **flags)
            names = [name for name in FOLDERS.values() if path.is_relative_to(tmp_path / name)]
            return (
                found
                if not names
                else os_stat(found.st_mode, st_dev=1000 + list(FOLDERS.values()).index(names[0]))
            )

        monkeypatch.setattr(Path, "stat", device)
        monkeypatch.setattr(
            shutil,
            "disk_usage",
            lambda folder: Usage(10**16, 0, rooms.get(Path(folder).name, 10**15)),
        )

    return give


class Usage(NamedTuple):
    """As shutil.disk_usage tells it."""

    total: int
    used: int
    free: int


class os_stat:  # noqa: N801
    """What of a stat result the check looks at."""

    def __init__(self, st_mode: int, st_dev: int) -> None:
        self.st_mode, self.st_dev = st_mode, st_dev


def order(tmp_path: Path, mode: str, *, image: bool) -> BuildSpec:
    base = msgspec.structs.replace(
        RECIPE.base, bootstrap=None, framework=None, image=IMAGE.base.reference
    )
    recipe = msgspec.structs.replace(RECIPE, base=base) if image else RECIPE
    lock = IMAGE if image else LOCK
    plan = plan_definition(recipe, lock)
    return BuildSpec(
        recipe=recipe,
        lock=lock,
        plan=plan,
        definition=render_definition(plan),
        mode=mode,
        codec=locked_codec(lock.packer),
        target=tmp_path / "out/x.sif",
    )


def planned(tmp_path: Path, context: Context, mode: str, *, image: bool) -> Estimate:
    return plan_work(order(tmp_path, mode, image=image), context)


@pytest.mark.parametrize("image", [False, True], ids=["bootstrap", "image"])
@pytest.mark.parametrize("mode", MODES)
def test_every_folder_is_looked_at(
    mode: str, image: bool, tmp_path: Path, context: Context, free: Callable[..., None]
) -> None:
    free()
    need = planned(tmp_path, context, mode, image=image)
    for setting, size in (
        ("ENVBUILD_STORE", need.store),
        ("TMPDIR", need.temporary),
        ("-o", need.image),
    ):
        if size == 0:
            assert (mode, setting) == ("sandbox", "TMPDIR")
            continue
        free(**{FOLDERS[setting]: size})
        planned(tmp_path, context, mode, image=image)
        free(**{FOLDERS[setting]: size - 1})
        with pytest.raises(SpaceError) as caught:
            planned(tmp_path, context, mode, image=image)
        assert caught.value.code == 8
        assert setting in (caught.value.hint or "")
        assert "are needed, " in caught.value.what
        assert caught.value.where == str(tmp_path / FOLDERS[setting])


@pytest.mark.parametrize("image", [False, True], ids=["bootstrap", "image"])
def test_modes_put_their_bytes_where_they_do(
    image: bool, tmp_path: Path, context: Context, free: Callable[..., None]
) -> None:
    free()
    needs = {mode: planned(tmp_path, context, mode, image=image) for mode in MODES}
    assert needs["sandbox"].image == needs["fakeroot"].temporary > needs["fakeroot"].image
    assert needs["docker"].store > needs["fakeroot"].store
    if not image:
        assert needs["flat"].temporary < needs["fakeroot"].temporary
    else:
        assert needs["fakeroot"].temporary > IMAGE.base.size
        assert needs["fakeroot"].download >= IMAGE.base.size


def test_an_image_needs_no_tools_of_its_definition(context: Context) -> None:
    """And no Debian packages, where the root that they make is there; source archives need all."""
    files = {item.file for item in wanted_files(LOCK)}
    tools = {package.file for package in LOCK.build_only}
    installed = {package.file for package in LOCK.installed}
    assert tools

    def needed(lock: Lock) -> set[str]:
        return {item.file for item in assembled_files(lock, context.store)}

    assert needed(LOCK) == files - tools
    root = context.store.base(locked_bootstrap(LOCK, ("base", "system")).digest)
    context.store.own(root).parent.mkdir(parents=True, exist_ok=True)
    root.write_bytes(b"tar")
    assert needed(LOCK) == installed
    source = msgspec.structs.replace(LOCK.installed[0], file="alpha-1.tar.gz")
    with_source = msgspec.structs.replace(LOCK, python=(source, *LOCK.python[1:]))
    assert needed(with_source) == {item.file for item in wanted_files(with_source)}


def test_needs_on_one_file_system_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**16, 0, 2_500_000_000))
    check_space(
        [SpaceNeed(tmp_path / "a", 10**9, "TMPDIR"), SpaceNeed(tmp_path / "b/c", 10**9, "-o")]
    )
    with pytest.raises(SpaceError) as caught:
        check_space(
            [
                SpaceNeed(tmp_path / "a", 10**9, "TMPDIR"),
                SpaceNeed(tmp_path / "b/c", 2 * 10**9, "-o"),
            ]
        )
    assert caught.value.what == "3.0 GB are needed, 2.5 GB are free"
    assert caught.value.hint == "free space there, or point TMPDIR or -o to a larger file system"


def test_a_quota_counts_though_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**16, 0, 10**15))
    own = Quota(used=18 * 10**9, limit=19 * 10**9, hard=20 * 10**9, files_used=0, files_limit=None)
    lab = Quota(used=0, limit=None, hard=10**9, files_used=0, files_limit=None, group="lab")
    for name in ("store", "out"):
        (tmp_path / name).mkdir()

    def quotas(folder: Path) -> tuple[Quota, ...]:
        return (own, lab) if folder.name == "store" else (own,)

    def needs(store: int, out: int) -> tuple[SpaceNeed, SpaceNeed]:
        return (
            SpaceNeed(tmp_path / "store/v1", store, "ENVBUILD_STORE"),
            SpaceNeed(tmp_path / "out", out, "-o"),
        )

    check_space(needs(10**9, 10**9), quotas)
    with pytest.raises(SpaceError) as caught:
        check_space(needs(10**9, 10**9 + 10**8), quotas)
    assert caught.value.what == "2.1 GB are needed, 2.0 GB are left of your quota of 20.0 GB"
    assert (
        caught.value.hint
        == "free space there, or point ENVBUILD_STORE or -o to a larger file system"
    )
    with pytest.raises(SpaceError) as caught:
        check_space(needs(10**9 + 10**8, 0), quotas)
    assert (
        caught.value.what == "1.1 GB are needed, 1.0 GB are left of the group lab's quota of 1.0 GB"
    )
    assert caught.value.where == str(tmp_path / "store")


def test_a_build_asks_for_the_quota(
    tmp_path: Path, context: Context, free: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    free()
    full = Quota(used=10**9, limit=10**9, files_used=0, files_limit=None)
    monkeypatch.setattr(
        make, "quotas_of", lambda folder, _: (full,) if folder == tmp_path / "store" else ()
    )
    with pytest.raises(SpaceError, match=r"are needed, 0 B are left of your quota of 1\.0 GB"):
        planned(tmp_path, context, "flat", image=False)


def test_packing_a_sandbox_needs_room_too(
    tmp_path: Path, context: Context, free: Callable[..., None]
) -> None:
    folder = tmp_path / "x.sandbox"
    folder.mkdir()
    (folder / "big").write_bytes(b"x" * 100_000)
    free(tmp=1000)
    note = SandboxNote(
        recipe="x",
        lock="",
        python="/usr/bin/python3",
        packer=LOCK.packer,
        dists={},
        apt={},
        files={},
    )
    packing = packing_sandbox(folder, tmp_path / "out/x.sif", note, context)
    with pytest.raises(SpaceError, match=r"are needed, 1\.0 kB are free"), packing:
        pass
    assert not list((tmp_path / "out").iterdir())
