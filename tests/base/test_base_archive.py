"""Images in files: layouts, archives, what docker save writes; whole, ambiguous and damaged."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.base.model import BaseFacts
from envbuild.base.reference import parse_reference
from envbuild.base.sources import describe_base, fetch_base
from envbuild.errors import EnvbuildError, HostError, IntegrityError, UsageError
from envbuild.settings import Settings
from tests.base.ociimages import Image, dist, image_of, tar_of, write_layout
from tests.base.test_base_static import a_python
from tests.support import quiet_context

BASE = tar_of({**a_python(), **dist("/usr/lib/python3.11/site-packages", "torch", "2.5.1")})
IMAGE = image_of(
    BASE, tar_of({"etc/two": "2"}), env=("PATH=/usr/bin",), created="2024-06-01T00:00:00Z"
)


def describe(text: str, settings: Settings) -> BaseFacts:
    return describe_base(parse_reference(text), quiet_context(settings))


def archive(image: Image, folder: Path) -> Path:
    layout = write_layout(image, folder / "layout")
    with tarfile.open(folder / "image.tar", "w") as tar:
        tar.add(layout, arcname=".")
    return folder / "image.tar"


def saved(folder: Path, *tags: str) -> Path:
    """What docker save 20.10 writes: layers as plain tars, one of them twice."""
    folder.mkdir()
    config = json.dumps(IMAGE.config).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    (folder / name).write_bytes(config)
    for number, layer in enumerate((BASE, tar_of({"etc/two": "2"}))):
        (folder / str(number)).mkdir()
        (folder / str(number) / "layer.tar").write_bytes(layer)
    entry = {"Config": name, "Layers": ["0/layer.tar", "1/layer.tar"]}
    (folder / "manifest.json").write_text(
        json.dumps([{**entry, "RepoTags": [tag]} for tag in tags])
    )
    with tarfile.open(folder / "saved.tar", "w") as tar:
        for path in sorted(folder.iterdir()):
            if path.name != "saved.tar":
                tar.add(path, arcname=path.name)
    return folder / "saved.tar"


def test_every_form_of_an_image_has_the_same_facts(tmp_path: Path, user_settings: Settings) -> None:
    write_layout(IMAGE, tmp_path / "oci")
    found = [
        describe(f"oci:{tmp_path / 'oci'}", user_settings),
        describe(f"oci-archive:{archive(IMAGE, tmp_path)}", user_settings),
        describe(f"docker-archive:{saved(tmp_path / 'saved', 'lab/app:1')}", user_settings),
    ]
    assert {facts.framework for facts in found} == {"torch 2.5.1"}
    assert {facts.created for facts in found} == {"2024-06-01"}
    assert [facts.digest for facts in found[:2]] == [IMAGE.digest] * 2


def test_a_build_starts_from_the_stores_copy_even_when_the_file_is_gone(
    tmp_path: Path, user_settings: Settings
) -> None:
    from msgspec import structs

    path = archive(IMAGE, tmp_path)
    reference = parse_reference(f"oci-archive:{path}")
    describe(reference.text, user_settings)
    path.unlink()
    locked = structs.replace(reference, digest=IMAGE.digest)
    header = fetch_base(locked, quiet_context(user_settings))
    assert header[0] == ("Bootstrap", "oci")
    layout = Path(header[1][1])
    assert json.loads((layout / "index.json").read_text())["manifests"][0]["digest"] == IMAGE.digest
    for digest, data in IMAGE.blobs.items():
        assert (layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes() == data
    other = structs.replace(reference, digest="sha256:" + "1" * 64)
    (tmp_path / "again").mkdir()
    archive(IMAGE, tmp_path / "again").rename(path)
    with pytest.raises(IntegrityError, match="holds another image than was locked"):
        fetch_base(other, quiet_context(user_settings))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))


def plant_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def plant_zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def layer_file(folder: Path) -> Path:
    digest = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    return folder / "blobs/sha256" / str(digest).removeprefix("sha256:")


def manifest_file(folder: Path) -> Path:
    return folder / "blobs/sha256" / IMAGE.digest.removeprefix("sha256:")


@pytest.mark.parametrize(
    ("spoil", "kind", "what"),
    [
        (lambda folder: flip(layer_file(folder)), IntegrityError, "the blob sha256:"),
        (lambda folder: flip(manifest_file(folder)), IntegrityError, "the blob sha256:"),
        (lambda folder: layer_file(folder).unlink(), IntegrityError, "holds no blobs/sha256/"),
        (lambda folder: plant_pipe(layer_file(folder)), UsageError, "is no plain file"),
        (lambda folder: plant_zeros(layer_file(folder)), UsageError, "is no plain file"),
        (
            lambda folder: os.truncate(layer_file(folder), 1 << 40),
            IntegrityError,
            "the blob sha256:",
        ),
        (
            lambda folder: (folder / "index.json").unlink(),
            UsageError,
            "is not a folder in the OCI image layout",
        ),
        (
            lambda folder: (folder / "index.json").write_text("{"),
            IntegrityError,
            "is not JSON; it begins '{'",
        ),
    ],
)
def test_a_damaged_layout_is_told(
    spoil: Callable[[Path], None],
    kind: type[EnvbuildError],
    what: str,
    tmp_path: Path,
    user_settings: Settings,
) -> None:
    folder = write_layout(IMAGE, tmp_path / "oci")
    spoil(folder)
    with pytest.raises(kind) as caught:
        describe(f"oci:{folder}", user_settings)
    assert caught.value.what.startswith(what)


def test_files_that_are_no_archives_are_told(tmp_path: Path, user_settings: Settings) -> None:
    (tmp_path / "text").write_text("no tar")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for text, what in (
        ("oci-archive:absent.tar", "there is no such file"),
        ("oci-archive:text", "is no whole tar archive: "),
        ("oci-archive:pipe", "is no plain file"),
        ("docker-archive:pipe", "is no plain file"),
        ("oci-archive:empty.tar", "holds no index.json, so it is no image archive of this kind"),
        (
            "docker-archive:empty.tar",
            "holds no manifest.json, so it is no image archive of this kind",
        ),
    ):
        with pytest.raises(EnvbuildError) as caught:
            describe(text, user_settings)
        assert caught.value.what.startswith(what), text
    two = saved(tmp_path / "two", "lab/app:1", "lab/app:2")
    with pytest.raises(UsageError) as refused:
        describe(f"docker-archive:{two}", user_settings)
    assert refused.value.what == "holds 2 images: lab/app:1, lab/app:2"


def test_a_layouts_tag_chooses(tmp_path: Path, user_settings: Settings) -> None:
    folder = write_layout(IMAGE, tmp_path / "oci")
    index = json.loads((folder / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    (folder / "index.json").write_text(json.dumps(index))
    assert describe(f"oci:{folder}:v1", user_settings).digest == IMAGE.digest
    with pytest.raises(UsageError, match="holds no image with the tag 'v2'"):
        describe(f"oci:{folder}:v2", user_settings)


def test_without_an_engine_it_says_what_to_do(tmp_path: Path, user_settings: Settings) -> None:
    from dataclasses import replace

    settings = replace(user_settings, environment={"DOCKER_HOST": f"unix://{tmp_path}/absent.sock"})
    with pytest.raises(HostError) as caught:
        describe("docker-daemon:lab/app", settings)
    assert caught.value.what.startswith("no Docker engine answers: ")
    assert "DOCKER_HOST" in (caught.value.hint or "")
