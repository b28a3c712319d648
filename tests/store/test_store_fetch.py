from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from envbuild.context import Context
from envbuild.errors import (
    EnvbuildError,
    HostError,
    IntegrityError,
    NetworkError,
    SpaceError,
    UsageError,
)
from envbuild.net import partial
from envbuild.net.fetch import Artifact, ask_sizes, fetch_artifacts, missing_artifacts, total_size
from envbuild.net.index import make_client
from envbuild.net.partial import partial_path
from envbuild.net.web import GoneError
from envbuild.progress import Silent, Transfer
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.store.server import Page, Server
from tests.support import PATIENCE, ScriptedRunner

BODY = bytes(range(256)) * 4096  # 1 MiB, no two pages alike in place
WHEEL = "demo-1.0-py3-none-any.whl"
DEB = "pool/main/d/demo/demo_1.0~rc1+b2_amd64.deb"


class Counter(Silent):
    """A reporter that counts what it is told."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.arrived = 0
        self.details: list[str] = []
        self.guard = threading.Lock()

    def advance(self, count: int) -> None:
        with self.guard:
            self.arrived += count

    def detail(self, text: str) -> None:
        self.details.append(text)

    @contextlib.contextmanager
    def transfer(self, title: str, *, files: int, size: int) -> Iterator[Transfer]:
        self.files, self.size = files, size
        yield self


Fetch = Callable[..., Counter]


@pytest.fixture
def get(settings: Settings, store: Store, server: Server) -> Fetch:
    def run(*wanted: Artifact, **changes: Any) -> Counter:
        report = Counter()
        fetch_artifacts(
            wanted,
            Context(
                settings=dataclasses.replace(settings, **changes),
                runner=ScriptedRunner({}),
                store=store,
                report=report,
            ),
            debian_mirror=f"{server.url}/debian/",
        )
        return report

    return run


def _leave(store: Store, item: Artifact, data: bytes) -> Path:
    """Leave what an interrupted run would leave."""
    path = partial_path(store.artifact(item.sha256))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _only_whole_files(store: Store, *wanted: Artifact) -> None:
    found = {
        path.name for path in (store.root / "v1" / "artifacts").rglob("*") if not path.is_dir()
    }
    assert found == {item.sha256 for item in wanted}
    for item in wanted:
        assert hashlib.sha256(store.artifact(item.sha256).read_bytes()).hexdigest() == item.sha256


def test_files_arrive_whole_read_only_and_counted(server: Server, store: Store, get: Fetch) -> None:
    wanted = [
        server.offer(f"demo-{n}.0-py3-none-any.whl", BODY[: n * 1000], hashed=n % 2 == 0)
        for n in range(12)
    ]
    wanted.append(server.offer_deb(DEB, b"deb"))
    report = get(*wanted, *wanted)
    _only_whole_files(store, *wanted)
    assert store.artifact(wanted[3].sha256).stat().st_mode & 0o777 == 0o444
    assert (report.files, report.size) == (13, total_size(wanted))
    assert report.arrived == report.size
    assert {item.file for item in wanted} <= set(report.details)
    assert f"download {WHEEL} from {server.url}/files/{WHEEL}" in report.details
    asked = len(server.asked)
    assert get(*wanted).files == 0
    assert len(server.asked) == asked, "what is there is not asked for again"


def test_nothing_wanted_needs_no_index(store: Store, user_settings: Settings) -> None:
    fetch_artifacts(
        [], Context(settings=user_settings, runner=ScriptedRunner({}), store=store, report=Silent())
    )
    assert not store.root.exists()


def test_missing_trusts_size_and_names_each_content_once(server: Server, store: Store) -> None:
    first, second = server.offer("a-1.zip", b"first"), server.offer("b-1.zip", b"second")
    twin = dataclasses.replace(first, file="copy.zip")
    assert {item.sha256 for item in missing_artifacts([first, twin, second], store)} == {
        first.sha256,
        second.sha256,
    }
    assert total_size([first, twin, second]) == 11
    path = store.artifact(first.sha256)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345")
    assert missing_artifacts([first, second], store) == (second,)
    path.write_bytes(b"1234")
    assert missing_artifacts([first, second], store) == (first, second)


@pytest.mark.parametrize("left", [1, 1000, len(BODY) - 1])
def test_what_is_there_is_continued(server: Server, store: Store, get: Fetch, left: int) -> None:
    item = server.offer(WHEEL, BODY)
    _leave(store, item, BODY[:left])
    assert get(item).arrived == len(BODY)
    assert server.ranges_asked(WHEEL) == [f"bytes={left}-"]
    _only_whole_files(store, item)


def test_a_whole_partial_is_not_downloaded_again(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    _leave(store, item, BODY)
    get(item)
    assert server.ranges_asked(WHEEL) == []
    _only_whole_files(store, item)


FAULTS: list[tuple[dict[str, Any], list[str | None]]] = [
    ({"cuts": [300_000, 500_000]}, [None, "bytes=300000-", "bytes=800000-"]),
    ({"cuts": [300_000], "says": -1}, [None, "bytes=300000-"]),
    ({"cuts": [300_000], "ranges": False}, [None, "bytes=300000-"]),
    ({"cuts": [300_000], "lies_about_range": True}, [None, "bytes=300000-", None]),
    ({"first": [500, 429]}, [None, None, None]),
    ({"headers": {"Content-Encoding": "gzip"}}, [None]),
    ({"says": -1}, [None]),
]


@pytest.mark.parametrize(("faults", "ranges"), FAULTS)
def test_faults_that_pass_are_sat_out(
    server: Server, store: Store, get: Fetch, faults: dict[str, Any], ranges: list[str | None]
) -> None:
    item = server.offer(WHEEL, BODY, **faults)
    assert get(item).arrived == len(BODY)
    assert server.ranges_asked(WHEEL) == ranges
    _only_whole_files(store, item)


@pytest.mark.parametrize(
    "left", [b"wrong bytes", BODY[:5000] + b"\0" * 5000, BODY + b"more", b"\0" * len(BODY)]
)
def test_a_spoilt_partial_is_downloaded_again(
    server: Server, store: Store, get: Fetch, left: bytes
) -> None:
    item = server.offer(WHEEL, BODY)
    _leave(store, item, left)
    assert get(item).arrived == len(BODY)
    assert server.ranges_asked(WHEEL)[-1] is None
    _only_whole_files(store, item)


def test_redirects_are_followed(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    server.pages["/real"] = server.pages[f"/files/{WHEEL}"]
    server.pages[f"/files/{WHEEL}"] = Page(status=307, headers={"Location": "/real"})
    _leave(store, item, BODY[:10])
    get(item)
    assert server.asked[-1].headers["range"] == "bytes=10-"
    _only_whole_files(store, item)


def _failure(get: Fetch, item: Artifact, kind: type[EnvbuildError]) -> EnvbuildError:
    with pytest.raises(kind) as caught:
        get(item)
    assert type(caught.value) is kind
    return caught.value


def _nothing_left(store: Store) -> None:
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_flipped_bits_are_an_integrity_error(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    flipped = bytes([BODY[0] ^ 1]) + BODY[1:]
    server.pages[f"/files/{WHEEL}"].body = flipped
    error = _failure(get, item, IntegrityError)
    assert str(error) == (
        f"{server.url}/files/{WHEEL}: {WHEEL} is not the file that was locked: expected sha256 {item.sha256}, "
        f"got {hashlib.sha256(flipped).hexdigest()}"
    )
    assert error.code == 6
    _nothing_left(store)


def test_flipped_bits_after_a_resumed_start_accuse_the_server_only_after_a_fresh_copy(
    server: Server, store: Store, get: Fetch
) -> None:
    item = server.offer(WHEEL, BODY)
    _leave(store, item, BODY[:100])
    server.pages[f"/files/{WHEEL}"].body = BODY[:-1] + b"x"
    _failure(get, item, IntegrityError)
    assert server.ranges_asked(WHEEL) == ["bytes=100-", None]
    _nothing_left(store)


WRONG_SIZES = [
    (Page(body=BODY[:-1]), f"expected {len(BODY)} bytes, the server announces {len(BODY) - 1}"),
    (Page(body=BODY + b"x", says=-1), f"expected {len(BODY)} bytes, the server sends more"),
    (
        Page(body=b"please log in", headers={"Content-Type": "text/html"}),
        f"expected {len(BODY)} bytes, the server announces 13; a proxy's or login page may have come in its place",
    ),
]


@pytest.mark.parametrize(("page", "text"), WRONG_SIZES)
def test_wrong_sizes_are_integrity_errors(
    server: Server, store: Store, get: Fetch, page: Page, text: str
) -> None:
    item = server.offer(WHEEL, BODY)
    server.pages[f"/files/{WHEEL}"] = page
    assert str(_failure(get, item, IntegrityError)).endswith(
        f"is not the file that was locked: {text}"
    )
    _nothing_left(store)


def test_a_longer_file_is_seen_when_it_is_continued(
    server: Server, store: Store, get: Fetch
) -> None:
    item = server.offer(WHEEL, BODY)
    _leave(store, item, BODY[:10])
    server.pages[f"/files/{WHEEL}"].body = BODY + b"x"
    assert str(_failure(get, item, IntegrityError)).endswith(
        f"the server announces {len(BODY) + 1}"
    )
    _nothing_left(store)


def test_an_index_that_lists_another_content_is_an_integrity_error(
    server: Server, store: Store, get: Fetch
) -> None:
    item = server.offer(WHEEL, BODY)
    other = dataclasses.replace(item, sha256="00" * 32)
    assert str(_failure(get, other, IntegrityError)) == (
        f"{server.index}: the index offers {WHEEL} with other content: expected sha256 {other.sha256}, "
        f"it says {item.sha256}"
    )
    assert server.ranges_asked(WHEEL) == []


@pytest.mark.parametrize(
    ("page", "text", "requests"),
    [
        (Page(status=403), "refuses access (HTTP 403)", 1),
        (Page(status=500), "answers with HTTP 500 (3 attempts)", 3),
        (
            Page(status=429, headers={"Retry-After": "999"}),
            "answers with HTTP 429 and asks to wait 999 s",
            1,
        ),
        (Page(hang=True), "did not answer in time (3 attempts)", 3),
        (
            Page(body=BODY, says=-1, ranges=False, cuts=[10] * 9),
            f"ended after 10 of {len(BODY)} bytes (3 attempts)",
            3,
        ),
        (Page(body=BODY, drip=(10, 0.05), ranges=False), "sent only ", 3),
    ],
)
def test_faults_that_stay_are_network_errors(
    server: Server,
    get: Fetch,
    page: Page,
    text: str,
    requests: int,
    *,
    lose_patience: Callable[[Page], None],
) -> None:
    lose_patience(page)
    item = server.offer(WHEEL, BODY)
    server.pages[f"/files/{WHEEL}"] = page
    error = _failure(get, item, NetworkError)
    assert str(error).startswith(f"{server.url}/files/{WHEEL}: {text}")
    assert len(server.ranges_asked(WHEEL)) == requests


def test_progress_renews_patience(
    server: Server, store: Store, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.net.download.PROGRESS", 100_000)
    item = server.offer(WHEEL, BODY, cuts=[100_000] * 9)
    get(item)
    assert len(server.ranges_asked(WHEEL)) == 10
    _only_whole_files(store, item)


def test_a_file_that_is_gone(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    absent = dataclasses.replace(item, file="demo-0.9.zip", sha256="11" * 32)
    error = _failure(get, absent, GoneError)
    assert str(error) == f"{server.index}: demo-0.9.zip is not on the index"
    assert error.hint == "choose another version with: envbuild lock NAME --upgrade demo"
    assert error.code == 5
    del server.pages[f"/files/{WHEEL}"]
    error = _failure(get, item, GoneError)
    assert str(error) == f"{server.url}/files/{WHEEL}: {WHEEL} is gone"
    del server.pages["/simple/demo/"]
    assert (
        str(_failure(get, item, GoneError))
        == f"{server.index}/demo/: the index has no project 'demo'"
    )
    _nothing_left(store)


def test_a_debian_package_that_is_gone(server: Server, get: Fetch) -> None:
    item = server.offer_deb(DEB, b"deb")
    server.pages.clear()
    error = _failure(get, item, GoneError)
    assert str(error) == f"{server.url}/debian/{DEB}: demo_1.0~rc1+b2_amd64.deb is gone"
    assert (
        error.hint
        == "mirrors drop superseded versions; take today's with: envbuild lock NAME --upgrade-system"
    )


def test_debian_packages_need_a_mirror(server: Server, settings: Settings, store: Store) -> None:
    item = server.offer_deb(DEB, b"deb")
    for mirror, text in (
        (None, "no Debian mirror is known on this machine"),
        ("mirror", "'mirror' is not the address of a Debian mirror"),
    ):
        with pytest.raises(UsageError, match=text):
            fetch_artifacts(
                [item],
                Context(settings=settings, runner=ScriptedRunner({}), store=store, report=Silent()),
                debian_mirror=mirror,
            )


def test_one_failure_ends_the_others_at_once_and_they_resume(
    server: Server, store: Store, get: Fetch
) -> None:
    slow = server.offer(WHEEL, BODY, drip=(20_000, 0.02))
    bad = server.offer("bad-1.zip", b"bad")
    server.pages["/files/bad-1.zip"] = Page(status=403, before=lambda: time.sleep(0.1))
    with pytest.raises(NetworkError, match="refuses access"):
        get(slow, bad)
    # the slow one was not waited for
    assert 0 < partial_path(store.artifact(slow.sha256)).stat().st_size < len(BODY)
    server.pages[f"/files/{WHEEL}"].drip = None
    get(slow)
    assert server.ranges_asked(WHEEL)[-1] is not None
    _only_whole_files(store, slow)


def test_a_silent_server_does_not_hold_up_another_files_error(
    server: Server, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.net.web.READ_SECONDS", 60.0)
    silent = server.offer(WHEEL, BODY, hang=True)
    bad = server.offer("bad-1.zip", b"bad")
    server.pages["/files/bad-1.zip"] = Page(status=403, before=lambda: time.sleep(0.1))
    with pytest.raises(NetworkError, match="refuses access"):
        get(silent, bad)
    # had it been waited for, it would have been asked again after those 60 s
    assert len(server.ranges_asked(WHEEL)) <= 1


def test_as_many_at_a_time_as_configured(server: Server, store: Store, get: Fetch) -> None:
    running, most, guard = 0, 0, threading.Lock()
    three = threading.Barrier(3)  # each waits for two others

    def before() -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        three.wait(PATIENCE)
        with guard:
            running -= 1

    wanted = [server.offer(f"demo-{n}.zip", bytes([n]) * 10, before=before) for n in range(9)]
    get(*wanted, downloads=3)
    assert most == 3
    _only_whole_files(store, *wanted)


def test_too_little_space_is_told_before_anything_is_asked(
    server: Server, store: Store, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = server.offer(WHEEL, BODY)
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(1_000_000))
    error = _failure(get, item, SpaceError)
    assert str(error) == f"{store.root}/v1/artifacts: 1.0 MB are to be downloaded, 1.0 MB are free"
    assert error.code == 8
    assert server.asked == []
    _leave(store, item, BODY[:100_000])
    get(item)  # what is there already needs no room
    _only_whole_files(store, item)


@dataclasses.dataclass
class _Usage:
    free: int
    total: int = 10**15


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_may_not_be_written(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    store.root.mkdir()
    store.root.chmod(0o500)
    assert "cannot be written: Permission denied" in str(_failure(get, item, HostError))


def test_a_file_in_the_way_of_the_store(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    store.root.write_text("a file")
    assert "cannot be used: Not a directory" in str(_failure(get, item, HostError))


def test_links_planted_in_the_store_are_replaced_not_followed(
    server: Server, store: Store, get: Fetch, tmp_path: Path
) -> None:
    item = server.offer(WHEEL, BODY)
    victim = tmp_path / "victim"
    victim.write_bytes(b"v" * len(BODY))
    final = store.artifact(item.sha256)
    final.parent.mkdir(parents=True)
    final.symlink_to(victim)
    partial_path(final).symlink_to(victim)
    get(item)
    assert victim.read_bytes() == b"v" * len(BODY)
    assert not final.is_symlink()
    _only_whole_files(store, item)


def test_a_partial_file_that_is_replaced_again_and_again(
    server: Server, store: Store, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member of a group can do it for ever: nobody waits for that."""
    monkeypatch.setattr(partial, "_is_at", lambda _path, _handle: False)
    with pytest.raises(HostError, match="is replaced by another file again and again"):
        get(server.offer(WHEEL, BODY))


def test_a_pipe_planted_as_partial_does_not_hang(server: Server, store: Store, get: Fetch) -> None:
    item = server.offer(WHEEL, BODY)
    path = partial_path(store.artifact(item.sha256))
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    get(item)
    _only_whole_files(store, item)


def test_a_folder_under_the_final_name_is_an_error(
    server: Server, store: Store, get: Fetch
) -> None:
    item = server.offer(WHEEL, BODY)
    store.artifact(item.sha256).mkdir(parents=True)
    assert (
        str(_failure(get, item, HostError))
        == f"{store.artifact(item.sha256)}: cannot be used: Is a directory"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", "../../../etc/passwd"),
        ("sha256", "AB" * 32),
        ("sha256", "ab" * 32 + "\n"),
        ("path", "../../etc/passwd"),
        ("path", "/etc/passwd"),
        ("path", "pool/../x.deb"),
        ("path", "pool//x.deb"),
        ("path", "pool/x.deb\n"),
        ("path", "pool/" + "x" * 400),
        ("path", None),
    ],
)
def test_hostile_hashes_and_paths_are_refused(field: str, value: str | None) -> None:
    good = {
        "file": "x.deb",
        "size": 1,
        "sha256": "ab" * 32,
        "kind": "debian",
        "project": "x",
        "path": "pool/x.deb",
    }
    Artifact(**good)  # type: ignore[arg-type]
    with pytest.raises(IntegrityError, match=r"x\.deb: .* is not a"):
        Artifact(**{**good, field: value})  # type: ignore[arg-type]


def test_an_index_and_a_mirror_in_folders(settings: Settings, store: Store, tmp_path: Path) -> None:
    wheel, deb = tmp_path / "lab index" / WHEEL, tmp_path / "mirror" / DEB
    for path in (wheel, deb):
        path.parent.mkdir(parents=True)
        path.write_bytes(BODY + path.name.encode())
    page = wheel.parent / "demo" / "index.html"
    page.parent.mkdir()
    page.write_text(f'<a href="../{WHEEL}">x</a>')
    wanted = [
        Artifact(
            file=path.name,
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            kind=kind,  # type: ignore[arg-type]
            project="demo",
            path=DEB,
            index="lab",
        )
        for path, kind in ((wheel, "python"), (deb, "debian"))
    ]
    local = dataclasses.replace(settings, indexes={"lab": wheel.parent.as_uri()})
    mirror = (tmp_path / "mirror").as_uri()

    def get() -> None:
        fetch_artifacts(
            wanted,
            Context(settings=local, runner=ScriptedRunner({}), store=store, report=Silent()),
            debian_mirror=mirror,
        )

    _leave(store, wanted[0], BODY)
    get()
    _only_whole_files(store, *wanted)
    store.artifact(wanted[1].sha256).unlink()
    deb.write_bytes(b"other")
    with pytest.raises(IntegrityError, match=rf"expected {wanted[1].size} bytes, it has 5"):
        get()
    deb.unlink()
    with pytest.raises(GoneError, match="is gone"):
        get()
    deb.mkdir()
    with pytest.raises(NetworkError, match="is not a regular file"):
        get()


def test_sizes_are_asked_with_head_or_with_one_byte(
    server: Server, settings: Settings, tmp_path: Path
) -> None:
    server.pages = {
        "/a": Page(body=b"12345"),
        "/b": Page(body=b"1234567", head=False),
        "/c": Page(body=b"123", head=False, ranges=False),
    }
    (tmp_path / "d").write_bytes(b"12")
    urls = [f"{server.url}/{name}" for name in "abca"] + [(tmp_path / "d").as_uri()]
    with make_client(settings) as client:
        assert ask_sizes(urls, client) == dict(zip(dict.fromkeys(urls), (5, 7, 3, 2), strict=True))
    assert sorted((a.method, a.path) for a in server.asked) == [
        ("GET", "/b"),
        ("GET", "/c"),
        ("HEAD", "/a"),
        ("HEAD", "/b"),
        ("HEAD", "/c"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (Page(status=404), "is not there (HTTP 404)"),
        (Page(body=b"123", says=-1, ranges=False), "does not give the size of this file"),
        (Page(status=503), "answers with HTTP 503 (3 attempts)"),
    ],
)
def test_a_size_that_cannot_be_had(
    server: Server, settings: Settings, tmp_path: Path, page: Page, text: str
) -> None:
    server.pages["/a"] = page
    with make_client(settings) as client:
        with pytest.raises(NetworkError) as caught:
            ask_sizes([f"{server.url}/a"], client)
        assert str(caught.value) == f"{server.url}/a: {text}"
        with pytest.raises(GoneError, match="cannot be read: No such file"):
            ask_sizes([(tmp_path / "absent").as_uri()], client)


@dataclasses.dataclass
class Story:
    """What an earlier run left of a file, and how the server behaves now."""

    size: int
    left: int
    cuts: list[int]
    ranges: bool
    spoilt: bool


STORY = st.builds(
    Story,
    size=st.integers(0, 3000),
    left=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 900), max_size=2),
    ranges=st.booleans(),
    spoilt=st.booleans(),
)


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(story=STORY)
def test_whatever_was_left_and_however_it_breaks_off_the_file_is_right(
    server: Server, store: Store, get: Fetch, story: Story
) -> None:
    body = (b"%d,%d;" % (story.size, story.left) * 600)[: story.size]
    server.pages.clear()
    item = server.offer(WHEEL, body, cuts=list(story.cuts), ranges=story.ranges)
    store.artifact(item.sha256).unlink(missing_ok=True)
    _leave(store, item, b"\0" * story.left if story.spoilt else body[: story.left])
    report = get(item)
    assert store.artifact(item.sha256).read_bytes() == body
    assert report.arrived == story.size
