"""The shipped recipe keras-bert-hub, word by word, on a real TensorFlow that a registry on this machine serves."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from envbuild.lock.read import read_lock
from tests.base.ociimages import push
from tests.base.tensorflow_image import framework_wheels, tensorflow_image
from tests.project import Project, shared_store
from tests.support import needs

pytestmark = [
    pytest.mark.live,
    needs("apptainer", "docker-registry", "mmdebstrap"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the image is for amd64"),
]
SHARED = ("answers", "artifacts", "built", "metadata")
"""What has nothing of the image in it: it is pulled, read and packed in every run."""
INSIDE = """\
import importlib.metadata, importlib.util, os
print(*(importlib.metadata.version(name) for name in ("tensorflow", "keras", "keras-bert")))
print(*(importlib.util.find_spec(name).origin for name in ("tensorflow", "keras_bert")))
print(*(os.environ[name] for name in ("CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES", "LANG")))
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty folder, whose store shares with others what comes from the package index alone."""
    store = tmp_path / "store"
    (store / "v1").mkdir(parents=True)
    for name in SHARED:
        (shared_store() / "v1" / name).mkdir(parents=True, exist_ok=True)
        (store / "v1" / name).symlink_to(shared_store() / "v1" / name)
    return Project(tmp_path / "project", store)


def test_keras_bert_on_a_real_tensorflow_of_a_registry(
    registry: str, project: Project, tmp_path: Path
) -> None:
    """Only where Docker Hub is found is this machine's own setting; the check trains a tiny BERT on the CPU."""
    digest = push(
        tensorflow_image(tmp_path / "root"), registry, "hub/tensorflow/tensorflow", "2.15.0-gpu"
    )
    project.write(
        "home/.config/envbuild/config.toml",
        f'[registries."docker.io"]\nmirrors = ["{registry}/hub"]\n',
    )
    project.succeed("lock", "keras-bert-hub")
    lock = read_lock(project.folder / "lockfiles/keras-bert-hub.lock")
    own = {package.name: package.version for package in framework_wheels()}
    number = own["tensorflow"]
    assert lock.base.digest == digest
    assert (lock.base.reference, lock.base.framework) == (
        "docker://tensorflow/tensorflow:2.15.0-gpu",
        f"tensorflow {number}",
    )
    assert (lock.base.python_path, lock.base.cuda) == ("/usr/bin/python3", "12.3")
    assert lock.as_of == "2024-06-06", "90 days after the image was made"
    assert not lock.moved
    brought = {package.name: package.version for package in lock.python}
    assert brought["keras-bert"] == "0.89.0"
    assert {"transformers", "sentencepiece", "scikit-learn", "matplotlib"} <= set(brought)
    assert not set(own) & {p.name for p in lock.python if p.group == "project"}, (
        "the base's own stay"
    )
    assert registry not in (project.folder / "lockfiles/keras-bert-hub.lock").read_text()

    made = project.succeed("make", "keras-bert-hub", "--no-check")
    assert "keras-bert-hub: mode flat: put together from the store, without root\n" in made.stderr
    told = project.run("exec", "keras-bert-hub", "--", "python3", "-c", INSIDE)
    site = "/usr/local/lib/python3.11/dist-packages"
    assert told.stdout.splitlines() == [
        f"{number} {own['keras']} 0.89.0",
        f"{site}/tensorflow/__init__.py {site}/keras_bert/__init__.py",
        "12.3.0 all C.UTF-8",
    ], told.stderr
    checked = project.run("check", "keras-bert-hub", "--json")
    found = {one["check"]: one for one in json.loads(checked.stdout)["findings"]}
    assert {name for name, one in found.items() if one["outcome"] == "failed"} == {"cuda-match"}, (
        checked.stderr
    )
    assert checked.code == 1
    assert (
        f"tensorflow {number} was built for CUDA 12.2 and cuDNN 8.9"
        in found["cuda-match"]["reason"]
    )
    assert "its last line: loss" in found["script"]["reason"]
    passed = {name for name, one in found.items() if one["outcome"] == "passed"}
    assert {"framework-version", "locked-versions", "direct-imports", "script"} <= passed
