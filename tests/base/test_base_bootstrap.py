"""A root from locked packages: the command, the folder it reads, the same bytes, and what can go wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from envbuild.base.debian.apt import resolve_bootstrap
from envbuild.base.debian.bootstrap import (
    bootstrap_facts,
    fetch_packages,
    make_root,
    write_repository,
)
from envbuild.base.debian.mmdebstrap import mmdebstrap_arguments
from envbuild.base.debian.offline_facts import machine_of, read_packages
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.facts import cached_facts
from envbuild.base.model import BaseFacts, DebianPackage
from envbuild.errors import EnvbuildError, HostError, IntegrityError, SpaceError, ToolFailedError
from envbuild.host import read_host
from envbuild.progress import SilentStage
from envbuild.run import Command, LocalRunner, Result, failure
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.base.debian_mirror import Mirror
from tests.support import context_for, needs, quiet_context, settings_with

Golden = Callable[[str, str], None]
FOUND = 'ENVBUILD-FACTS {"python_path":"/usr/bin/python3","python":"3.11.2","abi":"cp311","prefix":"/usr","machine":"x86_64","glibc":"2.36","site":[],"externally_managed":true,"release":{"ID":"debian","VERSION_ID":"12"},"created":1,"dists":[],"apt":[["tar","1.0-1","amd64"]],"libraries":[],"texts":{},"environment":{},"constraints":null}\n'


def package(name: str, *, group: str = "base", content: bytes = b"") -> DebianPackage:
    return DebianPackage(
        name=name,
        version="1.0-1",
        architecture="amd64",
        group=group,  # type: ignore[arg-type]
        path=f"pool/main/{name[0]}/{name}/{name}_1.0-1_amd64.deb",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def keep(store: Store, content: bytes) -> None:
    path = store.artifact(hashlib.sha256(content).hexdigest())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_the_command_line(golden: Golden) -> None:
    packages = [package("tar"), package("python3"), package("graphviz", group="system")]
    argv = mmdebstrap_arguments(
        packages,
        repository="/a b/packages",
        target="/t/root.tar",
        mode="unshare",
        hooks=('echo "$1"',),
    )
    golden("base/mmdebstrap.txt", "\n".join(shlex.quote(word) for word in argv) + "\n")
    assert "--format=directory" in mmdebstrap_arguments(
        packages, repository="/r", target="/root", mode="root"
    )


def test_the_command_line_over_another_root(golden: Golden) -> None:
    argv = mmdebstrap_arguments(
        [package("graphviz")],
        repository="/a%20b/p",
        target="/t/root.tar",
        mode="root",
        over=Path("/st ore/base.tar"),
    )
    golden("base/mmdebstrap_over.txt", "\n".join(shlex.quote(word) for word in argv) + "\n")


def test_a_root_over_another_installs_what_that_lacks_and_has_a_digest_of_its_own() -> None:
    both = (package("tar"), package("hello", content=b"h"))
    whole = dataclasses.replace(BOOTSTRAP, packages=both)
    base = dataclasses.replace(BOOTSTRAP, packages=both[:1])
    over = dataclasses.replace(whole, over=base)
    assert [p.name for p in over.added] == ["hello"]
    assert whole.added == both
    assert len({whole.digest, base.digest, over.digest}) == 3


class FakeMmdebstrap:
    """Runs everything but mmdebstrap, which it stands in for: it writes a tar and what the probe would say."""

    def __init__(self, *, facts: str = FOUND, fails: str | None = None) -> None:
        self.facts, self.fails = facts, fails
        self.calls: list[Command] = []

    def __call__(self, command: Command, *, check: bool = True) -> Result:
        self.calls.append(command)
        code, out = 0, ""
        if "--version" in command.argv:
            out = "mmdebstrap 1.3.5\n"
        elif command.argv[0] == "dpkg-deb":
            out = "Package: tar\nVersion: 1.0-1\n"
        elif command.argv[0] == "sh":
            folder = Path(command.argv[3])
            (folder / "root.tar").write_bytes(b"tar")
            if self.fails is not None:
                raise failure(
                    Result(argv=command.argv, code=25, stdout="", stderr=self.fails, seconds=0)
                )
            (folder / "facts").write_text(self.facts)
        return Result(argv=command.argv, code=code, stdout=out, stderr="", seconds=0)


@pytest.fixture
def here(user_settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmdebstrap").write_text("")
    (programs / "mmdebstrap").chmod(0o755)
    environment = {
        "PATH": str(programs),
        "PIP_INDEX_URL": "x",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "Asia/Tokyo",
    }
    # the folders of pytest are closed to other users, with whose ids a root is made
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield dataclasses.replace(user_settings, environment=environment, tmpdir=Path(folder))


BOOTSTRAP = Bootstrap(
    suite="bookworm", created="2026-07-11", packages=(package("tar", content=b"a deb"),)
)


def make(settings: Settings, runner: FakeMmdebstrap, *, kept: bool = True) -> tuple[Path, Store]:
    store = Store(settings.store)
    if kept:
        keep(store, b"a deb")
    return make_root(BOOTSTRAP, context_for(settings, runner)), store


def test_the_root_and_its_facts_are_kept_once(here: Settings) -> None:
    runner = FakeMmdebstrap()
    root, store = make(here, runner)
    assert root == store.base(BOOTSTRAP.digest)
    assert root.read_bytes() == b"tar"
    facts = cached_facts(BOOTSTRAP.digest, store)
    assert facts is not None
    assert (facts.image, facts.created, facts.size) == ("debian:bookworm", "2026-07-11", 3)
    count = len(runner.calls)
    assert make_root(BOOTSTRAP, context_for(here, runner)) == root
    assert bootstrap_facts(BOOTSTRAP, context_for(here, runner)) == facts
    assert len(runner.calls) == count


def test_no_root_is_made_in_a_tmpdir_that_is_closed_to_others(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.base.debian.bootstrap.read_host", lambda: read_host(uid=1000))
    here.tmpdir.chmod(0o700)
    runner = FakeMmdebstrap()
    with pytest.raises(HostError, match="other users may not enter") as raised:
        make(here, runner, kept=False)
    assert raised.value.hint == f"chmod o+x {here.tmpdir}\nor: export TMPDIR=/tmp"
    assert [call.argv[1] for call in runner.calls] == ["--version"]


def test_nothing_of_the_callers_environment_reaches_the_root(here: Settings) -> None:
    runner = FakeMmdebstrap()
    make(here, runner)
    env = dict(runner.calls[-1].env or {})
    assert env.pop("PATH").endswith(":/usr/sbin:/usr/bin:/sbin:/bin")
    assert Path(env.pop("TMPDIR")).is_relative_to(here.tmpdir)
    assert env.pop("HOME") in (str(here.home), "/mnt/home")  # root's run has its own
    assert env == {
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": "1783728000",
        "DPKG_FORCE": "unsafe-io",
    }


def test_a_user_without_ids_is_told_before_packages_are_downloaded(
    here: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeMmdebstrap()
    context = context_for(here, runner)
    nobody = read_host(root=tmp_path, uid=1000, user="ada")
    monkeypatch.setattr("envbuild.base.debian.bootstrap.read_host", lambda: nobody)
    anywhere = structs.replace(BOOTSTRAP.packages[0], architecture="all")
    bootstrap = dataclasses.replace(BOOTSTRAP, packages=(anywhere,))
    with pytest.raises(HostError, match="ada has no ids in /etc/subuid and /etc/subgid") as error:
        bootstrap_facts(bootstrap, context)
    assert error.value.hint is not None
    assert error.value.hint.startswith("root: echo ada:100000:65536 >>/etc/subuid\nroot: echo ada:")
    assert "ENVBUILD_STORE_BELOW" in error.value.hint
    assert not any(command.argv[0] == "sh" for command in runner.calls)


FAILURES: list[tuple[str, type[EnvbuildError], str]] = [
    (
        "I: using /tmp/x\nE: unshare() failed: No space left on device\nnewuidmap: failed\nE: chown failed\n",
        ToolFailedError,
        (
            "mmdebstrap cannot make a user namespace, which it needs to make a Debian base without root\n"
            "E: unshare() failed: No space left on device\nE: chown failed"
        ),
    ),
    (
        "E: failed to parse /etc/subuid and /etc/subgid\n",
        ToolFailedError,
        (
            "mmdebstrap cannot make a user namespace, which it needs to make a Debian base without root\n"
            "E: failed to parse /etc/subuid and /etc/subgid"
        ),
    ),
    (
        (
            "newuidmap: Target process 3490 is owned by a different user: uid:4242 pw_uid:4242 st_uid:4242, "
            "gid:4343 pw_gid:4242 st_gid:4343\nE: E: newuidmap 3490  0 200000 65536\n failed: \n"
            "E: E: failed to unshare the user namespace\n"
        ),
        ToolFailedError,
        (
            "this shell has another primary group than the login, so newuidmap gives it no ids\n"
            "E: E: newuidmap 3490  0 200000 65536\nE: E: failed to unshare the user namespace"
        ),
    ),
    ("dpkg: error: cannot write: No space left on device\n", SpaceError, "the disk is full"),
    (
        "E: You don't have enough free space in /tmp/mmdebstrap.jtPE9MHwJU/var/cache/apt/archives/.\n",
        SpaceError,
        "the disk is full",
    ),
    (
        "E: Failed to fetch copy:/x Failed to stat - stat (13: Permission denied)\n",
        ToolFailedError,
        (
            "mmdebstrap could not make the Debian base\n"
            "E: Failed to fetch copy:/x Failed to stat - stat (13: Permission denied)"
        ),
    ),
]


def test_a_package_that_dpkg_refuses_is_told_in_dpkgs_own_words(here: Settings) -> None:
    printed = (Path(__file__).parents[1] / "recorded/mmdebstrap/no-dev.txt").read_text()
    with pytest.raises(ToolFailedError) as caught:
        make(here, FakeMmdebstrap(fails=printed))
    assert caught.value.what.splitlines() == [
        "dpkg could not install dbus, x11-common",
        "/var/lib/dpkg/info/dbus.postinst: 67: cannot create /dev/null: Directory nonexistent",
        "dpkg: error processing package dbus (--install):",
        " installed dbus package post-installation script subprocess returned error exit status 2",
        "/var/lib/dpkg/info/x11-common.postinst: 13: cannot create /dev/null: Directory nonexistent",
        "dpkg: error processing package x11-common (--install):",
        " installed x11-common package post-installation script subprocess returned error exit status 2",
    ]
    remedy, log = (caught.value.hint or "").split("\nthe whole log: ")
    assert remedy == "leave out of [system] what brings a package that cannot be installed"
    assert Path(log).read_text() == printed


def test_a_long_command_line_is_cut(here: Settings) -> None:
    with pytest.raises(ToolFailedError) as caught:
        make(here, FakeMmdebstrap(fails=f"E: apt-get {'package ' * 400} failed\n"))
    assert len(caught.value.what) < 300


@pytest.mark.parametrize(("text", "kind", "what"), FAILURES)
def test_a_failure_is_told_and_leaves_nothing(
    here: Settings, text: str, kind: type[EnvbuildError], what: str
) -> None:
    with pytest.raises(kind) as caught:
        make(here, FakeMmdebstrap(fails=text))
    assert caught.value.what == what
    assert caught.value.hint
    store = Store(here.store)
    assert not store.base(BOOTSTRAP.digest).exists()
    assert not store.facts(BOOTSTRAP.digest).exists()
    assert list(here.tmpdir.iterdir()) == []
    assert list(store.folder("tmp").iterdir()) == []
    make(here, FakeMmdebstrap())


def test_other_packages_than_the_locked_ones_are_refused(here: Settings) -> None:
    with pytest.raises(IntegrityError) as caught:
        make(here, FakeMmdebstrap(facts=FOUND.replace('["tar"', '["rat"')))
    assert str(caught.value) == "the root does not hold the locked packages: rat, tar"
    assert not Store(here.store).base(BOOTSTRAP.digest).exists()


def test_a_package_that_is_not_fetched_is_named(here: Settings) -> None:
    with pytest.raises(IntegrityError, match=r"tar_1.0-1_amd64.deb is not whole in the store"):
        make(here, FakeMmdebstrap(), kept=False)


def test_a_machine_without_mmdebstrap_says_how_to_get_it(here: Settings) -> None:
    bare = dataclasses.replace(here, environment={"PATH": "/nonexistent"})
    with pytest.raises(HostError) as caught:
        make(bare, FakeMmdebstrap())
    assert str(caught.value) == "mmdebstrap was not found on PATH"
    assert "install what Debian has in its package mmdebstrap" in (caught.value.hint or "")


@needs("dpkg-deb")
def test_the_repository_is_what_apt_reads_and_others_may_enter(tmp_path: Path) -> None:
    made = Mirror(tmp_path / "debian", tmp_path / "none")
    content = made.add("tar", architecture="amd64", Priority="required").read_bytes()
    context = quiet_context(settings_with(tmp_path))
    keep(context.store, content)
    before = os.umask(0o077)
    try:
        write_repository(
            [package("tar", content=content)],
            tmp_path / "repository",
            context,
            SilentStage(),
        )
    finally:
        os.umask(before)
    assert (tmp_path / "repository").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "repository/Packages").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "repository/tar_1.0-1_amd64.deb").read_bytes() == content
    assert (tmp_path / "repository/Packages").read_text().splitlines()[-3:] == [
        "Filename: ./tar_1.0-1_amd64.deb",
        f"Size: {len(content)}",
        f"SHA256: {hashlib.sha256(content).hexdigest()}",
    ]


def test_a_root_for_another_machine_is_read_and_not_run(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FakeMmdebstrap tells an x86_64 root; the packages are for a machine that this one is not."""
    other = "arm64" if read_host().architecture == "x86_64" else "amd64"
    foreign = dataclasses.replace(
        BOOTSTRAP, packages=(structs.replace(BOOTSTRAP.packages[0], architecture=other),)
    )
    store = Store(here.store)
    keep(store, b"a deb")
    facts = BaseFacts(
        image="debian:bookworm", python="3.11.2", machine=machine_of(foreign) or "", glibc="2.36"
    )
    monkeypatch.setattr("envbuild.base.debian.bootstrap.fetch_packages", lambda *_: None)
    monkeypatch.setattr("envbuild.base.debian.bootstrap.read_packages", lambda *_: facts)
    runner = FakeMmdebstrap()
    assert bootstrap_facts(foreign, context_for(here, runner)) == facts
    assert not store.base(foreign.digest).exists()


@pytest.mark.live
@pytest.mark.slow
@needs("mmdebstrap", "apt-get", "dpkg-deb")
def test_two_roots_have_the_same_bytes_and_no_trace_of_this_machine(
    user_settings: Settings, tmp_path: Path
) -> None:
    store, runner = Store(user_settings.store), LocalRunner()
    bootstrap = resolve_bootstrap("bookworm", context_for(user_settings, runner))
    fetch_packages(bootstrap, context_for(user_settings, runner))
    first = make_root(bootstrap, context_for(user_settings, runner))
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    facts = store.facts(bootstrap.digest).read_bytes()
    first.unlink()
    store.facts(bootstrap.digest).unlink()
    private = tmp_path / "private"
    private.mkdir(0o700)
    odd = dataclasses.replace(
        user_settings,
        # nobody else may enter it, which another user's half of a user namespace would have to
        tmpdir=private if os.getuid() == 0 else user_settings.tmpdir,
        environment={
            **user_settings.environment,
            "TZ": "Asia/Tokyo",
            "LC_ALL": "C",
            "PYTHONHASHSEED": "7",
        },
    )
    before = os.umask(0o077)
    try:
        second = make_root(bootstrap, context_for(odd, runner))
    finally:
        os.umask(before)
    assert hashlib.sha256(second.read_bytes()).hexdigest() == digest
    assert store.facts(bootstrap.digest).read_bytes() == facts
    with tarfile.open(second) as tar:
        members = {member.name: member for member in tar.getmembers()}
        for name in (
            "./etc/hostname",
            "./etc/resolv.conf",
            "./etc/apt/sources.list",
            "./etc/machine-id",
        ):
            assert name not in members or members[name].size == 0
        assert max(member.mtime for member in members.values()) <= bootstrap.epoch
        assert not any(
            member.isdev() or member.name.startswith(("./tmp/", "./dev/"))
            for member in members.values()
        )
        assert not any(
            member.isfile() for name, member in members.items() if name.startswith("./var/log/apt/")
        )
        assert any(name.endswith("pip/__pycache__/__init__.cpython-311.pyc") for name in members)
    made = cached_facts(bootstrap.digest, store)
    assert made is not None
    unrun = read_packages(bootstrap, "x86_64", context_for(user_settings, runner))
    assert structs.replace(unrun, size=made.size) == made  # as they are read for another machine
    assert made.dist("pip") is not None
    assert (made.distro, made.abi, made.glibc, made.externally_managed) == (
        "debian 12",
        "cp311",
        "2.36",
        True,
    )
