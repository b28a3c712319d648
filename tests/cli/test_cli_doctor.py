"""``doctor``: each judgement, and the whole verb on a machine that lacks everything."""

from __future__ import annotations

import dataclasses
import grp
import http.server
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from envbuild.app.doctor import network, places, programs, rights
from envbuild.app.doctor.examine import examine_machine
from envbuild.app.doctor.finding import GB, Finding
from envbuild.app.doctor.places import judge_space
from envbuild.cli import doctor, run_cli
from envbuild.errors import HostError
from envbuild.host import Host, Space, closed_above, read_host
from envbuild.quota import Quota, parse_quota, quotas_of, read_quotas, tightest
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import Settings, load_settings
from tests.support import (
    CRIPPLED,
    ROOT,
    USER,
    ScriptedRunner,
    context_for,
    http_server,
    needs,
    quiet_context,
)


def bare(host: Host) -> Host:
    return dataclasses.replace(host, subuid=None, subgid=None, fuse=False, user_namespace_limit=0)


@pytest.mark.parametrize(
    ("host", "verdict", "value"),
    [
        (USER, "fine", "ada (uid 1000)"),
        (ROOT, "fine", "root (uid 0)"),
        (
            CRIPPLED,
            "differs",
            "root (uid 0) without 1 of root's capabilities (cap_sys_resource): runs with --userns",
        ),
    ],
)
def test_rights(host: Host, verdict: str, value: str) -> None:
    assert rights.judge_rights(host) == Finding(name="rights", verdict=verdict, value=value)  # type: ignore[arg-type]


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
    found = rights.judge_namespaces(host, works=works)
    assert (found.verdict, found.value) == (verdict, value)
    assert bool(found.mend) == (verdict == "broken")


def test_ids() -> None:
    assert rights.judge_ids(USER).value == "65536 ids from 100000"
    found = rights.judge_ids(bare(USER))
    assert found.verdict == "broken"
    assert found.value == "no range of 65536 ids for ada in /etc/subuid and /etc/subgid"
    assert found.mend.splitlines()[1] == "root: echo ada:100000:65536 >>/etc/subgid"


def made_up(tmp_path: Path, **files: str) -> Host:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_host(root=tmp_path, uid=1000, user="ada")


@pytest.mark.parametrize(
    ("subuid", "subgid", "free"),
    [
        ("", "", 100000),
        ("bob:100000:65536\n", "", 165536),
        ("bob:100000:65536\n", "eve:165536:65536\n", 231072),
        ("eve:300000:65536\nbob:100000:65536\n", "", 165536),
        ("eve:200000:65536\nbob:100000:65536\n", "", 265536),
        ("bob:500:10\nno line\nx:1\n", "bob:100000:1000\n", 101000),
    ],
)
def test_the_range_of_the_remedy_is_free(
    subuid: str, subgid: str, free: int, tmp_path: Path
) -> None:
    host = made_up(tmp_path, etc__subuid=subuid, etc__subgid=subgid)
    assert f"root: echo ada:{free}:65536 >>/etc/subuid" in rights.judge_ids(host).mend


def test_the_remedy_names_settings_that_this_kernel_has_and_lasts(tmp_path: Path) -> None:
    debian = made_up(
        tmp_path / "debian",
        proc__sys__user__max_user_namespaces="100\n",
        proc__sys__kernel__unprivileged_userns_clone="0\n",
    )
    mend = rights.judge_namespaces(debian, works=False).mend
    assert mend.startswith(
        "root: printf '%s\\n' kernel.unprivileged_userns_clone=1 >/etc/sysctl.d/"
    )
    assert "max_user_namespaces" not in mend
    ubuntu = made_up(
        tmp_path / "ubuntu", proc__sys__kernel__apparmor_restrict_unprivileged_userns="1\n"
    )
    assert (
        "kernel.apparmor_restrict_unprivileged_userns=0"
        in rights.judge_namespaces(ubuntu, works=False).mend
    )
    other = made_up(tmp_path / "other", proc__sys__user__max_user_namespaces="0\n")
    assert " user.max_user_namespaces=15000 >" in rights.judge_namespaces(other, works=False).mend
    none = made_up(tmp_path / "none", proc__sys__user__max_user_namespaces="100\n")
    assert "sysctl" not in rights.judge_namespaces(none, works=False).mend


def test_a_tmpdir_without_programs_or_closed_to_others(tmp_path: Path) -> None:
    fine = judge_space("TMPDIR", space(), writable=True)
    noexec = places.judge_entry(
        fine, space(options=("rw", "noexec")), closed=None, better=Path("/var/tmp")
    )
    assert (noexec.verdict, noexec.mend) == ("broken", "export TMPDIR=/var/tmp")
    assert places.judge_entry(fine, space(options=("rw",)), closed=None) == fine
    closed = tmp_path / "closed"
    (closed / "below").mkdir(parents=True)
    closed.chmod(0o700)
    assert closed_above(closed / "below") == closed
    assert closed_above(Path("/usr/bin")) is None
    found = places.judge_entry(fine, space(), closed=closed)
    assert (found.verdict, found.mend.splitlines()[0]) == ("differs", f"chmod o+x {closed}")
    store = judge_space("store", space(), writable=True)
    assert places.judge_entry(store, space(options=("noexec",)), closed=closed) == store


def test_a_bug_of_one_probe_hides_no_other_finding(
    user_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("partially initialized module")

    monkeypatch.setattr("envbuild.app.doctor.programs.examine_packer", broken)
    monkeypatch.setattr("envbuild.tools._uv", broken)
    found = {finding.name: finding for finding in examine_machine(quiet_context(user_settings))}
    for name in ("mksquashfs", "uv"):
        assert found[name].verdict == "differs"
        assert (
            found[name].value
            == "this line could not be found out: AttributeError: partially initialized module"
        )
    assert found["Python"].verdict == "fine"


def test_a_range_that_is_too_short_or_in_one_file_only() -> None:
    short = dataclasses.replace(USER, subgid=(100000, 1000))
    assert rights.judge_ids(short).value == "no range of 65536 ids for ada in /etc/subgid"
    assert rights.judge_ids(short).verdict == "broken"


@pytest.mark.parametrize(
    ("host", "verdict"), [(ROOT, "differs"), (CRIPPLED, "broken")], ids=["root", "crippled root"]
)
def test_root_needs_ids_only_where_it_lacks_capabilities(host: Host, verdict: str) -> None:
    assert rights.judge_ids(bare(host)).verdict == verdict


@pytest.mark.parametrize(
    ("host", "verdict"),
    [(USER, "fine"), (bare(USER), "differs"), (bare(ROOT), "differs"), (bare(CRIPPLED), "broken")],
    ids=["open", "user", "root", "crippled root"],
)
def test_fuse(host: Host, verdict: str) -> None:
    assert rights.judge_fuse(host).verdict == verdict


def space(**changes: object) -> Space:
    roomy = Space(folder=Path("/scratch"), free=100 * GB, free_inodes=10**7, kind="ext4")
    return dataclasses.replace(roomy, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "found", "verdict"),
    [
        ("TMPDIR", space(), "fine"),
        ("TMPDIR", space(free=10 * GB), "differs"),
        ("TMPDIR", space(free=GB), "broken"),
        ("TMPDIR", space(free_inodes=100_000), "differs"),
        ("TMPDIR", space(free_inodes=100), "broken"),
        ("TMPDIR", space(free_inodes=None), "fine"),
        ("TMPDIR", space(kind="lustre"), "differs"),
        ("store", space(kind="lustre"), "fine"),
        ("current folder", space(free=GB), "differs"),
    ],
)
def test_space(name: str, found: Space, verdict: str) -> None:
    assert judge_space(name, found, writable=True).verdict == verdict


def test_space_names_the_variable_that_moves_it() -> None:
    found = judge_space("store", space(free=0), writable=True)
    assert found.value == "/scratch (ext4): 0 B free, 10,000,000 inodes free"
    assert found.mend == "export ENVBUILD_STORE=/another/folder with more room"


QUOTA = """\
Disk quotas for user ada (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
srv:/export/home 18000000* 17000000 20000000 604800   90000  100000  120000       0
/dev/mapper/a-very-long-name-of-a-volume
                 1000000       0       0       0     500       0       0       0
"""
LFS = """\
     /lustre/scratch
                 1048576       0 10485760       -    1234       0  500000       -
"""


def test_quotas_are_read() -> None:
    home = parse_quota(QUOTA, ("srv:/export/home",))
    assert home is not None
    assert (home.used, home.limit, home.free) == (18000000 * 1024, 17000000 * 1024, 0)
    assert (home.files_used, home.files_limit, home.free_files) == (90000, 100000, 10000)
    unlimited = parse_quota(QUOTA, ("/dev/mapper/a-very-long-name-of-a-volume",))
    assert unlimited is not None
    assert (unlimited.free, unlimited.free_files) == (None, None)
    lustre = parse_quota(LFS, ("/lustre/scratch",))
    assert lustre is not None
    assert (lustre.free, lustre.free_files) == ((10485760 - 1048576) * 1024, 500000 - 1234)
    assert parse_quota(QUOTA, ("/dev/mapper/a-very", "")) is None
    assert parse_quota("quota: no such user\n", ("/",)) is None


@given(text=st.text(alphabet="srv:/home 0123456789*\n", max_size=200))
def test_no_output_of_quota_is_too_strange(text: str) -> None:
    found = parse_quota(text, ("srv:/home",))
    if found is not None:
        assert str(found.used // 1024) in text.replace("*", "")


GROUP = """\
Disk quotas for group lab (gid 2000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
srv:/export/home 950000000       0 1000000000       0 2000000       0       0       0
"""


def test_the_program_of_the_file_system_is_asked_for_user_and_group() -> None:
    runner = ScriptedRunner(
        {"quota -w -p -u ada": (1, QUOTA, ""), "quota -w -p -g lab": (0, GROUP, "")}
    )
    user, group = read_quotas(space(kind="nfs4", device="srv:/export/home"), "ada", "lab", runner)
    assert (user.owner, user.limit, user.hard) == ("your", 17000000 * 1024, 20000000 * 1024)
    assert (user.free, user.room) == (0, 2000000 * 1024), (
        "past the soft limit, writing goes on for some days"
    )
    assert (group.owner, group.free, group.room) == (
        "the group lab's",
        50000000 * 1024,
        50000000 * 1024,
    )
    assert tightest((user, group)) == user
    lustre = ScriptedRunner(
        {"lfs quota -q -u ada /lustre/scratch": (0, LFS, ""), "lfs quota -q -g lab": (0, "", "")}
    )
    (found,) = read_quotas(space(kind="lustre", mount="/lustre/scratch"), "ada", "lab", lustre)
    assert found.free == (10485760 - 1048576) * 1024


def test_nobody_waits_twice_for_a_quota_server_that_is_down() -> None:
    calls = []

    def down(command: Command, *, check: bool = True) -> Result:
        calls.append(command)
        return Result(argv=command.argv, code=-9, stdout="", stderr="", seconds=5.0, timed_out=True)

    assert read_quotas(space(), "ada", "lab", down) == ()
    assert len(calls) == 1


def test_a_machine_without_quotas(tmp_path: Path) -> None:
    def absent(command: Command, *, check: bool = True) -> Result:
        raise HostError("quota was not found on PATH")

    assert quotas_of(tmp_path / "not/yet", absent) == ()
    assert tightest(()) is None


def test_a_folder_that_hands_its_group_on_counts_for_that_group(tmp_path: Path) -> None:
    runner = ScriptedRunner({"quota": (0, "", "")})
    tmp_path.chmod(0o2775)
    mine = grp.getgrgid(tmp_path.stat().st_gid).gr_name
    quotas_of(tmp_path / "not/yet", runner)
    assert [call.argv[-1] for call in runner.calls] == [read_host().user, mine]


def test_a_quota_counts_where_it_is_less_than_the_disk() -> None:
    quota = Quota(used=18 * GB, limit=20 * GB, files_used=90_000, files_limit=None)
    found = judge_space("current folder", space(), writable=True, quota=quota)
    assert (found.verdict, found.mend) == ("differs", "cd /another/folder")
    assert found.value.startswith(
        "/scratch (ext4): 2.0 GB free of your quota of 20.0 GB, 10,000,000 inodes free; "
    )
    full = dataclasses.replace(quota, used=21 * GB)
    assert judge_space("store", space(), writable=True, quota=full).verdict == "broken"
    files = dataclasses.replace(quota, limit=None, files_limit=100_000)
    assert judge_space("store", space(), writable=True, quota=files).verdict == "broken"


@pytest.mark.parametrize(
    ("total", "limit", "verdict"),
    [(20, None, "differs"), (900, 25, "differs"), (900, None, "fine"), (900, 100, "fine")],
)
def test_a_store_in_a_small_home_is_named_with_where_to_put_it(
    total: int, limit: int | None, verdict: str
) -> None:
    home = Path("/home/ada")
    quota = Quota(used=0, limit=limit * GB, files_used=0, files_limit=None) if limit else None
    place = space(folder=home / ".cache/envbuild", kind="nfs4", total=total * GB, free=18 * GB)
    found = judge_space(
        "store", place, writable=True, quota=quota, home=home, better=Path("/work/ada/envbuild")
    )
    assert found.verdict == verdict
    if verdict == "differs":
        assert found.mend == "export ENVBUILD_STORE=/work/ada/envbuild"
        assert found.value.endswith("; a home of this size fills up after a few images")
    elsewhere = judge_space(
        "store", space(folder=Path("/work"), total=20 * GB), writable=True, home=home
    )
    assert elsewhere.verdict == "fine"


def test_a_tmpdir_on_the_network_is_named_with_a_local_disk() -> None:
    found = judge_space(
        "TMPDIR", space(kind="nfs4", free=10**15), writable=True, better=Path("/local/ada")
    )
    assert (found.verdict, found.mend) == ("differs", "export TMPDIR=/local/ada")


def test_better_folders_are_looked_for_where_sites_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_up(folder: Path) -> Space:
        kind = {"lustre": "lustre", "shm": "tmpfs"}.get(folder.name, "ext4")
        return space(folder=folder, kind=kind, free=GB if folder.name == "small" else 10**15)

    monkeypatch.setattr(places, "read_space", made_up)
    for name in ("lustre", "shm", "small", "local", "home/scratch"):
        (tmp_path / name).mkdir(parents=True)

    def first(name: str, **variables: Path) -> Path | None:
        told = {key: str(value) for key, value in variables.items()}
        settings = load_settings({"HOME": str(tmp_path / "home"), **told}, tmp_path)
        return next(places.candidates(name, settings, "nobody-of-this-name"), None)

    for slow in ("lustre", "shm", "small"):
        assert (
            first("TMPDIR", SLURM_TMPDIR=tmp_path / slow, PBS_JOBFS=tmp_path / "local")
            == tmp_path / "local"
        )
    assert first("store", SCRATCH=tmp_path / "lustre") == tmp_path / "lustre/envbuild"
    assert first("store", SCRATCH=tmp_path / "home/scratch", WORK=tmp_path / "absent") is None


def test_a_folder_that_is_not_ours() -> None:
    found = judge_space("TMPDIR", space(), writable=False)
    assert (found.verdict, found.value.rpartition("; ")[2]) == ("broken", "not writable")


class _Server(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(int(self.path.strip("/") or 200))
        self.end_headers()

    def do_GET(self) -> None:
        self.send_error(404)  # an index that lacks the page which uv asks for


@pytest.fixture
def server() -> Iterator[str]:
    with http_server(_Server) as url:
        yield url.replace("http://", "http://user:secret@")


def settings_of(folder: Path, **variables: str) -> Settings:
    return load_settings(
        {"PATH": str(folder / "bin"), "HOME": str(folder), "TMPDIR": str(folder), **variables},
        folder,
    )


@pytest.mark.parametrize(
    ("status", "verdict"), [(200, "fine"), (404, "fine"), (401, "broken"), (503, "broken")]
)
def test_servers(server: str, tmp_path: Path, status: int, verdict: str) -> None:
    found = network.reach("package index", f"{server}/{status}", settings_of(tmp_path))
    assert found.verdict == verdict
    assert "secret" not in found.value


@pytest.mark.parametrize(
    ("status", "verdict"), [(200, "fine"), (401, "fine"), (403, "differs"), (503, "differs")]
)
def test_registries_and_their_mirrors_are_asked(
    server: str, tmp_path: Path, status: int, verdict: str
) -> None:
    plain = server.replace("user:secret@", "")
    config = tmp_path / "config.toml"
    config.write_text(f'[registries."docker.io"]\nmirrors = ["{plain}/{status}"]\n')
    settings = settings_of(tmp_path, ENVBUILD_CONFIG=str(config))
    asked: list[str] = []

    def ask(url: str, _: Settings) -> int | str:
        asked.append(url)
        return status if url.startswith(plain) else "Name or service not known"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_ask", ask)
        mirror, hub = network.registries(settings)
    assert mirror.verdict == verdict
    assert hub.verdict == "differs"
    assert 'bootstrap = "debian:bookworm"' in hub.mend
    assert asked[0] == f"{plain}/v2/"


def test_squashfuse(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/apptainer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    answers = {
        "--version": (0, "apptainer version 1.4.5\n", ""),
        "buildcfg": (0, "APPTAINER_SUID_INSTALL=0\n", ""),
    }
    runner, settings = ScriptedRunner(answers), settings_of(tmp_path)
    lacking = programs.examine_squashfuse(context_for(settings, runner), USER)
    assert (lacking.verdict, lacking.mend.splitlines()[0]) == (
        "differs",
        "as root: install what Debian has in its package squashfuse",
    )
    assert programs.examine_squashfuse(context_for(settings, runner), ROOT).value.startswith(
        "not needed"
    )
    setuid = ScriptedRunner({**answers, "buildcfg": (0, "APPTAINER_SUID_INSTALL=1\n", "")})
    assert programs.examine_squashfuse(context_for(settings, setuid), USER).value.startswith(
        "not needed"
    )
    bundled = tmp_path / "libexec/apptainer/bin/squashfuse_ll"
    bundled.parent.mkdir(parents=True)
    bundled.write_text("")
    bundled.chmod(0o755)
    assert programs.examine_squashfuse(context_for(settings, runner), USER) == Finding(
        name="squashfuse", verdict="fine", value=str(bundled)
    )


def test_an_engine_is_asked_for(tmp_path: Path) -> None:
    assert programs.examine_engine(
        context_for(settings_of(tmp_path), ScriptedRunner({}))
    ).value.startswith("neither docker nor podman")
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    for code, verdict in ((0, "fine"), (1, "differs")):
        runner = ScriptedRunner(
            {"docker info": (code, "20.10\n", "Cannot connect to the Docker daemon\n")}
        )
        assert (
            programs.examine_engine(context_for(settings_of(tmp_path), runner)).verdict == verdict
        )


def test_capabilities_have_names() -> None:
    assert [rights.capability(bit) for bit in (0, 24, 40, 41)] == [
        "cap_chown",
        "cap_sys_resource",
        "cap_checkpoint_restore",
        "bit 41",
    ]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    found = network.reach("Debian mirror", "http://127.0.0.1:1/debian", settings_of(tmp_path))
    assert found.verdict == "broken"
    assert (
        found.value == "http://127.0.0.1:1/debian cannot be reached: [Errno 111] Connection refused"
    )


@pytest.mark.parametrize(
    ("code", "out", "verdict", "value"),
    [
        (
            0,
            "GPU 0: Tesla T4 (UUID: GPU-1)\nGPU 1: Tesla T4 (UUID: GPU-2)\n",
            "fine",
            "GPU 0: Tesla T4; GPU 1: Tesla T4",
        ),
        (
            6,
            "No devices were found\n",
            "differs",
            "NVIDIA driver 535.1, but no GPU answers: No devices were found",
        ),
    ],
    ids=["two", "none"],
)
def test_gpus(tmp_path: Path, code: int, out: str, verdict: str, value: str) -> None:
    host = dataclasses.replace(USER, driver="535.1")
    found = programs.examine_gpu(
        context_for(settings_of(tmp_path), ScriptedRunner({"nvidia-smi -L": (code, out, "")})), host
    )
    assert found.verdict == verdict
    assert found.value.endswith(value)


def run(settings: Settings, *arguments: str) -> tuple[int, str]:
    @click.group()
    @click.pass_context
    def group(ctx: click.Context) -> None:
        ctx.obj = quiet_context(settings)

    group.add_command(doctor.command, "doctor")
    result = CliRunner().invoke(group, ["doctor", *arguments], standalone_mode=False)
    assert result.exception is None
    return int(result.return_value), result.output


def test_a_machine_that_lacks_everything(tmp_path: Path, server: str) -> None:
    empty = settings_of(
        tmp_path, ENVBUILD_INDEX=f"{server}/200", ENVBUILD_DEBIAN_MIRROR="http://127.0.0.1:1/debian"
    )
    code, text = run(empty)
    assert code == 7
    lines = {line[19:37].strip(): line for line in text.splitlines() if not line.startswith(" ")}
    broken = {name for name, line in lines.items() if line.startswith("broken")}
    assert {
        "container runtime",
        "newuidmap",
        "apt-get",
        "mmdebstrap",
        "Debian mirror",
    } <= broken
    assert {"Python", "uv", "package index", "mksquashfs", "unsquashfs"}.isdisjoint(broken)
    assert "mksquashfs was not found on PATH: no --mode fakeroot and docker;" in text
    assert "→ as root: install what Debian has in its package squashfs-tools" in text


def test_json_says_the_same(tmp_path: Path, server: str) -> None:
    variables = {"ENVBUILD_INDEX": f"{server}/200", "ENVBUILD_DEBIAN_MIRROR": f"{server}/200"}
    code, text = run(settings_of(tmp_path, **variables), "--json")
    told = json.loads(text)
    assert (code, told["ok"]) == (7, False)
    runtime = next(
        finding for finding in told["findings"] if finding["name"] == "container runtime"
    )
    assert runtime["verdict"] == "broken"
    assert runtime["value"] == "neither apptainer nor singularity was found on PATH"


def test_a_broken_setting_is_a_finding_not_the_end(tmp_path: Path) -> None:
    variables = {"ENVBUILD_INDEX": "not a url", "ENVBUILD_DEBIAN_MIRROR": "neither"}
    code, text = run(settings_of(tmp_path, **variables))
    assert code == 7
    assert (
        sum(
            line.startswith("broken") and ("index" in line or "mirror" in line)
            for line in text.splitlines()
        )
        == 2
    )


@pytest.mark.live
@needs("apptainer", "mksquashfs", "unsquashfs", "mmdebstrap", "newuidmap")
def test_this_machine(user_settings: Settings) -> None:
    findings = examine_machine(quiet_context(user_settings))
    assert [finding for finding in findings if finding.verdict == "broken"] == []


def test_a_program_that_is_no_runtime_takes_one_line(tmp_path: Path) -> None:
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\nprintf 'other program 1.0\\nLicense: free\\n'\n")
    program.chmod(0o755)
    found = examine_machine(quiet_context(settings_of(tmp_path, ENVBUILD_RUNTIME=str(program))))
    values = {finding.name: (finding.verdict, finding.value) for finding in found}
    assert values["container runtime"][0] == "broken"
    assert values["container runtime"][1].endswith("--version said: other program 1.0")
    assert values["squashfuse"][0] == "differs"


def test_a_current_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run_cli(["doctor"]) == 2
    assert "the current folder was removed" in capsys.readouterr().err


def test_no_verb_imports_the_command_line_of_httpx() -> None:
    lines = (
        "import importlib, sys\nfrom envbuild.cli import VERBS, module_of\n"
        "for verb in VERBS:\n    importlib.import_module(module_of(verb))\n"
        "import httpx\nprint(sys.modules['httpx._main'], 'pygments' in sys.modules)\n"
    )
    done = LocalRunner()(Command(argv=(sys.executable, "-c", lines), timeout=60))
    assert done.stdout.split() == ["None", "False"]
