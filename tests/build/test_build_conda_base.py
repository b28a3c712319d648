"""conda packages over a base that is conda itself: in its own prefix, with what they replace hidden."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from envbuild.build.stored_plan import plan_image
from envbuild.lock.model import Lock
from envbuild.plan.conda import history_text
from tests.base.ociimages import digest_of, image_of, tar_of
from tests.build.test_build_conda import make, with_conda
from tests.build.test_build_conda_link import MODULE, TOOL
from tests.tiny_build import EPOCH, ROOT, TinyProject

PREFIX = "opt/conda"
HISTORY = "==> 2023-11-14 00:00:00 <==\n+lab/linux-64::tool-0.9-h1_0\n"


def record(name: str, version: str, *files: str) -> dict[str, str]:
    """Return the files of an installed package and its record."""
    told = {"name": name, "version": version, "build": "h1_0", "files": files}
    own = {f"{PREFIX}/{path}": f"{name} {version}\n" for path in files}
    return {**own, f"{PREFIX}/conda-meta/{name}-{version}-h1_0.json": json.dumps(told)}


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return TinyProject(tmp_path / "p", "image")


def on_conda(tiny: TinyProject, site: str = "") -> Lock:
    """Lock a base whose Python lives in /opt/conda."""
    module = f"{PREFIX}/{site or 'lib/python3.1/site-packages'}"
    files = {
        **ROOT,
        **record("tool", "0.9", "bin/tool", "share/old/only"),
        **record("other", "1.0", "share/other"),
        f"{PREFIX}/conda-meta/history": HISTORY,
        f"{module}/own.py": "",
    }
    image = image_of(tar_of(files, time=EPOCH), env=("PATH=/opt/conda/bin:/usr/bin",))
    for blob in (image.manifest, *image.blobs.values()):
        tiny.keep(blob)
    digest = digest_of(image.manifest)
    base = msgspec.structs.replace(tiny.lock.base, digest=digest, conda_prefix=f"/{PREFIX}")
    return msgspec.structs.replace(tiny.lock, base=base)


def test_packages_go_to_the_bases_own_prefix(tiny: TinyProject) -> None:
    tiny.lock = on_conda(tiny)
    lock = with_conda(tiny, MODULE, TOOL)
    for mode in ("flat", "layered"):
        found, _ = make(tiny, lock, mode)
        records = {path for path in found if path.startswith(f"{PREFIX}/conda-meta/")}
        names = {path.rpartition("/")[2] for path in records}
        assert {"tool-1.0-h1_0.json", "other-1.0-h1_0.json", "history"} <= names
        # the older tool makes room: its record and what only it had
        assert "tool-0.9-h1_0.json" not in names
        assert f"{PREFIX}/share/old/only" not in found
        assert f"{PREFIX}/share/other" in found
        minor = lock.base.python.rpartition(".")[0]
        assert f"{PREFIX}/lib/python{minor}/site-packages/module/where.py" in found
        assert not any(path.startswith("opt/env") for path in found)


def test_the_history_goes_on(tiny: TinyProject) -> None:
    tiny.lock = on_conda(tiny)
    lock = msgspec.structs.replace(with_conda(tiny, TOOL), conda_direct=("tool",))
    found, _ = make(tiny, lock)
    text = HISTORY + history_text(lock)
    assert text.count("==> ") == 2
    assert found[f"{PREFIX}/conda-meta/history"] == hashlib.sha256(text.encode()).hexdigest()


def test_made_once_all_is_stored(tiny: TinyProject) -> None:
    tiny.lock = on_conda(tiny)
    lock = with_conda(tiny, TOOL)
    make(tiny, lock)
    parts = plan_image(tiny.spec("flat", lock), tiny.store).parts
    assert [part.subject for part in parts if part.state != "stored"] == []
    assert "hidden" in [part.kind for part in parts if part.layer == "conda"]
