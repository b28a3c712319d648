"""What a captured run leaves: marks of both overlays, times, identities; and runs over real images."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
from importlib import resources
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.base.ociimages import image_of, write_layout
from tests.build.images import TOP, sha256
from tests.project import Project, shared_store
from tests.support import needs

EPOCH = 1_600_000_000
SCRIPT = str(resources.files("envbuild.build.in_base.scripts").joinpath("capture.py"))


def capture(folder: Path, started: int = 2**62) -> dict[str, tarfile.TarInfo]:
    (folder / "order.json").write_text(json.dumps({"epoch": EPOCH, "started": started}))
    argv = (
        sys.executable,
        SCRIPT,
        str(folder / "upper"),
        str(folder / "layer.tar"),
        str(folder / "order.json"),
    )
    LocalRunner()(Command(argv=argv, timeout=30))
    with tarfile.open(folder / "layer.tar") as tar:
        return {member.name: member for member in tar}


def write(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / "upper" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1000, 1000))
    return path


def test_caches_logs_identities_and_seeds_are_left_out(tmp_path: Path) -> None:
    for name in (
        "var/log/dpkg.log", "var/cache/apt/archives/x.deb", "var/lib/apt/lists/x_Packages", "var/cache/apt/pkgcache.bin",
        "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old", "etc/passwd-", "etc/ssh/ssh_host_rsa_key",
        "var/lib/systemd/random-seed", "var/lib/dbus/machine-id", "tmp/x", "run/x", "etc/resolv.conf", "root/.cache/x",
    ):  # fmt: skip
        write(tmp_path, name)
    write(tmp_path, "etc/machine-id", "0123456789abcdef")
    write(tmp_path, "var/lib/dpkg/status", "Package: x")
    write(tmp_path, "etc/shadow", "root:*:18000:0:\nnew:!:99999:0:\n")
    found = capture(tmp_path)
    assert sorted(name for name, member in found.items() if member.isfile()) == [
        "etc/machine-id",
        "etc/shadow",
        "var/lib/dpkg/status",
    ]
    assert found["etc/machine-id"].size == 0
    with tarfile.open(tmp_path / "layer.tar") as tar:
        held = tar.extractfile("etc/shadow")
        assert held is not None
        assert held.read() == f"root:*:18000:0:\nnew:!:{EPOCH // 86400}:0:\n".encode()
    assert not (tmp_path / "upper").exists()


def test_times_of_the_run_become_the_locks_and_others_stay(tmp_path: Path) -> None:
    write(tmp_path, "usr/from-package")
    made = write(tmp_path, "usr/generated")
    os.utime(made, (3000, 3000))
    found = capture(tmp_path, started=2000 * 10**9)
    assert found["usr/from-package"].mtime == 1000
    assert found["usr/generated"].mtime == EPOCH


def test_marks_of_every_overlay_become_those_of_layers(tmp_path: Path) -> None:
    write(tmp_path, "b/.wh.gone")
    write(tmp_path, "c/.wh..wh..opq")
    write(tmp_path, "d/new")
    os.setxattr(tmp_path / "upper/d", "user.fuseoverlayfs.opaque", b"y")
    os.setxattr(tmp_path / "upper/d/new", "user.fuseoverlayfs.origin", b"old")
    os.setxattr(tmp_path / "upper/d/new", "user.kept", b"1")
    if os.geteuid() == 0:
        os.mknod(tmp_path / "upper/a", stat.S_IFCHR, os.makedev(0, 0))
    else:
        write(tmp_path, ".wh.a")
    found = capture(tmp_path)
    assert {name for name in found if ".wh." in name} == {
        ".wh.a",
        "b/.wh.gone",
        "c/.wh..wh..opq",
        "d/.wh..wh..opq",
    }
    assert found["d/new"].pax_headers == {"SCHILY.xattr.user.kept": "1"}


def test_the_same_files_made_in_another_order_give_the_same_bytes(tmp_path: Path) -> None:
    tars = []
    for order in (1, -1):
        folder = tmp_path / str(order)
        for name in ["b/z", "b/a", "a/x"][::order]:
            write(folder, name, name)
        os.link(folder / "upper/b/z", folder / "upper/a/linked")
        capture(folder, started=0)
        tars.append((folder / "layer.tar").read_bytes())
    assert tars[0] == tars[1]
    with tarfile.open(fileobj=io.BytesIO(tars[0])) as tar:
        assert (tar.getmember("b/z").islnk(), tar.getmember("b/z").linkname) == (True, "a/linked")


RECIPE = """\
[recipe]
name = "debian"
[base]
image = "oci:base"
[python]
dependencies = ["six==1.16.0"]
as-of = "none"
[system]
packages = ["hello-traditional"]
post = ["echo done > /opt/post", "rm -r /usr/share/doc/bash", "rm /etc/issue && mkdir /etc/issue && touch /etc/issue/new"]
[check]
imports = ["six"]
"""


@pytest.mark.live
@needs("apptainer", "mmdebstrap", "apt-get", "fuse-overlayfs")
def test_debian_packages_and_lines_of_shell_over_an_image(first: Project, tmp_path: Path) -> None:
    lock = (first.folder / "lockfiles/small.lock").read_text()
    digest = next(
        line.split('"')[1] for line in lock.splitlines() if line.startswith('digest = "sha256:')
    )
    root = shared_store() / TOP / "bases" / f"{digest.replace(':', '-')}.tar"
    project = Project(tmp_path / "p", tmp_path / "store")
    project.write("recipes/debian.toml", RECIPE)
    write_layout(
        image_of(root.read_bytes(), created="2026-07-11T10:00:00Z"), project.folder / "base"
    )
    for verb in ("lock", "make"):
        project.succeed(verb)
    image = project.folder / "debian.sif"
    told = project.run(
        "exec",
        "debian",
        "--",
        "sh",
        "-c",
        "hello; cat /opt/post; ls /usr/share/doc/bash /etc/issue",
    )
    assert told.stdout.splitlines() == ["Hello, world!", "done", "/etc/issue:", "new"]
    assert project.run("verify", "debian").code == 0
    project.succeed("make", "--mode", "layered", "-o", "layered.sif", "--no-check")
    command = "hello; ls /usr/share/doc/bash /etc/issue"
    argv = (
        "apptainer",
        "-q",
        "exec",
        "--userns",
        str(project.folder / "layered.sif"),
        "sh",
        "-c",
        command,
    )
    ran = LocalRunner()(Command(argv=argv, env=project.env, timeout=60), check=False)
    assert ran.stdout.splitlines() == ["Hello, world!", "/etc/issue:", "new"]
    before = sha256(image)
    for kept in (project.store / TOP / "layers").iterdir():
        kept.unlink()
    image.unlink()
    project.succeed("make", "--no-check", TZ="Asia/Tokyo", LC_ALL="C")
    assert sha256(image) == before
    assert [path.name for path in (project.store / TOP / "tmp").iterdir()] == []
