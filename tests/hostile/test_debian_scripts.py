"""A Debian package whose script means harm, installed for real: it has ids that own nothing of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.base.debian.apt import resolve_bootstrap
from envbuild.base.debian.bootstrap import fetch_packages, make_root
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.model import DebianPackage
from envbuild.context import Context
from envbuild.host import read_host
from envbuild.progress import Silent
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.project import shared_store
from tests.support import needs
from tests.tiny_image import open_folder

pytestmark = [pytest.mark.live, needs("mmdebstrap", "apt-get", "dpkg-deb", "newuidmap")]
SECRET = "a-word-that-nobody-may-see"
SCRIPT = """\
#!/usr/bin/python3
import glob, json, os

seen = {{"uid": os.getuid()}}
inside = os.open("/", os.O_RDONLY)
seen["environment"] = []
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        seen["environment"].append(open(path, errors="replace").read())
    except OSError:
        pass

# root of a chroot leaves it: what is outside counts, too
os.makedirs("/tmp/door", exist_ok=True)
os.chroot("/tmp/door")
os.fchdir(inside)
for _ in range(64):
    os.chdir("..")
os.chroot(".")

def can_open(path, mode):
    try:
        open(path, mode).close()
    except OSError:
        return False
    return True


open({open_folder!r} + "/written", "w").close()
seen["read"] = [path for path in {secret!r} if can_open(path, "r")]
seen["wrote"] = [path for path in {kept!r} if can_open(path, "a")]
os.fchdir(inside)
os.chroot(".")
with open("/usr/share/harm.json", "w") as file:
    json.dump(seen, file)
"""


@pytest.fixture
def closed_home() -> Iterator[Path]:
    """A folder of the user's own home that nobody else may enter."""
    top = Path.home() / "envbuild scripts test"
    top.mkdir(mode=0o700)
    try:
        yield top
    finally:
        shutil.rmtree(top)


def harmful_package(folder: Path, script: str, store: Store) -> DebianPackage:
    """Build a package that runs a script when it is set up, and put it into the store."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: harm\nVersion: 1.0-1\nArchitecture: all\nDepends: python3\n"
        "Maintainer: T <t@t.invalid>\nDescription: for tests\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/postinst").write_text(script)
    (tree / "DEBIAN/postinst").chmod(0o755)
    deb = folder / "harm_1.0-1_all.deb"
    argv = ("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb))
    LocalRunner()(Command(argv=argv))
    data = deb.read_bytes()
    package = DebianPackage(
        name="harm",
        version="1.0-1",
        architecture="all",
        group="base",
        path=f"pool/main/h/harm/{deb.name}",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    kept = store.artifact(package.sha256)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    return package


def told_by(root: Path) -> dict[str, Any]:
    with tarfile.open(root) as tar:
        file = tar.extractfile("./usr/share/harm.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


def test_of_a_package_reaches_nothing_of_who_builds(
    user_settings: Settings, closed_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = read_host()
    if host.subuid is None:
        pytest.skip("this user has no ids in /etc/subuid")
    monkeypatch.setenv("MY_SECRET", SECRET)
    environment = {**user_settings.environment, "MY_SECRET": SECRET}
    settings = replace(user_settings, stores_below=(shared_store(),), environment=environment)
    store = Store(settings.store, below=settings.stores_below)
    context = Context(settings=settings, runner=LocalRunner(), store=store, report=Silent())
    base = resolve_bootstrap("bookworm", context)
    fetch_packages(base, context)
    make_root(base, context)

    secret, own = closed_home / "secret", closed_home / "own"
    secret.write_text(SECRET)
    own.write_text("mine")
    for path in (secret, own):
        path.chmod(0o666)  # what keeps others away is the folder
    kept = [store.artifact(package.sha256) for package in base.packages]
    reached = open_folder() / "reached"
    reached.mkdir()
    reached.chmod(0o777)
    pattern = Path("/proc/sys/kernel/core_pattern")
    before = pattern.read_text()
    script = SCRIPT.format(
        open_folder=str(reached),
        secret=[
            str(secret),
            "/etc/shadow",
            f"/proc/{os.getpid()}/environ",
            f"/proc/1/root{secret}",
        ],
        kept=[str(own), str(pattern), *map(str, kept[:20])],
    )
    harm = harmful_package(closed_home, script, store)
    harmed = Bootstrap(
        suite=base.suite, created=base.created, packages=(*base.packages, harm), over=base
    )
    seen = told_by(make_root(harmed, context))

    # it left its chroot, and is nobody there
    assert seen["uid"] == 0
    assert (reached / "written").stat().st_uid == host.subuid[0]
    assert (seen["read"], seen["wrote"]) == ([], [])
    assert SECRET not in "".join(seen["environment"])
    assert (own.read_text(), pattern.read_text()) == ("mine", before)
