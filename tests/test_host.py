"""Facts about the machine, read from made-up roots."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.host import Host, free_bytes, read_driver, read_host, read_space, user_namespaces_work
from envbuild.run import LocalRunner
from tests.support import ScriptedRunner

ALL = "000001ffffffffff"
WITHOUT_SYS_RESOURCE = "000001fffeffffff"


def fake_root(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def status(mask: str) -> dict[str, str]:
    return {
        "proc/self/status": f"Name:\tx\nCapEff:\t{mask}\n",
        "proc/sys/kernel/cap_last_cap": "40\n",
    }


def host_of(folder: Path, files: dict[str, str], *, uid: int = 1000, user: str = "ada") -> Host:
    return read_host(root=fake_root(folder, files), uid=uid, user=user)


def test_an_empty_root_has_nothing_and_raises_nothing(tmp_path: Path) -> None:
    host = read_host(root=tmp_path, uid=1000, user="ada")
    assert (host.subuid, host.subgid, host.user_namespace_limit, host.fuse, host.driver) == (
        None,
        None,
        None,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("mask", "uid", "missing", "crippled"),
    [(ALL, 0, 0, False), (WITHOUT_SYS_RESOURCE, 0, 1, True), ("0000000000000000", 1000, 41, False)],
    ids=["whole root", "root without CAP_SYS_RESOURCE", "ordinary user"],
)
def test_capabilities(tmp_path: Path, mask: str, uid: int, missing: int, crippled: bool) -> None:
    host = host_of(tmp_path, status(mask), uid=uid)
    assert len(host.missing_capabilities) == missing
    assert host.crippled_root is crippled


def test_the_missing_capability_is_named_by_its_bit(tmp_path: Path) -> None:
    assert host_of(tmp_path, status(WITHOUT_SYS_RESOURCE), uid=0).missing_capabilities == {24}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ada:100000:65536\n", (100000, 65536)),
        ("bob:100000:65536\nada:165536:65536", (165536, 65536)),
        ("1000:100000:65536\n", (100000, 65536)),
        ("adalbert:100000:65536\n", None),
        ("ada:100000:0\n", None),
        ("ada:many:65536\n", None),
        ("ada\n\n:::\n", None),
    ],
    ids=["by name", "second line", "by number", "longer name", "no ids", "not a number", "broken"],
)
def test_subuid_lines(tmp_path: Path, text: str, expected: tuple[int, int] | None) -> None:
    host = host_of(tmp_path, {"etc/subuid": text, "etc/subgid": text})
    assert (host.subuid, host.subgid) == (expected, expected)
    assert host.missing_ids == (() if expected else ("/etc/subuid", "/etc/subgid"))


def test_the_file_without_enough_ids_is_named_with_the_line_for_root(tmp_path: Path) -> None:
    texts = {"etc/subuid": "ada:100000:65536\n", "etc/subgid": "ada:100000:1000\n"}
    host = host_of(tmp_path, texts)
    assert host.missing_ids == ("/etc/subgid",)
    assert host.ids_remedy == "root: echo ada:165536:65536 >>/etc/subgid"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023",
            "535.129.03",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)",
            "570.86.15",
        ),
        (
            "NVRM version: NVIDIA UNIX aarch64 Kernel Module  550.54.15  Tue Mar  5 22:15:33 UTC 2024",
            "550.54.15",
        ),
        ("something else", None),
    ],
    ids=["closed", "open", "arm", "unknown text"],
)
def test_driver_version(tmp_path: Path, line: str, version: str | None) -> None:
    text = f"{line}\nGCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n"
    root = fake_root(tmp_path, {"proc/driver/nvidia/version": text, "dev/nvidiactl": ""})
    assert read_driver(root) == version


def test_loaded_module_without_device_is_no_driver(tmp_path: Path) -> None:
    root = fake_root(
        tmp_path,
        {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1.2  x"
        },
    )
    assert read_driver(root) is None


def test_this_machine_reads_as_itself() -> None:
    host = read_host()
    assert host.uid == os.geteuid()
    assert host.architecture == os.uname().machine
    assert host.fuse == os.access("/dev/fuse", os.R_OK | os.W_OK)


MOUNTS = """\
rootfs / rootfs rw 0 0
/dev/sda1 / ext4 rw 0 0
srv:/home /home nfs4 rw 0 0
scratch@tcp:/s /home/ada/big\\040scratch lustre rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("place", "kind", "slow"),
    [
        ("/opt/x", "ext4", False),
        ("/home/ada", "nfs4", True),
        ("/homer", "ext4", False),
        ("/home/ada/big scratch/tmp", "lustre", True),
    ],
)
def test_file_system_of_a_folder(tmp_path: Path, place: str, kind: str, slow: bool) -> None:
    mounts = fake_root(
        tmp_path,
        {"mounts": MOUNTS.replace(" /", f" {tmp_path}/").replace(f"{tmp_path}/ ", f"{tmp_path} ")},
    )
    folder = Path(f"{tmp_path}{place}")
    folder.mkdir(parents=True)
    space = read_space(folder, mounts=mounts / "mounts")
    assert (space.kind, space.slow) == (kind, slow)


def test_space_of_a_folder_that_is_still_to_be_made(tmp_path: Path) -> None:
    space = read_space(tmp_path / "not" / "yet")
    real = os.statvfs(tmp_path)
    assert space.folder == tmp_path / "not" / "yet"
    assert abs(space.free - real.f_bavail * real.f_frsize) < 2**30


def test_file_system_that_counts_no_inodes(tmp_path: Path) -> None:
    numbers = os.statvfs_result((4096, 4096, 100, 50, 40, 0, 0, 0, 0, 255))
    space = read_space(tmp_path, statvfs=lambda _: numbers)
    assert (space.free, space.free_inodes) == (40 * 4096, None)


@given(text=st.text(alphabet="ada:0123456789 \n", max_size=80))
def test_no_text_in_subuid_is_too_strange(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    root = fake_root(tmp_path_factory.mktemp("root"), {"etc/subuid": text})
    rows = [line.strip().split(":") for line in text.splitlines()]
    own = [row for row in rows if len(row) == 3 and row[0] in ("ada", "1000")]
    ranges = [(int(row[1]), int(row[2])) for row in own if all(map(str.isdecimal, row[1:]))]
    first = next((one for one in ranges if one[1] > 0), None)
    assert read_host(root=root, uid=1000, user="ada").subuid == first


def test_user_namespaces_are_tried_not_guessed() -> None:
    assert user_namespaces_work(ScriptedRunner({"unshare -U": (0, "", "")})) is True
    assert (
        user_namespaces_work(
            ScriptedRunner({"unshare -U": (1, "", "unshare failed: Operation not permitted")})
        )
        is False
    )


def test_user_namespaces_without_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert user_namespaces_work(LocalRunner()) is None


def test_a_file_system_that_tells_no_size_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE's default answer to statvfs is zeros (libfuse, fuse_operations.statfs)."""
    assert free_bytes(tmp_path) < 10**15
    none = shutil.disk_usage(tmp_path)._replace(total=0, used=0, free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: none)
    assert free_bytes(tmp_path) > 10**15
