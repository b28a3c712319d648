"""``doctor``: each judgement, and the whole verb on a machine that lacks everything."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from envbuild.cli import doctor
from envbuild.cli.context import Context
from envbuild.cli.doctor import Finding
from envbuild.host import Host, Space
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import Settings, load_settings
from tests.support import ScriptedRunner, needs

USER = Host(
    uid=1000,
    user="ada",
    architecture="x86_64",
    missing_capabilities=frozenset(range(41)),
    subuid=(100000, 65536),
    subgid=(100000, 65536),
    user_namespace_limit=1000,
    fuse=True,
    driver=None,
)
ROOT = dataclasses.replace(USER, uid=0, user="root", missing_capabilities=frozenset())
CRIPPLED = dataclasses.replace(ROOT, missing_capabilities=frozenset({24}))


def bare(host: Host) -> Host:
    return dataclasses.replace(host, subuid=None, subgid=None, fuse=False, user_namespace_limit=0)


@pytest.mark.parametrize(
    ("host", "verdict", "value"),
    [
        (USER, "fine", "ada (uid 1000)"),
        (ROOT, "fine", "root (uid 0)"),
        (CRIPPLED, "differs", "root (uid 0) without 1 of root's capabilities (bit 24): runs with --userns"),
    ],
)
def test_rights(host: Host, verdict: str, value: str) -> None:
    assert doctor.judge_rights(host) == Finding(name="rights", verdict=verdict, value=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "works", "verdict", "value"),
    [
        (USER, True, "fine", "usable (limit 1000)"),
        (USER, False, "broken", "unshare -U is refused"),
        (bare(USER), False, "broken", "switched off (user.max_user_namespaces = 0)"),
        (bare(USER), None, "broken", "switched off (user.max_user_namespaces = 0)"),
        (USER, None, "differs", "not tried: there is no unshare program"),
        (ROOT, False, "differs", "unshare -U is refused; root needs none"),
        (CRIPPLED, False, "broken", "unshare -U is refused"),
    ],
)
def test_namespaces(host: Host, works: bool | None, verdict: str, value: str) -> None:
    found = doctor.judge_namespaces(host, works=works)
    assert (found.verdict, found.value) == (verdict, value)
    assert bool(found.mend) == (verdict == "broken")


def test_ids() -> None:
    assert doctor.judge_ids(USER).value == "65536 ids from 100000"
    found = doctor.judge_ids(bare(USER))
    assert found.verdict == "broken"
    assert found.value == "no range of 65536 ids for ada in /etc/subuid and /etc/subgid"
    assert found.mend.splitlines()[1] == "root: echo ada:100000:65536 >>/etc/subgid   (a range that no other line uses)"


def test_a_range_that_is_too_short_or_in_one_file_only() -> None:
    short = dataclasses.replace(USER, subgid=(100000, 1000))
    assert doctor.judge_ids(short).value == "no range of 65536 ids for ada in /etc/subgid"
    assert doctor.judge_ids(short).verdict == "broken"


@pytest.mark.parametrize(("host", "verdict"), [(ROOT, "differs"), (CRIPPLED, "broken")], ids=["root", "crippled root"])
def test_root_needs_ids_only_where_it_lacks_capabilities(host: Host, verdict: str) -> None:
    assert doctor.judge_ids(bare(host)).verdict == verdict


@pytest.mark.parametrize(
    ("host", "verdict"),
    [(USER, "fine"), (bare(USER), "differs"), (bare(ROOT), "differs"), (bare(CRIPPLED), "broken")],
    ids=["open", "user", "root", "crippled root"],
)
def test_fuse(host: Host, verdict: str) -> None:
    assert doctor.judge_fuse(host).verdict == verdict


def space(**changes: object) -> Space:
    roomy = Space(folder=Path("/scratch"), free=100 * doctor.GB, free_inodes=10**7, kind="ext4")
    return dataclasses.replace(roomy, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "found", "verdict"),
    [
        ("TMPDIR", space(), "fine"),
        ("TMPDIR", space(free=10 * doctor.GB), "differs"),
        ("TMPDIR", space(free=doctor.GB), "broken"),
        ("TMPDIR", space(free_inodes=100_000), "differs"),
        ("TMPDIR", space(free_inodes=100), "broken"),
        ("TMPDIR", space(free_inodes=None), "fine"),
        ("TMPDIR", space(kind="lustre"), "differs"),
        ("store", space(kind="lustre"), "fine"),
        ("current folder", space(free=doctor.GB), "differs"),
    ],
)
def test_space(name: str, found: Space, verdict: str) -> None:
    assert doctor.judge_space(name, found, writable=True).verdict == verdict


def test_space_names_the_variable_that_moves_it() -> None:
    found = doctor.judge_space("store", space(free=0), writable=True)
    assert found.value == "/scratch (ext4): 0 B free, 10,000,000 inodes free"
    assert found.mend == "export ENVBUILD_STORE=/another/folder with more room"


def test_a_folder_that_is_not_ours() -> None:
    found = doctor.judge_space("TMPDIR", space(), writable=False)
    assert (found.verdict, found.value.rpartition("; ")[2]) == ("broken", "not writable")


class _Server(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(int(self.path.strip("/") or 200))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://user:secret@127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def settings_of(folder: Path, **variables: str) -> Settings:
    return load_settings({"PATH": str(folder / "bin"), "HOME": str(folder), "TMPDIR": str(folder), **variables}, folder)


@pytest.mark.parametrize(("status", "verdict"), [(200, "fine"), (404, "fine"), (401, "broken"), (503, "broken")])
def test_servers(server: str, tmp_path: Path, status: int, verdict: str) -> None:
    found = doctor._reach("package index", f"{server}/{status}", settings_of(tmp_path))
    assert found.verdict == verdict
    assert "secret" not in found.value


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    found = doctor._reach("Debian mirror", "http://127.0.0.1:1/debian", settings_of(tmp_path))
    assert found.verdict == "broken"
    assert found.value == "http://127.0.0.1:1/debian cannot be reached: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("code", "out", "verdict", "value"),
    [
        (
            0,
            "GPU 0: Tesla T4 (UUID: GPU-1)\nGPU 1: Tesla T4 (UUID: GPU-2)\n",
            "fine",
            "GPU 0: Tesla T4; GPU 1: Tesla T4",
        ),
        (6, "No devices were found\n", "differs", "NVIDIA driver 535.1, but no GPU answers: No devices were found"),
    ],
    ids=["two", "none"],
)
def test_gpus(tmp_path: Path, code: int, out: str, verdict: str, value: str) -> None:
    host = dataclasses.replace(USER, driver="535.1")
    found = doctor._gpu(settings_of(tmp_path), ScriptedRunner({"nvidia-smi -L": (code, out, "")}), host)
    assert found.verdict == verdict
    assert found.value.endswith(value)


def run(settings: Settings, *arguments: str) -> tuple[int, str]:
    @click.group()
    @click.pass_context
    def group(ctx: click.Context) -> None:
        ctx.obj = Context(settings=settings, runner=LocalRunner(), report=Silent())

    group.add_command(doctor.command, "doctor")
    result = CliRunner().invoke(group, ["doctor", *arguments], standalone_mode=False)
    assert result.exception is None
    return int(result.return_value), result.output


def test_a_machine_that_lacks_everything(tmp_path: Path, server: str) -> None:
    empty = settings_of(tmp_path, ENVBUILD_INDEX=f"{server}/200", ENVBUILD_DEBIAN_MIRROR="http://127.0.0.1:1/debian")
    code, text = run(empty)
    assert code == 7
    lines = {line[19:37].strip(): line for line in text.splitlines() if not line.startswith(" ")}
    broken = {name for name, line in lines.items() if line.startswith("broken")}
    assert {"container runtime", "newuidmap", "mksquashfs", "unsquashfs", "mmdebstrap", "Debian mirror"} <= broken
    assert {"Python", "uv", "package index"}.isdisjoint(broken)
    assert "→ on Debian or Ubuntu, as root: apt-get install squashfs-tools" in text


def test_json_says_the_same(tmp_path: Path, server: str) -> None:
    variables = {"ENVBUILD_INDEX": f"{server}/200", "ENVBUILD_DEBIAN_MIRROR": f"{server}/200"}
    code, text = run(settings_of(tmp_path, **variables), "--json")
    told = json.loads(text)
    assert (code, told["ok"]) == (7, False)
    runtime = next(finding for finding in told["findings"] if finding["name"] == "container runtime")
    assert runtime["verdict"] == "broken"
    assert runtime["value"] == "neither apptainer nor singularity was found on PATH"


def test_a_broken_setting_is_a_finding_not_the_end(tmp_path: Path) -> None:
    variables = {"ENVBUILD_INDEX": "not a url", "ENVBUILD_DEBIAN_MIRROR": "neither"}
    code, text = run(settings_of(tmp_path, **variables))
    assert code == 7
    assert sum(line.startswith("broken") and ("index" in line or "mirror" in line) for line in text.splitlines()) == 2


@pytest.mark.live
@needs("apptainer", "mksquashfs", "unsquashfs", "mmdebstrap", "newuidmap")
def test_this_machine(user_settings: Settings) -> None:
    findings = doctor.examine(user_settings, LocalRunner())
    assert [finding for finding in findings if finding.verdict == "broken"] == []
