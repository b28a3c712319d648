"""A home folder over sshfs that takes no hard links, as some shared disks: uv answers all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner
from tests.project import small_project
from tests.support import needs

SERVER = Path("/usr/lib/openssh/sftp-server")
pytestmark = [
    pytest.mark.live,
    needs("sshfs", "fusermount3", "mmdebstrap"),
    pytest.mark.skipif(not SERVER.exists(), reason="not installed: openssh-sftp-server"),
    pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no /dev/fuse"),
]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder without hard links."""
    for name in ("server", "mounted"):
        (tmp_path / name).mkdir()
    connect = tmp_path / "connect"
    connect.write_text(f"#!/bin/sh\nexec {SERVER}\n")
    connect.chmod(0o755)
    options = f"ssh_command={connect},disable_hardlink"
    folder = tmp_path / "mounted"
    words = ("sshfs", "-o", options, f"server:{tmp_path}/server", str(folder))
    LocalRunner()(Command(argv=words, timeout=30))
    yield folder
    LocalRunner()(Command(argv=("fusermount3", "-u", "-z", str(folder)), timeout=30))


def test_a_lock_is_made_in_a_home_without_hard_links(mounted: Path) -> None:
    (mounted / "one").touch()
    with pytest.raises(OSError, match="not permitted"):
        os.link(mounted / "one", mounted / "two")
    project = small_project(mounted / "project")
    project.succeed("lock", "small", "--no-proof", TMPDIR=str(mounted.parent))
    assert 'file = "six-' in (project.folder / "lockfiles/small.lock").read_text()
