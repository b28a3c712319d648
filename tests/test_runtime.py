"""Finding the container runtime, the commands it gets, and what its failures mean."""

from __future__ import annotations

import csv
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.data.tables import load_failures
from envbuild.errors import EnvbuildError, HostError, SpaceError, ToolFailedError, UsageError
from envbuild.failures import explain_failure
from envbuild.host import Host
from envbuild.run import Command, LocalRunner, Result
from envbuild.runtime import BuildOptions, ExecOptions, Runtime, bind_flags, overlay_flags
from envbuild.runtime_search import find_runtime, parse_version
from envbuild.settings import load_settings
from tests.support import CRIPPLED, ROOT, USER, ScriptedRunner, needs, settings_with
from tests.tiny_image import AS_NOBODY, as_nobody, definition, open_folder, runtime, tiny_image

APPTAINER = {"--version": (0, "apptainer version 1.4.5-1.el9\n", "")}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def plain(**changes: object) -> Runtime:
    found = Runtime(
        program=Path("/usr/bin/apptainer"),
        name="apptainer",
        version=(1, 4, 5),
        environment={"PATH": "/bin"},
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def test_apptainer_goes_before_singularity(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "singularity", "apptainer")
    found = find_runtime(settings, ScriptedRunner(APPTAINER), USER)
    assert (found.program, found.name, found.version_text) == (
        tmp_path / "bin/apptainer",
        "apptainer",
        "1.4.5",
    )


def test_singularity_where_there_is_no_apptainer(tmp_path: Path) -> None:
    runner = ScriptedRunner({"--version": (0, "singularity-ce version 4.1.0\n", "")})
    assert find_runtime(settings_with(tmp_path, "singularity"), runner, USER).name == "singularity"


def test_a_link_called_singularity_is_what_it_says_it_is(tmp_path: Path) -> None:
    found = find_runtime(settings_with(tmp_path, "singularity"), ScriptedRunner(APPTAINER), USER)
    assert found.name == "apptainer"


def test_the_configured_program_goes_before_both(tmp_path: Path) -> None:
    settings = settings_with(
        tmp_path, "apptainer", "mine", ENVBUILD_RUNTIME=str(tmp_path / "bin/mine")
    )
    assert find_runtime(settings, ScriptedRunner(APPTAINER), USER).program == tmp_path / "bin/mine"


def test_no_runtime(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        find_runtime(settings_with(tmp_path), ScriptedRunner({}), USER)
    assert str(caught.value) == "neither apptainer nor singularity was found on PATH"
    assert "module load apptainer" in str(caught.value.hint)


def test_configured_program_that_is_missing(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "apptainer", ENVBUILD_RUNTIME="/opt/gone/apptainer")
    with pytest.raises(HostError) as caught:
        find_runtime(settings, ScriptedRunner(APPTAINER), USER)
    assert (
        str(caught.value)
        == "ENVBUILD_RUNTIME: /opt/gone/apptainer: the configured container runtime was not found"
    )


@pytest.mark.parametrize(
    ("said", "name", "version"),
    [
        ("apptainer version 1.4.5\n", "apptainer", (1, 4, 5)),
        ("apptainer version 1.3.0-rc.2+12-gabc\n", "apptainer", (1, 3, 0)),
        ("singularity-ce version 4.1\n", "singularity", (4, 1)),
        ("singularity-pro version 3.11-4.el8\n", "singularity", (3, 11)),
        ("singularity version 3.8.7-1.el8\n", "singularity", (3, 8, 7)),
    ],
)
def test_versions(said: str, name: str, version: tuple[int, ...]) -> None:
    assert parse_version(said, where="x") == (name, version)


def test_something_else_that_is_called_singularity() -> None:
    """Debian has a game of this name, which opens a window or fails."""
    with pytest.raises(HostError) as caught:
        parse_version(
            "", where="/usr/games/singularity", failed=True, stderr="No module named pygame\n"
        )
    assert str(caught.value) == (
        "/usr/games/singularity: this is not a working Apptainer or Singularity; --version said: No module named pygame"
    )


def test_too_old(tmp_path: Path) -> None:
    runner = ScriptedRunner({"--version": (0, "singularity version 3.5.2\n", "")})
    with pytest.raises(HostError) as caught:
        find_runtime(settings_with(tmp_path, "singularity"), runner, USER)
    assert (
        str(caught.value)
        == f"{tmp_path}/bin/singularity: singularity 3.5.2 is too old: 3.10 or newer is needed"
    )


@pytest.mark.parametrize(
    ("host", "built", "flags"),
    [
        (USER, "", ()),
        (ROOT, "", ()),
        (CRIPPLED, "", ("--userns",)),
        (dataclasses.replace(USER, fuse=False), "APPTAINER_SUID_INSTALL=0\n", ("--unsquash",)),
        (dataclasses.replace(USER, fuse=False), "APPTAINER_SUID_INSTALL=1\n", ()),
        (dataclasses.replace(ROOT, fuse=False), "", ()),
    ],
    ids=[
        "user",
        "root",
        "root without a capability",
        "user without fuse",
        "setuid without fuse",
        "root without fuse",
    ],
)
def test_flags_of_a_host(tmp_path: Path, host: Host, built: str, flags: tuple[str, ...]) -> None:
    runner = ScriptedRunner({**APPTAINER, "buildcfg": (0, built, "")})
    assert find_runtime(settings_with(tmp_path, "apptainer"), runner, host).flags == flags


def test_variables_that_would_change_the_result_are_dropped(tmp_path: Path) -> None:
    meddling = {
        f"{prefix}_{name}": "x"
        for prefix in ("APPTAINER", "SINGULARITY")
        for name in ("BIND", "BINDPATH", "NV", "HOME", "WRITABLE_TMPFS", "FAKEROOT", "CONTAINER")
    }
    meddling |= {"APPTAINERENV_LD_PRELOAD": "x", "SINGULARITYENV_TMPDIR": "x"}
    kept = {
        "APPTAINER_CACHEDIR": "/scratch/cache",
        "SINGULARITY_TMPDIR": "/scratch/tmp",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    found = find_runtime(
        settings_with(tmp_path, "apptainer", **meddling, **kept), ScriptedRunner(APPTAINER), USER
    )
    assert found.environment == {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **kept}


def test_the_sealed_command() -> None:
    command = plain(flags=("--userns",)).exec_command(
        Path("/img/x.sif"),
        ("python", "-c", "print('a b')"),
        ExecOptions(
            binds=[(Path("/data"), "/mnt", False), (Path("/work"), "/work", True)],
            env={"A": "1,2\n3"},
            gpu=True,
            timeout=5.0,
            cwd="/work",
        ),
    )
    assert command == Command(
        argv=(
            *(
                "/usr/bin/apptainer",
                "--quiet",
                "exec",
                "--userns",
                "--cleanenv",
                "--containall",
                "--no-home",
            ),
            *(
                "--home",
                "/tmp",
                "--pwd",
                "/work",
                "--nv",
                "--bind",
                "/data:/mnt:ro",
                "--bind",
                "/work:/work:rw",
            ),
            *("/img/x.sif", "python", "-c", "print('a b')"),
        ),
        env={"PATH": "/bin", "APPTAINERENV_A": "1,2\n3", "APPTAINER_NO_EVAL": "1"},
        timeout=5.0,
        foreign=True,
    )


def test_the_open_command_has_no_seal() -> None:
    command = plain().exec_command(Path("x.sif"), ("id",), ExecOptions(sealed=False))
    assert command.argv == (
        *(
            "/usr/bin/apptainer",
            "--quiet",
            "exec",
            "--pid",
            "--ipc",
            "--no-mount",
            "tmp",
            "x.sif",
            "id",
        ),
    )


@pytest.mark.parametrize("path", ["/a b/l.sqfs", "/a,b/l.sqfs", '/"a" b/l.sqfs', "/a'$(b)/l"])
def test_the_runtime_reads_the_path_of_a_layer_as_one(path: str) -> None:
    option, value = overlay_flags(Path(path))
    assert (option, *csv.reader([value])) == ("--overlay", [f"{path}:ro"])


@pytest.mark.parametrize("path", ["/a:b/l.sqfs", "/a\nb/l.sqfs"])
def test_a_layer_whose_path_would_be_cut_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="no colon or line end"):
        overlay_flags(Path(path))


def test_without_a_network_no_proxy_of_the_caller_is_handed_in() -> None:
    mine = plain(environment={"PATH": "/bin", "ALL_PROXY": "socks5://p:1", "no_proxy": "x"})
    alone = mine.exec_command(Path("x.sif"), ("id",), ExecOptions(network=False)).env or {}
    connected = mine.exec_command(Path("x.sif"), ("id",)).env or {}
    assert not {"ALL_PROXY", "no_proxy"} & alone.keys()
    as_root = mine.root_command(Path("x.sif"), ("id",), overlay=None).env or {}
    assert not {"ALL_PROXY", "no_proxy"} & as_root.keys()
    assert alone["PATH"] == "/bin"
    assert {"ALL_PROXY", "no_proxy"} <= connected.keys()


def test_nothing_of_the_callers_own_reaches_the_runtime() -> None:
    kept = {"PATH": "/bin", "HOME": "/h", "APPTAINER_CACHEDIR": "/c"}
    secret = {
        "WANDB_API_KEY": "s",
        "SSH_AUTH_SOCK": "/s",
        "APPTAINER_DOCKER_PASSWORD": "s",
        "PATHS": "x",
    }
    mine = plain(environment={**kept, **secret})
    commands = (
        mine.exec_command(Path("x.sif"), ("id",)),
        mine.exec_command(Path("x.sif"), ("id",), ExecOptions(sealed=False)),
        mine.root_command(Path("x.sif"), ("id",), overlay=None),
        mine.build_command(Path("x"), Path("x.def"), Path("/t")),
    )
    for command in commands:
        assert command.env is not None
        assert kept.items() <= command.env.items()
        assert not secret.keys() & command.env.keys()


@pytest.mark.parametrize("offline", [True, False])
def test_a_run_without_a_network_says_so_where_it_can(offline: bool) -> None:
    mine = plain(offline=offline)
    for command in (
        mine.exec_command(Path("x.sif"), ("id",), ExecOptions(network=False)),
        mine.root_command(Path("x.sif"), ("id",), overlay=None),
    ):
        assert ("--net --network none" in str(command)) is offline
    assert "--net" not in mine.exec_command(Path("x.sif"), ("id",)).argv


def test_singularity_gets_its_own_prefix() -> None:
    command = plain(name="singularity").exec_command(
        Path("x.sif"), ("id",), ExecOptions(env={"A": "b"})
    )
    assert command.env == {"PATH": "/bin", "SINGULARITYENV_A": "b", "SINGULARITY_NO_EVAL": "1"}


def test_the_build_command() -> None:
    command = plain().build_command(
        Path("/out/x.sif"),
        Path("/out/x.def"),
        Path("/scratch"),
        BuildOptions(
            binds=[(Path("/a"), "/mnt", False)],
            packer_arguments="-comp zstd",
            env={"SOURCE_DATE_EPOCH": "0"},
            log=Path("/out/log"),
        ),
    )
    assert command == Command(
        argv=(
            *(
                "/usr/bin/apptainer",
                "build",
                "--force",
                "--fakeroot",
                "--mksquashfs-args",
                "-comp zstd",
            ),
            *("--bind", "/a:/mnt:ro", "/out/x.sif", "/out/x.def"),
        ),
        env={
            "PATH": "/bin",
            "APPTAINER_NO_EVAL": "1",
            "TMPDIR": "/scratch",
            "APPTAINER_TMPDIR": "/scratch",
            "APPTAINER_NO_MOUNT": "tmp",
            "SOURCE_DATE_EPOCH": "0",
        },
        log=Path("/out/log"),
        foreign=True,
    )


def test_the_sandbox_build_command() -> None:
    command = plain().build_command(
        Path("x"), Path("x.def"), Path("/t"), BuildOptions(fakeroot=False, sandbox=True)
    )
    assert command.argv == ("/usr/bin/apptainer", "build", "--force", "--sandbox", "x", "x.def")


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ((Path("/a b"), "/mnt", False), ("--bind", "/a b:/mnt:ro")),
        ((Path("/a b"), "/mnt", True), ("--bind", "/a b:/mnt:rw")),
        (
            (Path('/a,b: "c"'), "/d:e", False),
            ("--mount", '"type=bind","source=/a,b: ""c""","destination=/d:e","ro"'),
        ),
        (
            (Path("/a\\b"), "/mnt", True),
            ("--mount", '"type=bind","source=/a\\b","destination=/mnt"'),
        ),
    ],
    ids=["read only", "writable", "odd names", "backslash"],
)
def test_binds(bind: tuple[Path, str, bool], expected: tuple[str, str]) -> None:
    assert bind_flags(bind) == expected


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ((Path("/a"), "/b\nc", False), "'/b\\nc': a bound path cannot contain a newline"),
        ((Path("/a"), "mnt", False), "mnt: the path in the container must be absolute"),
    ],
    ids=["newline", "relative target"],
)
def test_binds_that_cannot_be_expressed(bind: tuple[Path, str, bool], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind_flags(bind)
    assert str(caught.value) == message


paths = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), min_size=1)


@given(source=paths, target=paths)
def test_a_bind_reads_back_whatever_the_paths_hold(source: str, target: str) -> None:
    flag, text = bind_flags((Path("/", source), f"/{target}", False))
    if flag == "--bind":
        assert text.split(":") == [str(Path("/", source)), f"/{target}", "ro"]
    else:
        row = next(csv.reader([text]))
        assert row == ["type=bind", f"source={Path('/', source)}", f"destination=/{target}", "ro"]


FAILURES: Mapping[str, tuple[str, type[EnvbuildError], str]] = {
    "another Python's home": (
        "Python path configuration:\n  PYTHONHOME = '/opt/conda'\n  PYTHONPATH = (not set)\n",
        UsageError,
        "PYTHONHOME names /opt/conda, where this Python has nothing to start from",
    ),
    "capabilities": (
        "\x1b[91mERROR  : Requesting capability set 0x000001ffffffffff while permitted capability set is 0x0\n\x1b[0m",
        ToolFailedError,
        "root here lacks capabilities that the container runtime asks for",
    ),
    "namespaces": (
        (
            "\x1b[91mERROR  : Failed to create user namespace: maximum number of user namespaces exceeded, check "
            "/proc/sys/user/max_user_namespaces\n\x1b[0m"
        ),
        ToolFailedError,
        "user namespaces are switched off or used up on this machine",
    ),
    "build without namespaces": (
        (
            "INFO:    Could not start root-mapped namespace\nFATAL:   Building from a definition file unprivileged "
            "requires either a suid installation or unprivileged user namespaces\n"
        ),
        ToolFailedError,
        "images cannot be built here: no user namespaces and no setuid installation",
    ),
    "fuse": (
        (
            "FATAL:   container creation failed: image driver mount failure: image driver squashfuse_ll instance exited "
            "with error: squashfuse_ll exited: fuse: failed to open /dev/fuse: Permission denied\n"
        ),
        ToolFailedError,
        "/dev/fuse cannot be used, so the image cannot be mounted",
    ),
    "space": (
        (
            "FATAL:   While performing build: packer failed to pack: while unpacking local image: copy Failed: write "
            "/t/rootfs/bin/sh: no space left on device\n"
        ),
        SpaceError,
        "a file system is full",
    ),
    "space, as C programs say it": (
        "mksquashfs: write: No space left on device\n",
        SpaceError,
        "a file system is full",
    ),
    "bind target": (
        (
            "FATAL:   container creation failed: mount hook function failure: mount /tmp->/nosuch error: while mounting "
            "/tmp: destination /nosuch doesn't exist in container\n"
        ),
        ToolFailedError,
        "the image has no /nosuch to bind to",
    ),
    "bind source": (
        (
            "FATAL:   container creation failed: mount hook function failure: mount /a b->/mnt error: while mounting "
            "/a b: mount source /a b doesn't exist\n"
        ),
        UsageError,
        "/a b is to be bound but does not exist",
    ),
    "subuid": (
        "FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for ada\n",
        ToolFailedError,
        "the user's lines in /etc/subuid and /etc/subgid, or the programs that use them, do not work",
    ),
    "faked": (
        "fakeroot: error while starting the `faked' daemon.\n",
        ToolFailedError,
        "the host's fakeroot does not run in this image (another C library)",
    ),
    "no shell": (
        (
            "FATAL:   stat /bin/sh: no such file or directory\n"
            "FATAL:   While performing build: while running engine: while running %post section: exit status 255\n"
        ),
        ToolFailedError,
        "the image has no shell (/bin/sh), and a build from a definition runs in one",
    ),
    "no image": (
        (
            "FATAL:   While checking container encryption: could not open image /x.sif: failed to retrieve path for "
            "/x.sif: lstat /x.sif: no such file or directory\n"
        ),
        UsageError,
        "there is no image /x.sif",
    ),
    "not an image": (
        "FATAL:   While checking container encryption: could not open image /x.sif: image format not recognized\n",
        ToolFailedError,
        "the image is damaged, or no image at all",
    ),
    "truncated image": (
        (
            "FATAL:   container creation failed: image driver mount failure: image driver squashfuse_ll instance exited "
            "with error: squashfuse_ll exited: Something went wrong trying to read the squashfs image.\n"
        ),
        ToolFailedError,
        "the image is damaged, or no image at all",
    ),
    "no buildkit": (
        (
            "ERROR: BuildKit is enabled but the buildx component is missing or broken.\n"
            "       Install the buildx component to build images with BuildKit:\n"
        ),
        ToolFailedError,
        "this docker cannot build: it has no BuildKit",
    ),
    "no engine": (
        "ERROR: Cannot connect to the Docker daemon at unix:///absent.sock. Is the docker daemon running?\n",
        ToolFailedError,
        "no Docker engine answers",
    ),
    "no engine, told by BuildKit": (
        "failed to dial gRPC: cannot connect to the Docker daemon. Is 'docker daemon' running on this host?\n",
        ToolFailedError,
        "no Docker engine answers",
    ),
    "zstd for a runtime without it": (
        (
            "FATAL:   While checking image: could not open image /x.sif: while checking system partition header: error "
            "while checking squashfs header: corrupted image: unknown compression algorithm value 6\n"
        ),
        ToolFailedError,
        "this container runtime cannot open the image, which is packed with zstd",
    ),
    "too little memory": (
        "fatal error: failed to reserve page summary memory\n\nruntime stack:\n",
        ToolFailedError,
        "the container runtime gets too little memory, or too few processes, to start",
    ),
    "another primary group": (
        (
            "newuidmap: Target process 3332 is owned by a different user: uid:4242 pw_uid:4242 "
            "st_uid:4242, gid:4343 pw_gid:4242 st_gid:4343\n"
        ),
        ToolFailedError,
        "this shell has another primary group than the login, so newuidmap gives it no ids",
    ),
    "missing command": (
        'FATAL:   "nosuchcmd": executable file not found in $PATH\n',
        UsageError,
        "the image has no program nosuchcmd",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_known_failures_are_explained(name: str) -> None:
    text, error, what = FAILURES[name]
    told = explain_failure(
        Result(argv=("apptainer",), code=255, stdout="", stderr=text, seconds=0.1)
    )
    assert type(told) is error
    assert told.what == what
    assert told.hint


def test_every_known_failure_has_an_example() -> None:
    explained = {what for _, _, what in FAILURES.values()}
    assert len(explained) == len(load_failures().runtime)


def test_an_unknown_failure_keeps_its_last_lines() -> None:
    result = Result(
        argv=("/usr/bin/apptainer", "exec"),
        code=3,
        stdout="",
        stderr="INFO:    Running post scriptlet\n+ set -eu\nFATAL: something new\n",
        seconds=0.1,
    )
    assert str(explain_failure(result)) == "apptainer failed with exit code 3\nFATAL: something new"


live = [pytest.mark.live, needs("apptainer", "ldd", "setpriv", "mksquashfs")]


class TestLive:
    pytestmark = live

    def run(self, *argv: str, **options: object) -> str:
        command = runtime().exec_command(tiny_image(), argv, ExecOptions(timeout=60, **options))  # type: ignore[arg-type]
        return LocalRunner()(command).stdout

    @pytest.mark.parametrize(
        "value", ["a,b=c", "two\nlines", "$HOME `id` \\ \" '", " ", "äöü"], ids=repr
    )
    def test_values_of_the_environment_arrive_as_they_are(self, value: str) -> None:
        assert self.run("sh", "-c", 'printf "<%s>" "$VALUE"', env={"VALUE": value}) == f"<{value}>"

    def test_nothing_of_the_caller_is_seen(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("SECRET_OF_MINE", "x")
        monkeypatch.setenv("APPTAINER_BIND", f"{tmp_path}:/mnt")
        monkeypatch.setenv("APPTAINERENV_LEAK", "x")
        (tmp_path / "file").touch()
        said = self.run("sh", "-c", "env; ls -a /mnt ~ /home")
        assert "FROM_IMAGE=yes" in said
        assert "SECRET_OF_MINE" not in said
        assert "LEAK" not in said
        assert "file" not in said

    def test_home_and_working_folder_are_an_empty_writable_tmp(self) -> None:
        assert (
            self.run("sh", "-c", "ls -A ~; pwd; echo $HOME; touch ~/x && ls ~") == "/tmp\n/tmp\nx\n"
        )

    def test_binds_with_odd_names(self, tmp_path: Path) -> None:
        source = tmp_path / 'a,b: "c"'
        source.mkdir()
        (source / "inside").touch()
        assert self.run("ls", "/new/place", binds=[(source, "/new/place", False)]) == "inside\n"
        said = self.run(
            "sh", "-c", "touch /mnt/x 2>&1 || echo refused", binds=[(source, "/mnt", False)]
        )
        assert said.endswith("refused\n")
        self.run("touch", "/mnt/written", binds=[(source, "/mnt", True)])
        assert (source / "written").exists()

    def test_standard_input_arrives(self) -> None:
        assert self.run("cat", stdin="hello") == "hello"

    def test_build_sees_its_variables_and_its_binds(self, tmp_path: Path) -> None:
        (tmp_path / "artifact").write_text("from outside")
        script = '\n%setup\n    echo "$GIVEN" >"$APPTAINER_ROOTFS/opt/given"\n%post\n    cat /mnt/artifact >/opt/copied\n'
        target = open_folder() / "built.sif"
        log = tmp_path / "log"
        command = runtime().build_command(
            target,
            definition(script, "built.def"),
            open_folder(),
            BuildOptions(binds=[(tmp_path, "/mnt", False)], env={"GIVEN": "a value"}, log=log),
        )
        LocalRunner()(command)
        said = LocalRunner()(
            runtime().exec_command(target, ("cat", "/opt/given", "/opt/copied"))
        ).stdout
        assert said == "a value\nfrom outside"
        assert "Build complete" in log.read_text()

    def test_a_build_cannot_empty_the_tmp_of_this_machine(self) -> None:
        """Recipes are full of ``rm -rf /tmp/*``, and Apptainer binds the host's /tmp unless told otherwise."""
        with (
            tempfile.NamedTemporaryFile(dir="/tmp") as mine,
            tempfile.NamedTemporaryFile(dir="/var/tmp") as more,
        ):
            script = f"\n%post\n    for file in {mine.name} {more.name}; do [ ! -e $file ] || exit 9; done\n"
            target = open_folder() / "alone.sif"
            command = runtime().build_command(
                target, definition(script, "alone.def"), open_folder()
            )
            assert LocalRunner()(command, check=False).code == 0

    def test_a_full_disk_in_a_build_is_told(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system")
        small = open_folder() / "small"
        small.mkdir()
        command = runtime().build_command(open_folder() / "no.sif", definition(""), small)
        script = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
        argv = ("unshare", "-m", "sh", "-c", script, str(small), *command.argv)
        result = LocalRunner()(dataclasses.replace(command, argv=argv), check=False)
        assert type(explain_failure(result)) is SpaceError

    @root_only
    def test_an_ordinary_user(self) -> None:
        ordinary = dataclasses.replace(runtime(), flags=(), cage=None)
        result = as_nobody(ordinary.exec_command(tiny_image(), ("id", "-u")), home=open_folder())
        assert (result.stdout, result.code) == ("65534\n", 0), result.stderr

    @root_only
    def test_an_ordinary_user_without_fuse(self, tmp_path: Path) -> None:
        """A private mount namespace in which /dev/fuse belongs to root alone, as on some clusters."""
        hidden = (
            'dir=$(mktemp -d) && mount -t tmpfs -o mode=755 tmpfs "$dir" && mknod -m 600 "$dir/fuse" c 10 229 && '
            'mount --bind "$dir/fuse" /dev/fuse && exec "$@"'
        )
        home = open_folder() / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o777)
        answers = {}
        for name, flags in (("plain", ()), ("as found", self._flags_without_fuse())):
            command = dataclasses.replace(runtime(), flags=flags, cage=None).exec_command(
                tiny_image(), ("id", "-u")
            )
            argv = ("unshare", "-m", "sh", "-c", hidden, "sh", *AS_NOBODY, *command.argv)
            env = {**(command.env or {}), "HOME": str(home), "TMPDIR": str(home)}
            answers[name] = LocalRunner()(
                dataclasses.replace(command, argv=argv, env=env, cwd=home), check=False
            )
        assert (
            explain_failure(answers["plain"]).what
            == "/dev/fuse cannot be used, so the image cannot be mounted"
        )
        assert answers["as found"].stdout == "65534\n", answers["as found"].stderr

    def _flags_without_fuse(self) -> tuple[str, ...]:
        return find_runtime(
            load_settings(), LocalRunner(), dataclasses.replace(USER, fuse=False)
        ).flags

    @root_only
    def test_an_ordinary_user_without_namespaces(self) -> None:
        """The limit is set to 0 for this process tree only, inside a namespace of its own."""
        script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all -- "$@"'
        command = dataclasses.replace(runtime(), flags=(), cage=None).exec_command(
            tiny_image(), ("id",)
        )
        limited = (
            "unshare",
            "-U",
            "--map-current-user",
            "--keep-caps",
            "sh",
            "-c",
            script,
            "sh",
            *command.argv,
        )
        result = as_nobody(dataclasses.replace(command, argv=limited), home=open_folder())
        assert (
            explain_failure(result).what
            == "user namespaces are switched off or used up on this machine"
        )

    def test_a_damaged_image(self, tmp_path: Path) -> None:
        damaged = tmp_path / "damaged.sif"
        damaged.write_bytes(tiny_image().read_bytes()[:100_000])
        result = LocalRunner()(runtime().exec_command(damaged, ("id",)), check=False)
        assert explain_failure(result).what == "the image is damaged, or no image at all"


def test_a_runtime_that_lacks_memory_is_told_so() -> None:
    said = (
        "fatal error: failed to reserve page summary memory\n\nruntime stack:\n"  # apptainer 1.4.5
    )
    with pytest.raises(HostError, match="gets too little memory") as told:
        parse_version("", where="/usr/bin/apptainer", failed=True, stderr=said)
    assert "ulimit -v" in (told.value.hint or "")
