"""Which Debian packages: real apt over a real, signed mirror in a folder, and every way it can fail."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild import limits
from envbuild.base.debian import apt_config
from envbuild.base.debian.apt import (
    AptLists,
    FetchWatch,
    debian_mirror,
    read_lists,
    resolve_bootstrap,
    resolve_debian,
)
from envbuild.base.debian.apt_failure import update_error
from envbuild.base.debian.distribution import DEBIAN
from envbuild.base.debian.index import DebianIndex, field_of
from envbuild.base.debian.package_set import Bootstrap, bootstrap_digest
from envbuild.base.model import AptPackage, DebianPackage
from envbuild.context import Context, open_context
from envbuild.errors import (
    HostError,
    IntegrityError,
    NetworkError,
    NoSolutionError,
    ToolFailedError,
    UsageError,
)
from envbuild.progress import Silent, SilentStage
from envbuild.run import Command, LocalRunner, Result, Runner, failure
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.base.debian_mirror import Mirror
from tests.support import (
    CountingStage,
    ScriptedRunner,
    context_for,
    http_server,
    needs,
    quiet_context,
)

APT = (0, "apt 2.6.1 (amd64)\n", "")
live = [pytest.mark.live, needs("apt-get", "dpkg-deb", "gpg", "gpgv", "gpgconf")]


def fill(made: Mirror) -> None:
    made.add("apt", architecture="amd64", Depends="libc6 (>= 2)")
    made.add("libc6", "2.36-9", "amd64", Essential="yes", Priority="required")
    made.add("tar", architecture="amd64", Priority="required", Pre_Depends="libc6")
    for name in ("ca-certificates", "python-is-python3", "python3-pip", "tzdata"):
        made.add(name, Depends="python3")
    made.add("python3", "3.11.2-1", "amd64", Depends="libc6", Recommends="recommended")
    made.add("recommended")
    made.add("graphviz", "2:2.42-7+b3", "amd64", Depends="python3, libgd", Provides="dot-program")
    made.add("libgd")
    made.add("wants-newer", Depends="libc6 (>= 99)")
    made.add("opponent", Conflicts="libc6")


SAID_BY_APT = """\
E: Failed to fetch http://mirror.invalid/debian/dists/bookworm/InRelease  {} [IP: 192.0.2.1 80]
E: The repository 'http://mirror.invalid/debian bookworm InRelease' is not signed.
"""
"""Recorded of apt 2.6.1, with another server."""


@pytest.mark.parametrize("status", ["401  Unauthorized", "403  Forbidden", "407  Proxy"])
def test_a_mirror_that_refuses_is_no_matter_of_keys(status: str) -> None:
    told = update_error(
        ToolFailedError("apt-get failed", stderr=SAID_BY_APT.format(status)),
        "bookworm",
        "http://mirror.invalid/debian",
        DEBIAN,
    )
    assert isinstance(told, NetworkError)
    assert status in told.what


@pytest.mark.parametrize("come", [limits.STALL_BYTES - 1, limits.STALL_BYTES])
def test_lists_that_hardly_come(come: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL_SECONDS", -1)
    told = NetworkError("too slow")
    (tmp_path / "partial").mkdir()
    watch = FetchWatch(SilentStage(), tmp_path, lambda: told)
    (tmp_path / "partial/Packages.xz").write_bytes(bytes(come))
    watch.read_line("Get:1 a line of another kind")
    slow = come < limits.STALL_BYTES
    with pytest.raises(NetworkError) if slow else nullcontext():
        watch.read_line("dlstatus:1:0.6:Retrieving file 1 of 1")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    folder = tmp_path_factory.mktemp("mirror")
    made = Mirror(folder / "debian", folder / "keys" / "ring.gpg")
    made.make_key()
    fill(made)
    made.publish()
    yield made
    made.stop()


@pytest.fixture
def at(served: Mirror, user_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(apt_config, "KEYRING", served.keyring)
    return dataclasses.replace(user_settings, debian_mirror=served.url)


def lists(settings: Settings) -> AptLists:
    return read_lists(
        "bookworm",
        quiet_context(settings),
        SilentStage(),
    )


def system(
    settings: Settings, *packages: str, installed: tuple[DebianPackage | AptPackage, ...] = ()
) -> list[str]:
    found = resolve_debian(
        lists(settings),
        packages,
        quiet_context(settings),
        group="system",
        installed=installed,
    )
    assert {package.group for package in found} <= {"system"}
    return [package.name for package in found]


class TestLive:
    pytestmark = live

    def test_a_bootstrap_is_what_is_needed_and_no_more(self, at: Settings, served: Mirror) -> None:
        found = resolve_bootstrap("bookworm", quiet_context(at))
        assert [p.name for p in found.packages] == [
            "apt", "ca-certificates", "libc6", "python-is-python3", "python3", "python3-pip", "tar", "tzdata",
        ]  # fmt: skip
        assert found.created == "2026-07-11"
        assert found.epoch == 1783728000
        libc = found.packages[2]
        assert (libc.version, libc.architecture, libc.group) == ("2.36-9", "amd64", "base")
        assert (served.folder / libc.path).stat().st_size == libc.size
        assert resolve_bootstrap("bookworm", quiet_context(at)) == found

    def test_system_packages_come_on_top_of_what_is_there(self, at: Settings) -> None:
        base = resolve_bootstrap("bookworm", quiet_context(at))
        assert system(at, "graphviz", installed=base.packages) == ["graphviz", "libgd"]
        assert system(at, "dot-program", installed=base.packages) == ["graphviz", "libgd"]
        assert system(at, "tar", installed=base.packages) == []
        assert system(at) == []

    def test_the_same_question_is_not_put_to_apt_again(self, at: Settings) -> None:
        read = lists(at)
        store = Store(at.store)

        def choose(runner: Runner, *names: str) -> tuple[DebianPackage, ...]:
            return resolve_debian(
                read,
                names,
                Context(settings=at, runner=runner, store=store, report=Silent()),
                group="system",
            )

        def nothing(command: Command, *, check: bool = True) -> Result:
            raise AssertionError(command.argv)

        first = choose(LocalRunner(), "graphviz")
        assert choose(nothing, "graphviz") == first
        with pytest.raises(AssertionError, match="apt-get"):
            choose(nothing, "libgd")
        newer = dataclasses.replace(read, digest="0" * 64)
        assert resolve_debian(
            newer,
            ["libgd"],
            Context(settings=at, runner=LocalRunner(), store=store, report=Silent()),
            group="system",
        )
        with pytest.raises(AssertionError, match="apt-get"):  # what an older release gave is gone
            choose(nothing, "graphviz")

    def test_older_packages_of_an_image_count_as_there(self, at: Settings) -> None:
        image = tuple(
            AptPackage(name=name, version=version, architecture="amd64")
            for name, version in (
                ("libc6", "2.31-0"),
                ("python3", "3.11.2-1"),
                ("local-thing", "1"),
            )
        )
        assert system(at, "libgd", "graphviz", installed=image) == ["graphviz", "libgd"]

    def test_an_epoch_is_kept_in_version_and_path(self, at: Settings) -> None:
        found = lists(at).index.locked("graphviz", "2:2.42-7+b3", "amd64", "system")
        assert found.file == "graphviz_2%3a2.42-7+b3_amd64.deb"

    def test_the_host_is_left_alone(self, at: Settings) -> None:
        config = lists(at).config.read_text()
        assert str(at.store) in config
        assert 'Dir::Etc::parts "/dev/null";' in config

    @pytest.mark.parametrize(
        ("name", "what"),
        [
            (
                "grapviz",
                "Debian bookworm has no package 'grapviz' in its main section; did you mean \"graphviz\"?",
            ),
            (
                "tar-",
                "Debian bookworm has no package 'tar-' in its main section; did you mean \"tar\"?",
            ),
            ("zzzzzzz", "Debian bookworm has no package 'zzzzzzz' in its main section"),
            ("-oDebug::x=1", "Debian bookworm has no package '-oDebug::x=1' in its main section"),
            ("lib.*", "Debian bookworm has no package 'lib.*' in its main section"),
            ("graphviz=1", "Debian bookworm has no package 'graphviz=1' in its main section"),
        ],
    )
    def test_an_unknown_name_never_reaches_apt(self, at: Settings, name: str, what: str) -> None:
        with pytest.raises(UsageError) as caught:
            system(at, name)
        assert str(caught.value) == f"[system] packages: {what}"

    @pytest.mark.parametrize("name", ["wants-newer", "opponent"])
    def test_what_cannot_be_installed_names_the_chain(self, at: Settings, name: str) -> None:
        base = resolve_bootstrap("bookworm", quiet_context(at))
        with pytest.raises(NoSolutionError) as caught:
            system(at, name, installed=base.packages)
        assert caught.value.where == f"bookworm: {name}"
        assert name in caught.value.what

    def test_an_unknown_certificate_authority_is_told_with_what_to_do(self) -> None:
        said = "Certificate verification failed: The certificate is NOT trusted."
        failed = failure(Result(argv=("apt-get",), code=100, stdout="", stderr=said, seconds=0.0))
        url = "https://mirror.invalid/debian"
        error = update_error(failed, "bookworm", url, DEBIAN)
        assert isinstance(error, NetworkError)
        assert error.what == "the mirror shows a certificate that is not trusted"
        assert "SSL_CERT_FILE" in (error.hint or "")

    def test_the_stage_counts_the_percent_of_the_lists(self, at: Settings) -> None:
        stage = CountingStage()
        read_lists("bookworm", quiet_context(at), stage)
        assert (stage.total, stage.done) == (125, 100)

    def test_lists_of_a_server_are_fetched_once_in_ten_minutes(self, at: Settings) -> None:
        updates: list[bool] = []

        def counting(command: Command, *, check: bool = True) -> Result:
            updates.append("update" in command.argv)
            return LocalRunner()(command, check=check)

        def after(url: str, *, refresh: bool = False) -> int:
            settings = dataclasses.replace(at, debian_mirror=url)
            context = dataclasses.replace(quiet_context(settings), runner=counting)
            read_lists("bookworm", context, SilentStage(), refresh=refresh)
            return sum(updates)

        folder = (at.debian_mirror or "").removeprefix("file:")
        with http_server(SimpleHTTPRequestHandler, directory=folder) as url:
            assert [after(url), after(url), after(url, refresh=True)] == [1, 1, 2]
            fetched = quiet_context(at).store.folder("apt") / "bookworm-amd64/fetched"
            os.utime(fetched, (0, 0))
            assert after(url) == 3
            # a folder may change at any time
            assert [after(f"file:{folder}"), after(f"file:{folder}"), after(url)] == [4, 5, 6]

    def test_a_missing_release_is_a_network_error(self, at: Settings) -> None:
        with pytest.raises(NetworkError) as caught:
            read_lists(
                "trixie",
                quiet_context(at),
                SilentStage(),
            )
        assert "the mirror has no release trixie" in caught.value.what

    def test_a_mirror_that_does_not_answer_is_a_network_error(self, at: Settings) -> None:
        gone = dataclasses.replace(at, debian_mirror="http://user:secret@127.0.0.1:9/debian")
        with pytest.raises(NetworkError) as caught:
            lists(gone)
        assert caught.value.what.startswith("the Debian mirror did not answer as it should: ")
        assert "secret" not in f"{caught.value} {caught.value.hint}"

    def test_unsigned_lists_are_refused(self, at: Settings, served: Mirror, tmp_path: Path) -> None:
        unsigned = Mirror(tmp_path / "debian", served.keyring)
        unsigned.add("apt")
        unsigned.publish(sign=False)
        with pytest.raises(HostError) as caught:
            lists(dataclasses.replace(at, debian_mirror=unsigned.url))
        assert caught.value.what == "the signature of bookworm could not be verified"

    def test_lists_signed_by_another_key_are_refused(
        self,
        at: Settings,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # a short path: the socket of gpg's agent has to fit into 107 bytes (unix(7))
        keys = tmp_path_factory.mktemp("k")
        other = Mirror(tmp_path / "debian", keys / "k" / "ring.gpg")
        other.make_key()
        other.stop()
        monkeypatch.setattr(apt_config, "KEYRING", other.keyring)
        with pytest.raises(HostError) as caught:
            lists(at)
        assert caught.value.what == "the signature of bookworm could not be verified"
        assert (
            caught.value.hint
            == "install Debian's keys, as root: apt-get install debian-archive-keyring"
        )

    def test_lists_that_lead_out_of_the_pool_are_refused(
        self, at: Settings, served: Mirror, tmp_path: Path
    ) -> None:
        evil = Mirror(tmp_path / "debian", served.keyring)
        evil.add("libgd")
        evil.publish(changes={"Filename: pool/": "Filename: pool/../../"})
        with pytest.raises(IntegrityError, match="the package list describes it wrongly"):
            system(dataclasses.replace(at, debian_mirror=evil.url), "libgd")


PRINTED = """\
'http://mirror.invalid/ubuntu/dists/jammy/InRelease' x_InRelease 0
'http://mirror.invalid/security/dists/bookworm-security/InRelease' x_InRelease 0
'http://mirror.invalid/debian/dists/bookworm/InRelease' x_InRelease 0
'http://mirror.invalid/debian/dists/bookworm/main/binary-amd64/Packages.xz' x_Packages 0
"""


@needs("apt-get")
def test_the_mirror_is_the_machines_own(user_settings: Settings) -> None:
    asked = dataclasses.replace(user_settings, debian_mirror=None)
    runner = ScriptedRunner({"--version": APT, "--print-uris": (0, PRINTED, "")})
    assert debian_mirror(context_for(asked, runner)) == "http://mirror.invalid/debian"
    first = (0, PRINTED.split("\n", maxsplit=1)[0], "")
    runner = ScriptedRunner({"--version": APT, "--print-uris": first})
    with pytest.raises(HostError, match="apt on this machine uses no Debian mirror"):
        debian_mirror(context_for(asked, runner))


def test_a_configured_mirror_wins(user_settings: Settings) -> None:
    told = dataclasses.replace(user_settings, debian_mirror="https://mirror.invalid/debian/")
    assert debian_mirror(context_for(told, ScriptedRunner({}))) == "https://mirror.invalid/debian"


@pytest.mark.parametrize(
    "url", ["mirror.invalid/debian", "https://m.invalid/ x", "https://m.invalid/[trusted=yes]", ""]
)
def test_a_configured_mirror_has_to_be_a_url(user_settings: Settings, url: str) -> None:
    told = dataclasses.replace(
        user_settings, debian_mirror=url, origin={"debian_mirror": "ENVBUILD_DEBIAN_MIRROR"}
    )
    with pytest.raises(UsageError) as caught:
        debian_mirror(context_for(told, ScriptedRunner({})))
    assert (
        str(caught.value) == f"ENVBUILD_DEBIAN_MIRROR: is not the URL of a Debian mirror: {url!r}"
    )


def test_a_machine_without_apt_says_how_to_get_it(user_settings: Settings) -> None:
    bare = dataclasses.replace(
        user_settings, debian_mirror=None, environment={"PATH": "/nonexistent"}
    )
    with pytest.raises(HostError) as caught:
        debian_mirror(context_for(bare, ScriptedRunner({})))
    assert str(caught.value) == "apt-get was not found on PATH"


STANZA = "Package: libc6\nVersion: 2.36-9\nArchitecture: amd64\nEssential: yes\nDescription: x\n Version: 9\n"


def test_an_index_reads_its_stanzas() -> None:
    index = DebianIndex.parse(
        STANZA + "\nPackage: b\nPriority: required\nProvides: c (= 1), d\n\nVersion: nameless\n"
    )
    assert set(index.stanzas) == {"libc6", "b"}
    assert index.required == {"libc6", "b"}
    assert index.virtual == {"c", "d"}
    assert field_of(STANZA, "Version") == "2.36-9"
    assert field_of(STANZA, "Ersion") is None


def package(name: str, version: str = "1.0") -> DebianPackage:
    path = f"pool/main/{name}/{name}_{version}_all.deb"
    return DebianPackage(
        name=name,
        version=version,
        architecture="all",
        group="base",
        path=path,
        size=1,
        sha256="0" * 64,
    )


PACKAGES = st.lists(
    st.sampled_from("abcdef").map(lambda letter: package(letter * 2)), unique_by=lambda p: p.name
)


@given(PACKAGES, st.randoms())
def test_the_digest_does_not_know_the_order(packages: list[DebianPackage], random: object) -> None:
    shuffled = list(packages)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert bootstrap_digest("bookworm", "2026-07-11", shuffled) == bootstrap_digest(
        "bookworm", "2026-07-11", packages
    )


def test_the_digest_knows_everything_else() -> None:
    packages = (package("aa"), package("bb"))
    digests = [
        bootstrap_digest("bookworm", "2026-07-11", packages),
        bootstrap_digest("trixie", "2026-07-11", packages),
        bootstrap_digest("bookworm", "2026-07-12", packages),
        bootstrap_digest("bookworm", "2026-07-11", packages[:1]),
        bootstrap_digest("bookworm", "2026-07-11", (package("aa"), package("bb", "1.1"))),
    ]
    assert len(set(digests)) == 5
    assert Bootstrap(suite="bookworm", created="2026-07-11", packages=packages).digest == digests[0]


@pytest.mark.parametrize(
    ("no_proxy", "handed"),
    [("*", set()), ("a.invalid,*", set()), ("a", {"http_proxy", "no_proxy"})],
)
def test_no_proxy_for_all_hosts_is_told_to_apt_in_its_own_way(
    user_settings: Settings, no_proxy: str, handed: set[str]
) -> None:
    """Debian's apt 2.6.1 takes "*" for a host's name, and asks the proxy."""
    variables = {"http_proxy": "http://proxy.invalid:3128", "no_proxy": no_proxy}
    asked = dataclasses.replace(user_settings, environment=variables)
    assert apt_config.apt_environment(asked).keys() - {"LC_ALL"} == handed


def test_passwords_stand_in_no_file_that_others_read(
    user_settings: Settings, tmp_path: Path
) -> None:
    """What apt is told at its one call with a network, and what stays in the store."""
    calls: list[str] = []
    proxy = 'Acquire::http::Proxy "http://me:proxysecret@proxy.invalid:3128";'
    scripted = ScriptedRunner(
        {"--version": APT, "dump": (0, f'{proxy}\nAcquire::http::Timeout "9";\n', "")}
    )

    def runner(command: Command, *, check: bool = True) -> Result:
        if "update" not in command.argv:
            return scripted(command, check=check)
        config = Path((command.env or {})["APT_CONFIG"])
        netrc = config.with_name("auth.conf")
        calls.extend((config.read_text(), netrc.read_text()))
        assert not any(path.stat().st_mode & 0o077 for path in (config, netrc, config.parent))
        assert "secret" not in str(command)
        raise failure(Result(argv=command.argv, code=100, stdout="", stderr="E: no", seconds=0.0))

    asked = dataclasses.replace(
        user_settings, debian_mirror="http://us%40er:mirrorsecret@mirror.invalid/debian"
    )
    with pytest.raises(NetworkError, match="the Debian mirror did not answer as it should: no"):
        read_lists(
            "bookworm",
            open_context(asked, runner, Silent()),
            SilentStage(),
        )
    assert proxy in calls[0]
    assert calls[1] == "machine http://mirror.invalid/debian login us@er password mirrorsecret\n"
    kept = [path for path in asked.store.rglob("*") if path.is_file()]
    assert any(path.name == "sources.list" for path in kept)
    assert not any(b"secret" in path.read_bytes() for path in kept)
