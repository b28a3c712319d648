"""init and the package index: ages, Pythons and modules of what a project pins, on a small index of this machine."""

from __future__ import annotations

import datetime as dt
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.progress import Silent
from envbuild.project.draft.age import keras_2_only, newest_pin, shared_pythons, torch_bounds
from envbuild.project.draft.draft import draft_recipe
from envbuild.project.draft.known import look_up, top_modules
from envbuild.project.draft.package_index import Offline
from envbuild.project.draft.propose import BaseNeeds, propose_base
from envbuild.project.gather import gather_findings
from envbuild.project.lists.requirements import parse_requirement, parse_wheel_address
from envbuild.project.model import RecipeDraft, Release, Requirement
from envbuild.settings import load_settings
from tests.init.projects import write
from tests.support import CountingStage, quiet_context

EVERY = tuple(f"3.{minor}" for minor in range(6, 15))
# as the index tells them (upload times and file names, 2026-11-22)
RELEASES = {
    "transformers": Release(
        day=dt.date(2023, 3, 15), pythons=EVERY[1:], exact=True, latest=dt.date(2026, 11, 1)
    ),
    "numpy": Release(
        day=dt.date(2022, 7, 8),
        pythons=("3.8", "3.9", "3.10"),
        exact=True,
        latest=dt.date(2026, 10, 1),
    ),
    "open3d": Release(
        day=dt.date(2021, 6, 9),
        pythons=("3.6", "3.7", "3.8"),
        exact=True,
        latest=dt.date(2025, 1, 9),
    ),
    "keras-bert": Release(day=None, pythons=(), exact=False, latest=dt.date(2022, 1, 22)),
}


class Recorded(Offline):
    """The index's answers for the releases above."""

    def look_up(
        self, requirements: tuple[Requirement, ...], wanted: frozenset[str] = frozenset()
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        return {one.name: RELEASES[one.name] for one in requirements if one.name in RELEASES}, {
            "own_module": "numpy"
        }


def of(folder: Path, files: dict[str, str]) -> RecipeDraft:
    return draft_recipe(gather_findings(write(folder, files)), Recorded())


@pytest.mark.parametrize(
    ("lines", "base"),
    [
        ("transformers==4.27.1\ngradio\ntorch>=1.10\n", "torch==2.0.*"),  # not the torch of 2026
        (
            "numpy==1.23.1\ntorch==1.12.1\n",
            "debian:bullseye",
        ),  # the image of this torch has Python 3.7
        (
            "open3d==0.13.0\ntorch\nscipy>=1\n",
            "docker://pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime",
        ),  # no Python 3.11: it has 3.7
        ("keras-bert\n", "tensorflow[and-cuda]==2.15.*"),  # Keras 2
        ("torchaudio<2.1\ntorch>=1.8\n", "torch==2.0.*"),
        ("scipy\ntorch\n", "torch==2.10.*"),
    ],
)
def test_bases_fit_the_age_of_the_pins(lines: str, base: str, tmp_path: Path) -> None:
    made = of(
        tmp_path,
        {
            "requirements.txt": lines,
            "t.py": "import keras_bert\n" if "keras" in lines else "import torch\n",
        },
    )
    assert base in (made.recipe.base.image, made.recipe.base.bootstrap, made.recipe.base.framework)


def test_keras_2_by_an_import_alone(tmp_path: Path) -> None:
    made = of(tmp_path, {"t.py": "import keras_bert\n"})
    assert made.recipe.base.framework == "tensorflow[and-cuda]==2.15.*"
    assert "keras-bert: made for Keras 2, which TensorFlow has before 2.16" in "\n".join(
        made.below["base"]
    )


def test_what_decided_is_told(tmp_path: Path) -> None:
    made = of(
        tmp_path,
        {"requirements.txt": "transformers==4.27.1\n", "t.py": "import torch, own_module\n"},
    )
    said = "\n".join(made.below["base"])
    assert "of the time of the project's pins (the newest came out on 2023-04-14)" in said
    assert "own_module" not in str(made.below)  # a package of the recipe has it


class Shared(Offline):
    """An index whose wheels have the module of their own name, but for one."""

    def look_up(
        self,
        requirements: tuple[Requirement, ...],
        wanted: frozenset[str] = frozenset(),
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        return {}, {one.name: one.name for one in requirements if one.name != "cvxopt"}


def test_a_module_that_no_table_has_but_conda_and_the_index_by_its_name(tmp_path: Path) -> None:
    code = "import torch, contextlib2, cvxopt, dataset, nobody_has_this\n"
    gathered = gather_findings(write(tmp_path, {"train.py": code}))
    made = draft_recipe(gathered, Shared())
    assert made.recipe.python.dependencies == ("contextlib2",)
    said = "\n".join(made.below["python"])
    # without the module in its wheel, a name for modules of one's own, a name that conda has not
    for module in ("cvxopt", "dataset", "nobody_has_this"):
        assert f"unknown: the module {module} (train.py)" in said


def test_an_image_that_holds_another_release(tmp_path: Path) -> None:
    dockerfile = "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install einops\n"
    made = of(tmp_path, {"Dockerfile": dockerfile, "requirements.txt": "torch>=2.2\n"})
    assert made.recipe.base.framework == "torch==2.4.*"  # the newest one with the image's CUDA 12.1
    assert "which holds 2.1.0, but requirements.txt, line 1 asks for torch>=2.2" in "\n".join(
        made.below["base"]
    )


def test_tensorflow_1_by_its_code(tmp_path: Path) -> None:
    code = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"
    made = of(tmp_path / "a", {"t.py": code})
    assert made.recipe.base.image == "docker://tensorflow/tensorflow:1.15.5-gpu"
    made = of(
        tmp_path / "b", {"t.py": code.replace("as tf", "as tf0\nimport tensorflow.compat.v1 as tf")}
    )
    assert made.recipe.base.framework == "tensorflow[and-cuda]==2.21.*"


@pytest.mark.parametrize(
    "newer",
    [
        "@tf.function\ndef f(x):\n    return x\n",
        "with tf.GradientTape() as tape:\n    pass\n",
        "import tensorflow_addons as tfa\n",
    ],
)
def test_code_for_tensorflow_2_beside_old_code(tmp_path: Path, newer: str) -> None:
    old = "import tensorflow as tf\nx = tf.get_variable('x', [1])\n"
    files = {"layers.py": old, "train.py": f"import tensorflow as tf\nimport layers\n{newer}"}
    assert (of(tmp_path, files).recipe.base.framework or "").startswith("tensorflow[and-cuda]==2.")


def test_where_pins_tell_the_age_a_readmes_python_does_not(tmp_path: Path) -> None:
    files = {"README.md": "- Python 3.7\n", "requirements.txt": "torch\ntransformers==4.27.1\n"}
    assert of(tmp_path / "pinned", files).recipe.base.framework == "torch==2.0.*"
    files["requirements.txt"] = "torch\n"
    assert "1.12" in (of(tmp_path / "plain", files).recipe.base.image or "")


def test_a_framework_that_nobody_names(tmp_path: Path) -> None:
    made = of(tmp_path, {"requirements.txt": "lightning\nkornia\nscipy\n"})
    assert made.recipe.base.framework == "torch==2.10.*"
    assert "no list names it, but lightning, kornia need it" in "\n".join(made.below["base"])
    made = of(tmp_path / "one", {"requirements.txt": "kornia\nscipy\n"})
    assert "no list names it, but kornia needs it" in "\n".join(made.below["base"])


def test_one_old_pin_among_many_says_nothing() -> None:
    old = {"tabulate": Release(day=dt.date(2019, 1, 1), pythons=EVERY, exact=True)}
    assert newest_pin(old, 12) is None
    assert newest_pin(RELEASES, 12) == dt.date(2023, 4, 14)
    assert shared_pythons(RELEASES) == ("3.8",)
    assert shared_pythons({}) == ()
    assert keras_2_only([Requirement(text="keras<=2.3.1", name="keras", where="")], {}) == ["keras"]


@pytest.mark.parametrize(
    ("line", "torch"),
    [("torchvision==0.15.2", ">=2.0,<2.1"), ("torchaudio>=0.8,<2.1", ">=1.8,<2.1"), ("torchaudio==0.7.0", ">=1.7,<1.8"),
     ("torchvision~=0.23.0", ">=2.8,<2.9"), ("torchvision>=0.8", ""), ("torchvision", ""), ("numpy==1.0", "")],
)  # fmt: skip
def test_companions_tell_their_torch(line: str, torch: str) -> None:
    found = parse_requirement(line, "here")
    assert found is not None
    assert torch_bounds(found) == torch


def test_wheels_by_their_address() -> None:
    found = parse_wheel_address(
        "torch @ https://x.invalid/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl",
        "here",
    )
    assert found is not None
    assert found.text == "torch==2.0.1+cu118"
    assert parse_wheel_address("https://x.invalid/private-1.0-py3-none-any.whl", "here") is None
    assert parse_wheel_address("https://x.invalid/torch-2.0.1%2Bcu118.whl", "here") is None


def test_the_pages_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real index in a folder, with a real wheel: days are not in HTML, Pythons and modules are."""
    page = tmp_path / "simple" / "lab-kit"
    page.mkdir(parents=True)
    wheel = page / "lab_kit-1.2-cp38-cp38-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("labkit/__init__.py", "labkit_extra.py", "_native.cpython-38-x86_64-linux-gnu.so",
                     "lab_kit-1.2.dist-info/METADATA", "lab_kit.libs/libx.so", "share/data.txt"):  # fmt: skip
            archive.writestr(
                name,
                'Name: lab-kit\nVersion: 1.2\nRequires-Dist: Deep_Kit>=1\nRequires-Dist: x; extra == "a"\n',
            )
    deep = tmp_path / "simple" / "deep-kit" / "deep_kit-1.0-py3-none-any.whl"
    deep.parent.mkdir()
    with zipfile.ZipFile(deep, "w") as archive:
        for name in ("odd/__init__.py", "other.py", "deep_kit-1.0.dist-info/METADATA"):
            archive.writestr(name, "Name: deep-kit\nVersion: 1.0\n")
    sha = "0" * 64
    (deep.parent / "index.html").write_text(
        f'<a href="{deep.name}#sha256={"1" * 64}">{deep.name}</a>'
    )
    (page / "index.html").write_text(
        f'<a href="{wheel.name}#sha256={sha}" data-requires-python="&gt;=3.7">{wheel.name}</a>'
        f'<a href="lab_kit-1.3-py3-none-any.whl#sha256={sha}">lab_kit-1.3-py3-none-any.whl</a>'
    )
    monkeypatch.setenv("ENVBUILD_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    pinned, gone = parse_requirement("lab-kit==1.2", "here"), parse_requirement("not-there", "here")
    assert pinned is not None
    assert gone is not None
    context = quiet_context(load_settings())
    stage = CountingStage()
    releases, modules = look_up([pinned, gone], frozenset(), context, stage)
    assert releases == {
        "lab-kit": Release(day=None, pythons=("3.8",), exact=True),
        "not-there": Release(day=None, pythons=(), exact=False, there=False),
    }
    assert (stage.total, stage.done) == (2, 2)
    own = {"labkit": "lab-kit", "labkit_extra": "lab-kit", "_native": "lab-kit"}
    assert modules == own
    # what no table knows is looked for in what the packages require
    again, modules = look_up([pinned, gone], frozenset({"odd", "nowhere"}), context, stage)
    assert again == releases
    assert modules == {**own, "odd": "deep-kit"}


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_an_index_that_does_not_answer_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lab-kit", "other"):
        (tmp_path / "simple" / name / "index.html").mkdir(parents=True)
    monkeypatch.setenv("ENVBUILD_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    told = Told()
    context = replace(quiet_context(load_settings()), report=told)
    asked = [parse_requirement(name, "here") for name in ("lab-kit", "other", "not-there")]
    releases, modules = look_up(filter(None, asked), frozenset(), context, CountingStage())
    assert [name for name, release in releases.items() if not release.there] == ["not-there"]
    assert (len(releases), modules) == (1, {})
    (said,) = told.said
    assert said.startswith(f"the index did not tell of 2 packages: {tmp_path}/simple/lab-kit/")


def test_modules_of_a_wheel() -> None:
    members = [
        "a/__init__.py",
        "a/b.py",
        "c.py",
        "d.abi3.so",
        "x-1.dist-info/RECORD",
        "x-1.data/purelib/e/f.py",
        "doc/x.md",
    ]
    assert top_modules(members) == ["a", "c", "d", "e"]


@pytest.mark.parametrize(
    ("asked", "exact"),
    [("==1.2", True), ("==1.2.*", True), ("~=1.2.0", True), ("==1.*", False), ("~=1.2", False), (">=1.2", False)],
)  # fmt: skip
def test_bounds_that_admit_patches_of_one_release_tell_its_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, *, exact: bool
) -> None:
    page = tmp_path / "simple" / "lab-kit"
    page.mkdir(parents=True)
    file = "lab_kit-1.2-cp38-cp38-manylinux2014_x86_64.whl"
    (page / "index.html").write_text(f'<a href="{file}">{file}</a>')
    monkeypatch.setenv("ENVBUILD_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    one = parse_requirement(f"lab-kit{asked}", "here")
    assert one is not None
    found, _ = look_up([one], frozenset(), quiet_context(load_settings()), CountingStage())
    assert found["lab-kit"].exact == exact
    assert shared_pythons(found) == (("3.8",) if exact else ())


def test_another_patch_of_the_framework_costs_less_than_another_python() -> None:
    needs = BaseNeeds(
        framework=Requirement(text="tensorflow~=2.4.1", name="tensorflow", where=""),
        pythons=("3.8",),
    )
    # TensorFlow's own images of 2.4 have Python 3.6
    assert propose_base(needs).base.image == "docker://nvcr.io/nvidia/tensorflow:21.05-tf2-py3"
    assert "tensorflow/tensorflow:2.4." in str(propose_base(replace(needs, pythons=())).base.image)
