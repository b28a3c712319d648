"""A network that breaks off, and a server that drips: each kind of download ends with a word and goes on next time."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from envbuild import limits
from envbuild.base.debian import apt, apt_config
from envbuild.base.oci.registry import download_layers, resolve_image
from envbuild.conda.limited import choose_limited
from envbuild.conda.model import CondaRequest
from envbuild.context import Context, open_context
from envbuild.errors import IntegrityError, NetworkError
from envbuild.formats.image_name import parse_image_name
from envbuild.net import web
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.net.git import ask_patiently
from envbuild.net.index import make_client, read_links
from envbuild.progress import Silent, SilentStage
from envbuild.resolve.model import Request
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources import git as git_sources
from envbuild.resolve.sources.artifacts import describe_files
from envbuild.resolve.sources.git import checkout
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.run import LocalRunner, Result
from envbuild.settings import Settings
from envbuild.settings_file import Registry
from envbuild.shelf import git as shelf_git
from envbuild.shelf.git import BRANCH, GitBackend
from tests.base.debian_mirror import Mirror
from tests.base.ociimages import MANIFEST, image_of, tar_of
from tests.conda.channels import Package, make_channel
from tests.hostile.broken_server import ANSWERS, FAULTS, BrokenServer, Fault, serving
from tests.resolve.conftest import base, sdist_bytes
from tests.support import needs

BODY = bytes(range(256)) * 1000
HTML = "text/html"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of download: the end of the address that is broken, what an error must name, and how it is fetched."""

    broken: str
    named: str
    fetch: Callable[[Context], object]


Maker = Callable[[BrokenServer, Path], Kind]
KINDS: dict[str, Maker] = {}


def kind(made: Maker) -> Maker:
    KINDS[made.__name__] = made
    return made


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def listed(server: BrokenServer, file: str, body: bytes) -> None:
    """Put a file on the index."""
    server.offer(f"/files/{file}", body)
    link = f'<a href="/files/{file}#sha256={sha256(body)}">{file}</a>'
    server.offer("/simple/demo/", f"<!DOCTYPE html><html>{link}{' ' * 5000}</html>".encode(), HTML)


def artifact(file: str, body: bytes, **more: str) -> Artifact:
    told = {"kind": "python", "project": "demo", **more}
    return Artifact(file=file, size=len(body), sha256=sha256(body), **told)  # type: ignore[arg-type]


@kind
def page_of_an_index(server: BrokenServer, _: Path) -> Kind:
    listed(server, "demo-1.0-py3-none-any.whl", BODY)

    def fetch(context: Context) -> None:
        with make_client(context.settings) as client:
            read_links(f"{server.url}/simple", "demo", client)

    return Kind(broken="/demo/", named="/simple/demo/", fetch=fetch)


@kind
def page_of_an_index_for_uv(server: BrokenServer, folder: Path) -> Kind:
    wheel = write_wheel(folder, "demo", "1.0", ())
    listed(server, wheel.name, wheel.read_bytes())

    def fetch(context: Context) -> None:
        UvResolver(context)(Request(facts=base(), requirements=("demo",)))

    return Kind(broken="/demo/", named="/simple/demo/", fetch=fetch)


@kind
def wheel(server: BrokenServer, _: Path) -> Kind:
    file = "demo-1.0-py3-none-any.whl"
    listed(server, file, BODY)
    wanted = [artifact(file, BODY)]
    return Kind(broken=file, named=file, fetch=lambda context: fetch_artifacts(wanted, context))


@kind
def source_archive(server: BrokenServer, _: Path) -> Kind:
    body = sdist_bytes(
        "demo-1.0", {"PKG-INFO": "Metadata-Version: 2.2\nName: demo\nVersion: 1.0\n"}
    )
    file = "demo-1.0.tar.gz"
    found = Candidate(
        file=file, url=server.offer(f"/{file}", body), sha256=sha256(body), size=len(body)
    )
    return Kind(broken=file, named=file, fetch=lambda context: describe_files([found], context))


@kind
def metadata_of_a_wheel_by_range(server: BrokenServer, folder: Path) -> Kind:
    path = write_wheel(folder, "demo", "1.0", ())
    body = path.read_bytes()
    found = Candidate(file=path.name, url=server.offer(f"/{path.name}", body), sha256=sha256(body))
    return Kind(
        broken=path.name, named=path.name, fetch=lambda context: describe_files([found], context)
    )


def test_what_files_say_is_written_through_no_link(
    server: BrokenServer, context: Context, tmp_path: Path
) -> None:
    """Another member of the group may put links where the store remembers it."""
    made, precious = metadata_of_a_wheel_by_range(server, tmp_path), tmp_path / "precious"
    made.fetch(context)
    kept = list((context.store.root / "v1/metadata").glob("*.json"))
    precious.write_text("mine")
    for path in kept:
        path.unlink()
        path.symlink_to(precious)
    made.fetch(context)
    assert kept
    assert precious.read_text() == "mine"


@kind
def debian_package(server: BrokenServer, _: Path) -> Kind:
    path = "pool/main/d/demo/demo_1.0_all.deb"
    server.offer(f"/debian/{path}", BODY)
    wanted = [artifact("demo_1.0_all.deb", BODY, kind="debian", path=path)]
    mirror = f"{server.url}/debian"
    return Kind(
        broken=".deb",
        named="demo_1.0_all.deb",
        fetch=lambda context: fetch_artifacts(wanted, context, debian_mirror=mirror),
    )


@kind
def conda_package(server: BrokenServer, _: Path) -> Kind:
    file = "demo-1.0-0.conda"
    server.offer(f"/lab/noarch/{file}", BODY)
    wanted = [artifact(file, BODY, kind="conda", path=f"noarch/{file}", index="lab")]
    return Kind(broken=file, named=file, fetch=lambda context: fetch_artifacts(wanted, context))


IMAGE = image_of(tar_of({"etc/one": "1" * 5000}))


def pulled(server: BrokenServer) -> Callable[[Context], object]:
    """Serve an image; return what pulls it."""
    server.offer("/v2/lab/app/manifests/1.0", IMAGE.manifest, MANIFEST)
    for digest, body in IMAGE.blobs.items():
        server.offer(f"/v2/lab/app/blobs/{digest}", body)
    name = parse_image_name(f"{server.url.removeprefix('http://')}/lab/app:1.0")

    def fetch(context: Context) -> None:
        image = resolve_image(name, "linux/amd64", context)
        download_layers(name, image, context)

    return fetch


@kind
def manifest(server: BrokenServer, _: Path) -> Kind:
    return Kind(broken="/manifests/1.0", named="/lab/app", fetch=pulled(server))


@kind
def layer(server: BrokenServer, _: Path) -> Kind:
    digest, _body = max(IMAGE.blobs.items(), key=lambda blob: len(blob[1]))
    return Kind(broken=digest, named=digest, fetch=pulled(server))


@kind
def list_of_a_conda_channel(server: BrokenServer, folder: Path) -> Kind:
    server.offer_folder("/lab", make_channel(folder / "lab", [Package(name="a")], compressed=False))
    asked = CondaRequest(specs=("a",), channels=("lab",), machine="x86_64", glibc="2.36")
    return Kind(
        broken="/repodata.json", named="lab", fetch=lambda context: choose_limited(asked, context)
    )


def repository(folder: Path) -> Path:
    """Return a bare repository with one commit, as a server of plain files shows it."""

    def git(place: Path, *words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@lab.invalid")
        subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True)

    work = folder / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "large").write_bytes(os.urandom(5000))
    git(work, "add", ".")
    git(work, "commit", "-qm", "x")
    git(folder, "clone", "-q", "--bare", "work", "bare")
    git(folder / "bare", "repack", "-adq")
    git(folder / "bare", "update-server-info")
    return folder / "bare"


@kind
def git_repository(server: BrokenServer, folder: Path) -> Kind:
    url = server.offer_folder("/tool.git", repository(folder))
    places = (folder / str(number) for number in range(9))
    return Kind(
        broken=".pack",
        named="/tool.git",
        fetch=lambda context: checkout(url, "main", next(places), context),
    )


@kind
def shelf_by_git(server: BrokenServer, folder: Path) -> Kind:
    url = server.offer_folder("/shelf.git", repository(folder))

    def fetch(context: Context) -> None:
        assert GitBackend(url, context)._fetch(), BRANCH

    return Kind(broken=".pack", named="/shelf.git", fetch=fetch)


@pytest.fixture
def server() -> Iterator[BrokenServer]:
    with serving() as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[pytest.MonkeyPatch]:
    """Give up after seconds, where an honest server gets minutes; undone, the minutes are back."""
    patch = pytest.MonkeyPatch()
    for module, name, value in (
        (web, "FIRST_PAUSE", 0.005),
        (web, "TRIES", 2),
        (limits, "STALL_SECONDS", 1.0),
        (limits, "ANSWER_SECONDS", 1.0),
        (limits, "FILE_SECONDS", 2.0),
        (limits, "QUESTION_SECONDS", 4.0),
        (limits, "SEARCH_SECONDS", 0.5),
        (limits, "CHANNEL_SECONDS", 6.0),
        (git_sources, "SECONDS", 2.0),
        (shelf_git, "SECONDS", 2.0),
    ):
        patch.setattr(module, name, value)
    yield patch
    patch.undo()


@pytest.fixture
def context(
    user_settings: Settings,
    server: BrokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Context:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # channels are read in another process, which has the file alone
    config = tmp_path / "config.toml"
    config.write_text(f'[channels]\nlab = "{server.url}/lab"\n')
    own = {
        "ENVBUILD_CONFIG": str(config),
        "UV_HTTP_RETRIES": "0",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "NO_PROXY": "127.0.0.1",
    }
    settings = replace(
        user_settings,
        environment={**user_settings.environment, **own},
        indexes={"default": f"{server.url}/simple"},
        channels={"lab": (f"{server.url}/lab",)},
        registries={server.url.removeprefix("http://"): Registry(plain_http=True)},
        debian_mirror=f"{server.url}/debian",
        certificates=tmp_path / "home",
    )
    return open_context(settings, LocalRunner(), Silent())


def half_written(folder: Path, bodies: list[bytes]) -> list[Path]:
    """Return the files with a final name that hold the beginning of something and not all of it."""
    found = []
    for path in folder.rglob("*"):
        # rattler has such names for what is not whole, apt a folder
        named = not path.name.endswith(".partial") and not path.name.startswith(".tmp")
        if path.is_file() and named and path.parent.name != "partial":
            data = path.read_bytes()
            found += [
                path for body in bodies if 64 < len(data) < len(body) and body[: len(data)] == data
            ]
    return found


def broken_off(
    made: Kind,
    fault: Fault,
    server: BrokenServer,
    context: Context,
    impatient: pytest.MonkeyPatch,
) -> None:
    """Fetch from a server that fails, then from the same one mended."""
    server.fault, server.broken = fault, made.broken
    with pytest.raises(NetworkError) as caught:
        made.fetch(context)
    assert caught.value.code == 5
    assert server.hits > 0, caught.value
    assert made.named in f"{caught.value} {caught.value.hint}"
    bodies = [body for path, (_, body) in server.files.items() if path.endswith(made.broken)]
    assert half_written(context.store.root, bodies) == []
    server.fault = None
    impatient.undo()
    made.fetch(context)


@pytest.mark.parametrize("fault", [*FAULTS, *ANSWERS])
@pytest.mark.parametrize("name", KINDS)
def test_it_is_told_keeps_no_half_and_goes_on(
    name: str,
    fault: Fault,
    server: BrokenServer,
    context: Context,
    tmp_path: Path,
    *,
    impatient: pytest.MonkeyPatch,
) -> None:
    broken_off(KINDS[name](server, tmp_path), fault, server, context, impatient)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", [name for name in KINDS if "uv" not in name])
def test_a_failure_that_passes_is_asked_again(
    name: str, server: BrokenServer, context: Context, tmp_path: Path
) -> None:
    """uv's own tries are switched off here."""
    made = KINDS[name](server, tmp_path)
    server.fault, server.broken = "once", made.broken
    made.fetch(context)
    assert server.hits == 1


SAID_BY_GIT = {
    "fatal: unable to access 'http://a/x/': The requested URL returned error: 503": True,
    "fatal: unable to access 'http://a/x/': The requested URL returned error: 403": False,
    "fatal: unable to access 'http://a/x/': Empty reply from server": True,
    "fatal: unable to access 'http://a/x/': transfer closed with 966 bytes remaining to read": True,
    "fatal: unable to access 'http://a/x/': Recv failure: Connection reset by peer": True,
    "fatal: unable to access 'http://a/x/': Could not resolve host: a": True,
    "fatal: unable to access 'http://a/x/': Maximum (20) redirects followed": False,
    "fatal: unable to connect to a:\na[0: 127.0.0.1]: errno=Connection refused": True,
    "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502": True,
    "ssh: connect to host a port 22: Connection refused\nfatal: Could not read": True,
    "fatal: repository 'http://a/x/' not found": False,
    "fatal: couldn't find remote ref main": False,
    "fatal: the remote end hung up unexpectedly": False,
}
"""Recorded of git 2.39 and OpenSSH 9.2; whether it may pass."""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("said", "passes"), SAID_BY_GIT.items(), ids=range(len(SAID_BY_GIT)))
def test_what_git_says_of_a_failure_that_may_pass(said: str, *, passes: bool) -> None:
    answers = [Result(argv=(), code=code, stdout="", stderr=said, seconds=0.0) for code in (0, 128)]
    told = ask_patiently(answers.pop, "http://a.invalid/x", "wait")
    assert (told.code == 0, len(answers)) == (passes, 0 if passes else 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", [name for name in KINDS if "page" not in name])
def test_half_that_is_said_to_be_all(
    name: str, server: BrokenServer, context: Context, tmp_path: Path
) -> None:
    made = KINDS[name](server, tmp_path)
    server.fault, server.broken = "short", made.broken
    with pytest.raises((NetworkError, IntegrityError)) as caught:
        made.fetch(context)
    assert made.named in f"{caught.value} {caught.value.hint}"
    bodies = [body for path, (_, body) in server.files.items() if path.endswith(made.broken)]
    assert half_written(context.store.root, bodies) == []
    server.fault = None
    made.fetch(context)


@pytest.fixture
def mirror(
    server: BrokenServer,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A Debian mirror on the server."""
    # a short path: the socket of gpg's agent has to fit into 107 bytes (unix(7))
    folder = tmp_path_factory.mktemp("k")
    made = Mirror(folder / "debian", folder / "k" / "ring.gpg")
    made.make_key()
    made.add("apt", architecture="amd64")
    made.publish()
    made.stop()
    monkeypatch.setattr(apt_config, "KEYRING", made.keyring)
    return server.offer_folder("/debian", made.folder)


@pytest.mark.live
@needs("apt-get", "dpkg-deb", "gpg", "gpgv", "gpgconf")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("broken", ["/Packages", "/InRelease"])
def test_lists_of_debian(
    broken: str,
    fault: Fault,
    mirror: str,
    server: BrokenServer,
    context: Context,
    *,
    impatient: pytest.MonkeyPatch,
) -> None:
    made = Kind(
        broken=broken,
        named=mirror,
        fetch=lambda context: apt.read_lists("bookworm", context, SilentStage()),
    )
    broken_off(made, fault, server, context, impatient)
