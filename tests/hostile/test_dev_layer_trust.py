"""A development layer that came with a stranger's folder, and one that was changed afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.app.dev.layer import (
    DevRecord,
    EditableFolder,
    image_elsewhere,
    mount_layer,
    record_path,
    write_record,
)
from envbuild.base.digests import known_digest, known_sha256
from envbuild.build.make import building
from envbuild.errors import IntegrityError
from envbuild.store.layout import Store
from tests.tiny_build import TinyProject


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    project = TinyProject(tmp_path / "p")
    with building(project.spec(), project.context):
        pass
    return project


def write_layer(tiny: TinyProject, **changes: object) -> Path:
    """Write a layer over the tiny image as add --dev does, with these fields."""
    layer = tiny.folder / "flat.dev-0123456789ab.sqfs"
    layer.write_bytes(b"hsqs" + bytes(4092))
    fields = {
        "image": known_digest(tiny.folder / "flat.sif", tiny.store),
        "layer": layer.name,
        "size": 4096,
        "sha256": known_sha256(layer, tiny.store),
        "lock": tiny.lock,
        **changes,
    }
    path = record_path(tiny.folder, "flat")
    write_record(DevRecord(**fields), path, tiny.store)  # type: ignore[arg-type]
    return path


def forget_layers(store: Store) -> None:
    """Make the store that of another user, who has made none of the layers."""
    for note in (store.root / "v1/dev").iterdir():
        note.unlink()


def test_ones_own_layer_is_mounted(tiny: TinyProject) -> None:
    mounted = mount_layer(tiny.folder / "flat.sif", write_layer(tiny), tiny.context)
    assert mounted is not None
    assert mounted.overlay == tiny.folder / "flat.dev-0123456789ab.sqfs"


def test_a_strangers_layer_binds_nothing_and_runs_nothing(tiny: TinyProject) -> None:
    secret = EditableFolder(name="innocent", folder=str(tiny.folder))
    path = write_layer(tiny, editable=(secret,))
    forget_layers(tiny.store)
    with pytest.raises(IntegrityError, match="came with the folder") as caught:
        mount_layer(tiny.folder / "flat.sif", path, tiny.context)
    assert "envbuild add --dev flat" in str(caught.value.hint)


def test_a_strangers_layer_starts_no_image_elsewhere(tiny: TinyProject) -> None:
    path = write_layer(tiny, over=str(tiny.folder / "flat.sif"))
    named = path.rename(path.with_name("other.dev.json"))
    assert image_elsewhere(tiny.folder, "other", tiny.store) == tiny.folder / "flat.sif"
    forget_layers(tiny.store)
    with pytest.raises(IntegrityError, match="came with the folder"):
        image_elsewhere(tiny.folder, "other", tiny.store)
    assert named.exists()


def test_a_layer_of_other_bytes_is_refused(tiny: TinyProject) -> None:
    path = write_layer(tiny)
    layer = tiny.folder / "flat.dev-0123456789ab.sqfs"
    layer.write_bytes(b"hsqs" + bytes(4091) + b"x")
    with pytest.raises(IntegrityError, match="gone or damaged"):
        mount_layer(tiny.folder / "flat.sif", path, tiny.context)


@pytest.mark.parametrize("name", ["../../etc/x.sqfs", "a/b.dev-0123456789ab.sqfs", "x.sqfs", ""])
def test_a_layer_lies_beside_its_record(tiny: TinyProject, name: str) -> None:
    path = write_layer(tiny, layer=name)
    with pytest.raises(IntegrityError, match="cannot be read"):
        mount_layer(tiny.folder / "flat.sif", path, tiny.context)
