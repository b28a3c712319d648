"""What a run leaves behind: links, FIFOs, devices and giants are refused, and nothing outside is touched."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.build.in_base.bytecode import WheelPart, compile_modules, wheel_modules
from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import (
    Exchange,
    give_file,
    open_exchange,
    result_bytes,
    result_file,
    result_names,
    take_file,
)
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.in_base.sdists import BuildNeeds, build_wheels, wheel_key
from envbuild.context import Context
from envbuild.errors import EnvbuildError, IntegrityError
from envbuild.parts.cache import CachedPart, PackContext
from envbuild.progress import Silent, SilentStage
from envbuild.run import Command, LocalRunner, Result
from envbuild.runtime import Runtime
from envbuild.settings import load_settings
from envbuild.store.layout import Store, remove_tree
from tests.build.packing import ZSTD, file, pack_part
from tests.build.test_build_sdists import sdist, write_wheel

RUNTIME = Runtime(program=Path("x"), name="apptainer", version=(1, 4))


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def device(path: Path, _: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(path, 0o20644, os.makedev(1, 5))  # /dev/zero never ends


def folder(path: Path, _: Path) -> None:
    path.mkdir()


def listener(path: Path, _: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o644)


def giant(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


BAD = (link, fifo, device, folder, listener, giant)


@contextmanager
def small_files_only() -> Iterator[None]:
    """Let no file grow over 1 MiB: where a giant were taken, it would fill the disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("make", BAD)
def test_only_a_plain_file_is_taken(make: Callable[[Path, Path], None], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    secret.chmod(0o600)
    out = tmp_path / "out"
    (out / "inner").mkdir(parents=True)
    make(out / "inner/x", secret)
    with pytest.raises(IntegrityError, match="what the build left"):
        result_bytes(out, "inner/x")
    with small_files_only(), pytest.raises(IntegrityError, match="what the build left"):
        take_file(out, "inner/x", tmp_path / "taken")
    assert not (tmp_path / "taken").exists()
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["there/x", "../secret", "there/../secret"])
def test_no_name_leads_out(name: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("private")
    (tmp_path / "secret").write_text("private")
    out = tmp_path / "out"
    out.mkdir()
    (out / "there").symlink_to(tmp_path)
    refused = "what the build left (leaves its folder|cannot be opened)"
    with pytest.raises(IntegrityError, match=refused), result_file(out, name):
        pass
    with pytest.raises(IntegrityError, match=refused):
        result_names(out, "there")


def test_a_given_file_is_a_copy_that_is_hashed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"x" * 5_000_000)
    sha256 = hashlib.sha256(kept.read_bytes()).hexdigest()
    kept.chmod(0o444)
    with open_exchange(tmp_path) as between:
        give_file(kept, between.given / "a/kept", sha256)
        assert (between.given / "a/kept").stat().st_ino != kept.stat().st_ino
        assert kept.stat().st_nlink == 1
        assert (between.given / "a/kept").read_bytes() == kept.read_bytes()
        with pytest.raises(IntegrityError, match="does not match the hash in its name"):
            give_file(kept, between.given / "b", "0" * 64)
        assert not (between.given / "b").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_inputs_are_bound_read_only_and_apart_from_outputs(tmp_path: Path) -> None:
    with open_exchange(tmp_path) as between:
        assert between.binds((tmp_path / "tools", "tools")) == (
            (between.out, "/mnt", True),
            (between.given, "/mnt/in", False),
            (tmp_path / "tools", "/mnt/tools", False),
        )
        assert not between.given.is_relative_to(between.out)


def test_clearing_a_left_folder_changes_no_mode_behind_a_link(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    secret.chmod(0o640)
    closed = tmp_path / "left/closed"
    closed.mkdir(parents=True)
    (closed / "x").symlink_to(secret)
    closed.chmod(0o555)
    remove_tree(tmp_path / "left")
    assert secret.stat().st_mode & 0o777 == 0o640


class Hostile(BaseContainer):
    """A container whose run does what a hostile package or base does."""

    def run(
        self,
        script: str,
        *arguments: str,
        between: Exchange,
        env: Mapping[str, str],
        more: Sequence[tuple[Path, str]] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> Result:
        ATTACK[0](between)
        return LocalRunner()(Command(argv=("true",)))


ATTACK: list[Callable[[Exchange], None]] = []


def attacked(attack: Callable[[Exchange], None], tmp_path: Path) -> Hostile:
    ATTACK[:] = [attack]
    work = tmp_path / "work"
    work.mkdir()
    settings = load_settings({"HOME": str(tmp_path)}, tmp_path)
    store = Store(tmp_path / "store")
    context = Context(settings=settings, runner=LocalRunner(), store=store, report=Silent())
    return Hostile(image=tmp_path, folder=work, python="/x", context=context)


@pytest.mark.parametrize("make", BAD)
def test_a_source_package_leaves_no_link_in_the_store(
    make: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    secret = tmp_path / "id_secret"
    write_wheel(secret, "wanted-1.0")
    secret.chmod(0o600)

    def attack(between: Exchange) -> None:
        (between.out / "out").mkdir()
        make(between.out / "out/wanted-1.0-py3-none-any.whl", secret)

    store = Store(tmp_path / "store")
    package, needs = (
        sdist(store, "wanted", [], group="project"),
        BuildNeeds(root="r", packages=(), epoch=0),
    )
    with pytest.raises(IntegrityError, match="what the build left"):
        build_wheels([package], needs, attacked(attack, tmp_path), store, SilentStage())
    assert not store.built(wheel_key(package, needs)).exists()
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_name_that_is_no_wheels_is_an_error(tmp_path: Path) -> None:
    def attack(between: Exchange) -> None:
        (between.out / "out").mkdir()
        (between.out / "out/-.whl").touch()

    store = Store(tmp_path / "store")
    package, needs = (
        sdist(store, "wanted", [], group="project"),
        BuildNeeds(root="r", packages=(), epoch=0),
    )
    with pytest.raises(IntegrityError, match="no proper wheel"):
        build_wheels([package], needs, attacked(attack, tmp_path), store, SilentStage())


def test_no_package_reaches_the_tools_or_results_of_another(tmp_path: Path) -> None:
    seen: list[set[Path]] = []

    def attack(between: Exchange) -> None:
        (between.out / "out").mkdir()
        seen.append({between.given, between.out})
        name = next((between.given / "archives").iterdir()).name.removesuffix(".tar.gz")
        write_wheel(between.out / f"out/{name}-py3-none-any.whl", name)

    store = Store(tmp_path / "store")
    packages = [sdist(store, name, [], group="project") for name in ("one", "two")]
    needs = BuildNeeds(root="r", packages=(sdist(store, "tool", []),), epoch=0)
    inside = attacked(attack, tmp_path)
    build_wheels(packages, needs, inside, store, SilentStage())
    assert len(seen) == 3
    assert not set.intersection(*seen)
    tools = inside.folder / "tools"
    assert (tools / "lib/tool.py").is_file()
    assert not any(tools.is_relative_to(path) for paths in seen for path in paths)


PYC = "/usr/lib/python3/site-packages/__pycache__/m.cpython-311.pyc"


def zipped(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"bytecode")


@pytest.mark.parametrize(
    "attack",
    [
        lambda out, secret: (out / "1.zip").symlink_to(secret),
        lambda out, _: os.mkfifo(out / "1.zip"),
        lambda out, _: (out / "1.zip").write_bytes(b"PK\x05\x06 no zip"),
        lambda out, _: zipped(out / "1.zip", "/etc/passwd"),
        lambda out, _: zipped(out / "1.zip", "/usr/lib/python3/site-packages/__pycache__/../m.pyc"),
        lambda out, _: zipped(out / "1.zip", "/usr/lib/python3/site-packages/__pycache__/m.py"),
    ],
)
def test_a_base_gives_bytecode_and_nothing_else(
    attack: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    secret = tmp_path / "priv.zip"
    zipped(secret, PYC)
    wheel = tmp_path / "m-1.0-py3-none-any.whl"
    zipped(wheel, "m.py")
    scheme = Scheme(
        site="usr/lib/python3/site-packages", prefix="usr", version="3.11", python="usr/bin/python3"
    )
    blob = tmp_path / "blob"
    part = pack_part([(file("usr/lib/python3/site-packages/m.py"), b"")], blob)
    packed = WheelPart(file=wheel, name=wheel.name, kept=CachedPart(part=part, blob=blob))
    store = Store(tmp_path / "store")

    def attacking(between: Exchange) -> None:
        (between.out / "key").mkdir()
        attack(between.out / "key", secret)

    inside = attacked(attacking, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        packing = PackContext(store=store, codec=ZSTD, pool=pool, report=Silent())
        with pytest.raises(EnvbuildError) as told:
            compile_modules(
                [wheel_modules(packed, "key", scheme)], inside, packing, 0, SilentStage()
            )
    assert isinstance(told.value, IntegrityError)
    assert not store.layer("key").exists()
