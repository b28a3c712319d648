"""What serves an image's files beside a job: when it is put between, which programs, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.job.schedulers.protocol import script_text
from tests.support import wait_until

SERVER = "#!/bin/sh\nkill -TERM $$; kill -USR1 $$; echo up >>{up}; exec sleep 60\n"
"""It lives on only if it ignores both signals."""
TOLD = """
{mount}
scratch={scratch} runtime={runtime} flags=(--userns)
{text}
keep_servers
printf '%s' "${{APPTAINER_CONFIG_FILE-}}"
"""


@dataclass(kw_only=True, slots=True)
class Node:
    """A node with an Apptainer of two files, and a disk for a job's temporary files."""

    folder: Path
    mount: str = ""

    def settings(self, text: str, *, suid: int = 0) -> None:
        """Let the runtime tell of such settings."""
        conf, runtime = self.folder / "site.conf", self.folder / "apptainer"
        conf.write_text(text)
        built = f"APPTAINER_SUID_INSTALL={suid}\nAPPTAINER_CONF_FILE={conf}\nLIBEXECDIR={self.folder}/libexec"
        runtime.write_text(f"#!/bin/sh\necho '{built}'\n")
        runtime.chmod(0o755)

    def program(self, place: str, name: str = "squashfuse_ll") -> Path:
        """Put a program there that writes where it has been started from."""
        path = self.folder / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SERVER.format(up=path.with_suffix(".up")))
        path.chmod(0o755)
        return path

    def keep_servers(self, path: str) -> Path | None:
        """Run what a job runs, and return the settings that it names."""
        (self.folder / "scratch").mkdir(exist_ok=True)
        scratch = self.folder / "scratch"
        text = TOLD.format(
            mount=self.mount.format(scratch=scratch),
            scratch=scratch,
            runtime=self.folder / "apptainer",
            text=script_text("servers.sh"),
        )
        environment = {"PATH": f"{path}:/usr/bin:/bin"}
        alone = ["unshare", "-rm"] if self.mount else []
        argv = [*alone, "bash", "-uc", text]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if alone and done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr}")
        assert not done.stderr
        return Path(done.stdout) if done.stdout else None

    @property
    def kept(self) -> Path:
        return self.folder / "scratch/.servers/squashfuse_ll"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(folder=tmp_path)
    found.program("user")
    return found


def test_nothing_is_put_between_where_nothing_is_needed(node: Node) -> None:
    for text, suid in (("# BINARY PATH:\n", 1), ("mount tmp = yes\n", 0)):
        node.settings(text, suid=suid)
        assert node.keep_servers(f"{node.folder}/user") is None
        assert not (node.folder / "scratch/.servers").exists()


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("# binary path =\n", "libexec/apptainer/bin"),
        ("binary path = {site}:$PATH:/sbin\n", "site"),
        ("binary path = {site}\n", "libexec/apptainer/bin"),
    ],
)
def test_the_program_is_that_of_the_runtime(node: Node, line: str, place: str) -> None:
    """In its order: its own folder before the user's, or before all."""
    line = line.format(site=node.folder / "site")
    node.settings(f"mount tmp = yes\n{line}mount home = no\n")
    node.program("site")
    node.program("libexec/apptainer/bin")
    settings = node.keep_servers(f"{node.folder}/user")
    assert settings is not None
    assert f"\nexec {node.folder}/{place}/squashfuse_ll " in node.kept.read_text()
    lines = settings.read_text().splitlines()
    assert {"mount tmp = yes", "mount home = no"} <= set(lines)
    [named] = [text for text in lines if text.startswith("binary path")]
    assert named.startswith(f"binary path = {node.kept.parent}:")
    assert not line.startswith("binary") or named.endswith(line.partition("= ")[2].strip())


def test_it_leaves_signals_alone_and_ends_with_the_runtime(node: Node) -> None:
    node.settings("# BINARY PATH:\n")
    assert node.keep_servers(f"{node.folder}/user") is not None
    up = node.folder / "user/squashfuse_ll.up"
    # as the runtime starts it: without a PATH, the image as the third open file
    started = f'env -i "{node.kept}" image 3</dev/null & echo $!; wait'
    with subprocess.Popen(
        ["bash", "-c", started], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as runtime:
        assert runtime.stdout is not None
        server = Path("/proc") / runtime.stdout.readline().strip()
        wait_until(up.exists, "it has ignored the signals")
        assert server.exists()
        runtime.send_signal(signal.SIGKILL)
        runtime.wait()
    began = time.monotonic()
    wait_until(lambda: not server.exists(), "it has ended")
    assert time.monotonic() - began < 10


def test_a_runtime_that_asks_what_the_program_can_leaves_no_process(node: Node) -> None:
    node.settings("# BINARY PATH:\n")
    (node.folder / "user/squashfuse_ll").write_text("#!/bin/sh\necho usage\n")
    assert node.keep_servers(f"{node.folder}/user") is not None
    done = subprocess.run([node.kept], env={}, capture_output=True, text=True, check=False)
    assert done.stdout == "usage\n"


def test_a_disk_from_which_nothing_may_be_run(node: Node) -> None:
    """The runtime could not start what is put there, and takes the site's own."""
    node.settings("# BINARY PATH:\n")
    node.mount = "mount -t tmpfs -o noexec none {scratch} || exit 9"
    assert node.keep_servers(f"{node.folder}/user") is None
