"""Pulling from registries that work, refuse, limit, lie and break off."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.base.oci import registry
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError, UsageError
from envbuild.formats import oci
from envbuild.formats.image_name import ImageName, parse_image_name
from envbuild.net import web
from envbuild.net.web import SERVER_HINT, GoneError
from envbuild.settings import Settings
from envbuild.settings_file import Registry
from envbuild.store.layout import Store
from tests.base.ociimages import Image, digest_of, image_of, index_of, tar_of
from tests.base.registry_server import Answer, FakeRegistry, serving
from tests.support import quiet_context

SMALL = image_of(tar_of({"etc/one": "1"}), tar_of({"etc/two": "2"}))
OTHER = image_of(tar_of({"etc/one": "3"}), architecture="arm64")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    with serving(FakeRegistry()) as server:
        yield server


@pytest.fixture
def settings(user_settings: Settings, fake: FakeRegistry) -> Settings:
    return replace(user_settings, registries={fake.host: Registry(plain_http=True)})


def pull(text: str, settings: Settings, platform: str = "linux/amd64") -> oci.OciImage:
    name = parse_image_name(text)
    context = quiet_context(settings)
    image = registry.resolve_image(name, platform, context)
    registry.download_layers(name, image, context)
    return image


def is_stored(image: Image, settings: Settings) -> bool:
    store = Store(settings.store)
    return all(
        store.artifact(digest.removeprefix("sha256:")).read_bytes() == data
        for digest, data in {**image.blobs, image.digest: image.manifest}.items()
    )


def log_in(settings: Settings, host: str, password: str) -> None:
    folder = settings.home / ".docker"
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(f"ci:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def test_a_tag_becomes_a_digest_and_every_blob_is_in_the_store(
    fake: FakeRegistry, settings: Settings
) -> None:
    digest = fake.add(SMALL, "lab/app", "1.0")
    image = pull(f"{fake.host}/lab/app:1.0", settings)
    assert image.digest == digest
    assert is_stored(SMALL, settings)
    before = len(fake.asked)
    pull(f"{fake.host}/lab/app@{digest}", settings)
    assert [path.split("/")[4] for path in fake.asked[before:]] == ["manifests"]


def test_the_platform_chooses_from_an_index(fake: FakeRegistry, settings: Settings) -> None:
    fake.add_index(index_of(("amd64", SMALL), ("arm64", OTHER)), "lab/app", "1.0", SMALL, OTHER)
    assert pull(f"{fake.host}/lab/app:1.0", settings).digest == SMALL.digest
    assert pull(f"{fake.host}/lab/app:1.0", settings, "linux/arm64").digest == OTHER.digest


def failure(text: str, settings: Settings, platform: str = "linux/amd64") -> EnvbuildError:
    with pytest.raises(EnvbuildError) as caught:
        pull(text, settings, platform)
    return caught.value


def test_another_architecture_is_told(fake: FakeRegistry, settings: Settings) -> None:
    fake.add_index(index_of(("arm64", OTHER)), "lab/app", "index", OTHER)
    error = failure(f"{fake.host}/lab/app:index", settings)
    assert error.what == "the image is not there for linux/amd64"
    assert error.hint == "it is there for: linux/arm64 ([base] platform chooses)"
    fake.add(OTHER, "lab/app", "plain")
    error = failure(f"{fake.host}/lab/app:plain", settings)
    assert error.what == "the image is for linux/arm64, not for linux/amd64"
    assert isinstance(error, UsageError)


def test_an_unknown_tag_names_the_nearest(fake: FakeRegistry, settings: Settings) -> None:
    for tag in ("2.15.0", "2.15.0-gpu", "2.14.0-gpu", "nightly"):
        fake.add(SMALL, "tensorflow/tensorflow", tag)
    error = failure(f"{fake.host}/tensorflow/tensorflow:2.15-gpu", settings)
    assert isinstance(error, GoneError)
    assert error.what == "the image has no such tag"
    assert error.hint is not None
    assert error.hint.startswith("nearest of 4 tags: 2.15.0-gpu, ")
    error = failure(f"{fake.host}/tensorflw/tensorflow:2.15-gpu", settings)
    assert error.what == "the registry has no such image"
    error = failure(f"{fake.host}/tensorflow/tensorflow@sha256:{'1' * 64}", settings)
    assert error.what == "the registry does not hold this image (any more)"
    assert error.hint is not None
    assert error.hint.startswith("of a lock: take what the tag means today, envbuild lock NAME; ")


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_credentials_are_taken_from_where_docker_keeps_them(
    auth: str, fake: FakeRegistry, settings: Settings
) -> None:
    fake.auth = auth
    fake.add(SMALL, "lab/app", "1.0")
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert error.what == "the registry refuses access (HTTP 401)"
    assert error.hint is not None
    assert f"apptainer registry login -u USER docker://{fake.host}" in error.hint
    log_in(settings, fake.host, "wrong")
    assert (
        failure(f"{fake.host}/lab/app:1.0", settings).what
        == "the registry refuses access (HTTP 401)"
    )
    log_in(settings, fake.host, "secret")
    pull(f"{fake.host}/lab/app:1.0", settings)
    assert is_stored(SMALL, settings)


def test_a_token_that_has_run_out_is_fetched_again(fake: FakeRegistry, settings: Settings) -> None:
    fake.auth = "bearer"
    fake.add(SMALL, "lab/app", "1.0")
    log_in(settings, fake.host, "secret")

    def expire(path: str, answer: Answer) -> Answer:
        if "/manifests/" in path and answer[0] == 200:
            fake.tokens += 1
        return answer

    fake.spoil = expire
    pull(f"{fake.host}/lab/app:1.0", settings)
    assert sum(path.startswith("/token") for path in fake.asked) >= 2


def test_a_registry_that_cannot_be_reached_names_the_ways_round_it(
    user_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    error = failure("127.0.0.1:9/lab/x:1", user_settings)
    assert isinstance(error, NetworkError)
    assert error.what.startswith("cannot be reached")
    hint = error.hint or ""
    assert '[registries."127.0.0.1:9"] mirrors = ["https://…"]' in hint
    assert 'bootstrap = "debian:bookworm"' in hint


def test_no_access_is_told_as_such(fake: FakeRegistry, settings: Settings) -> None:
    fake.spoil = lambda _path, _answer: (403, {}, b"<html>sha256:no</html>")
    assert (
        failure(f"{fake.host}/lab/app:1.0", settings).what
        == "the registry refuses access (HTTP 403)"
    )


def test_a_limit_is_waited_for_and_then_explained(fake: FakeRegistry, settings: Settings) -> None:
    fake.add(SMALL, "lab/app", "1.0")
    left = [2]

    def limit(_path: str, answer: Answer) -> Answer:
        left[0] -= 1
        body = json.dumps(
            {"errors": [{"code": "TOOMANYREQUESTS", "message": "sha256:" + "0" * 64}]}
        ).encode()
        return (429, {"Retry-After": "0"}, body) if left[0] >= 0 else answer

    fake.spoil = limit
    assert pull(f"{fake.host}/lab/app:1.0", settings).digest == SMALL.digest
    left[0] = 1000
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert (
        error.what == "the registry limits how much is pulled: answers with HTTP 429 (5 attempts)"
    )
    assert "docker login" in (error.hint or "")


def test_a_sick_registry_is_told_after_five_attempts(
    fake: FakeRegistry, settings: Settings
) -> None:
    fake.spoil = lambda _path, _answer: (500, {}, b"oops")
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert error.what == "answers with HTTP 500 (5 attempts)"
    assert error.hint == SERVER_HINT
    assert isinstance(error, NetworkError)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"toomanyrequests: sha256:" + b"0" * 64, "is not JSON; it begins 'toomanyrequests: sha256:"),
        (b'{"errors": []}', "is not the manifest of an image: "),
        (b"[1]", "is not a JSON object"),
        (b'{"schemaVersion": 1, "name": "x"}', "is in Docker's old manifest format (schema 1)"),
        (b'{"config": {"mediaType": "x/y", "digest": "sha256:../../x", "size": 1}, "layers": []}', "is not the manifest of an image: "),
        (b'{"config": {"mediaType": "text/helm", "digest": "sha256:%b", "size": 1}, "layers": []}' % (b"1" * 64), "is not a container image but text/helm"),
        (b"x" * 5_000_000, "sends more than 4194304 bytes: too much for such an answer"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_never_taken_for_one(
    body: bytes, what: str, fake: FakeRegistry, settings: Settings
) -> None:
    fake.spoil = lambda _path, _answer: (200, {}, body)
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert error.what.startswith(what)


def test_other_bytes_than_the_digest_names_are_refused(
    fake: FakeRegistry, settings: Settings
) -> None:
    fake.add(SMALL, "lab/app", "1.0")
    fake.manifests[f"lab/app:{SMALL.digest}"] = (OTHER.manifest, "application/json")
    error = failure(f"{fake.host}/lab/app@{SMALL.digest}", settings)
    assert isinstance(error, IntegrityError)
    assert error.what == (
        f"the registry sent other bytes than it names: expected {SMALL.digest}, got {digest_of(OTHER.manifest)}"
    )


def layers(image: Image) -> list[str]:
    return [str(layer["digest"]) for layer in json.loads(image.manifest)["layers"]]


def test_swapped_flipped_and_truncated_layers_are_refused(
    fake: FakeRegistry, settings: Settings
) -> None:
    fake.add(SMALL, "lab/app", "1.0")
    first, second = layers(SMALL)
    whole = dict(fake.blobs)
    fake.blobs |= {first: whole[second].ljust(len(whole[first]), b"x")[: len(whole[first])]}
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert isinstance(error, IntegrityError)
    assert f"expected sha256 {first[7:]}" in error.what
    fake.blobs[first] = whole[first][:-3]
    error = failure(f"{fake.host}/lab/app:1.0", settings)
    assert isinstance(error, IntegrityError)
    assert f"expected {len(whole[first])} bytes" in error.what
    assert not Store(settings.store).artifact(first[7:]).exists()
    del fake.blobs[first]
    assert isinstance(failure(f"{fake.host}/lab/app:1.0", settings), GoneError)
    fake.blobs[first] = whole[first]
    pull(f"{fake.host}/lab/app:1.0", settings)
    assert is_stored(SMALL, settings)


def test_a_mirror_is_asked_first_and_passed_over_when_it_lacks_the_image(
    fake: FakeRegistry, user_settings: Settings
) -> None:
    with serving(FakeRegistry()) as mirror:
        reached = {
            fake.host: Registry(mirrors=(f"{mirror.url}/cache/hub",), plain_http=True),
        }
        settings = replace(user_settings, registries=reached)
        fake.add(SMALL, "lab/app", "1.0")
        assert pull(f"{fake.host}/lab/app:1.0", settings).digest == SMALL.digest
        assert mirror.asked[0] == "/v2/cache/hub/lab/app/manifests/1.0"
        mirror.add(OTHER, "cache/hub/lab/app", "2.0")
        before = len(fake.asked)
        pull(f"{fake.host}/lab/app:2.0", settings, "linux/arm64")
        assert len(fake.asked) == before


def test_plain_http_is_found_out_on_this_machine_only(
    fake: FakeRegistry, user_settings: Settings
) -> None:
    fake.add(SMALL, "lab/app", "1.0")
    assert pull(f"{fake.host}/lab/app:1.0", user_settings).digest == SMALL.digest


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ubuntu", ImageName(registry="docker.io", repository="library/ubuntu")),
        ("ubuntu:22.04", ImageName(registry="docker.io", repository="library/ubuntu", tag="22.04")),
        ("org/app@sha256:" + "a" * 64, ImageName(registry="docker.io", repository="org/app", digest="sha256:" + "a" * 64)),
        ("localhost/app", ImageName(registry="localhost", repository="app")),
        ("reg.lab:5000/a/b/c:x", ImageName(registry="reg.lab:5000", repository="a/b/c", tag="x")),
        ("[::1]:5000/a", ImageName(registry="[::1]:5000", repository="a")),
    ],
)  # fmt: skip
def test_names_are_taken_apart_as_docker_does(text: str, name: ImageName) -> None:
    assert parse_image_name(text) == name


def test_settings_of_registries_are_checked(tmp_path: Path) -> None:
    from envbuild.settings import load_settings

    pattern = r"^https?://[^\s@]+\Z"
    config = tmp_path / "config.toml"
    env = {"HOME": str(tmp_path), "ENVBUILD_CONFIG": str(config)}
    config.write_text('[registries."docker.io"]\nmirrors = ["http://127.0.0.1:5000/"]\n')
    assert load_settings(env, tmp_path).registries == {
        "docker.io": Registry(mirrors=("http://127.0.0.1:5000/",))
    }
    for text, what in (
        (
            'mirror = ["http://x"]',
            "unknown key 'mirror' in [registries]; did you mean \"mirrors\"?",
        ),
        ('mirrors = ["x"]', f"registries.mirrors: takes text that matches {pattern!r}"),
        (
            'mirrors = ["https://user:pw@x"]',
            f"registries.mirrors: takes text that matches {pattern!r}",
        ),
        ("plain-http = 1", "registries.plain-http: takes true or false, not a whole number"),
    ):
        config.write_text(f'[registries."docker.io"]\n{text}\n')
        with pytest.raises(UsageError) as caught:
            load_settings(env, tmp_path)
        assert caught.value.what == what
        assert caught.value.where == f"{config}, line 1"
