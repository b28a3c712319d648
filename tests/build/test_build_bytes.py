"""What decides an image's bytes: the lock and the formats, no version of envbuild and no name of a record."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.build.in_base.install_scheme import Scheme
from envbuild.parts.cache import part_key
from tests.build.test_build_from_wheel import make_wheel

MADE = """
import hashlib, json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import envbuild
envbuild.__version__ = sys.argv[1]
from envbuild.build import assemble
from envbuild.build.image import write as image
from envbuild.build.image import base_config as inherited
from envbuild.build import image_cache as known
from envbuild.build import model
from envbuild.parts import cache as parts
from envbuild.build.in_base import install_scheme as scheme
from envbuild.formats import file_tree as tree
from envbuild.lock.read import read_lock
from envbuild.plan import apptainer, definition, model as plan
from envbuild.progress import Silent, SilentStage
from envbuild.recipe.read import read_recipe
from envbuild.store.layout import Store

if sys.argv[2] == "renamed":
    for module in (assemble, inherited, model, parts, scheme, tree, plan):
        for record in [one for one in vars(module).values() if isinstance(one, type) and one.__module__.startswith("envbuild")]:
            record.__name__ = record.__qualname__ = "Renamed" + record.__name__

root, folder, wheel = map(Path, sys.argv[3:])
recipe, _ = read_recipe(root / "recipes/torch-mnist.toml")
lock = read_lock(root / "lockfiles/torch-mnist.lock")
planned = definition.plan_definition(recipe, lock)
text = apptainer.render_definition(planned)
places = scheme.bootstrap_scheme(lock)
made = {}
with ThreadPoolExecutor(1) as pool:
    codec = known.locked_codec(lock.packer)
    packing = parts.PackContext(store=Store(folder / "store"), codec=codec, pool=pool, report=Silent())
    of_base = inherited.BaseConfig(runscript="#!/bin/sh\\n", labels=(("a", "b"),))
    own = assemble.provide_runtime_files(planned, text, of_base, packing)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    packages = assemble.provide_wheel(wheel, wheel.name, sha256, places, packing).kept
    layers = [
        assemble.Layer(name="packages", parts=(packages,)),
        assemble.Layer(name="project", parts=(own,)),
    ]
    for mode in ("flat", "layered"):
        path = folder / mode
        order = model.BuildSpec(
            recipe=recipe, lock=lock, plan=planned, definition=text, mode=mode, codec=codec, target=path
        )
        key = known.key_of(order)
        image.write_image(path, order, layers, key, SilentStage())
        made[mode] = [key, hashlib.sha256(path.read_bytes()).hexdigest()]
    made["parts"] = [part.part.key for layer in layers for part in layer.parts]
print(json.dumps(made))
"""
ROOT = Path(__file__).parents[2]


def made_by(version: str, names: str, folder: Path, wheel: Path) -> dict[str, list[str]]:
    """Return keys and sha256 of two tiny images that an envbuild of that version makes."""
    folder.mkdir()
    told = subprocess.run(
        [sys.executable, "-c", MADE, version, names, str(ROOT), str(folder), str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, list[str]] = json.loads(told.stdout)
    return found


def test_neither_version_nor_names_of_records_are_in_an_image(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "demo-1.0-py3-none-any.whl", {"demo.py": b"x = 1\n"})
    first = made_by("0.1.0", "same", tmp_path / "first", wheel)
    other = made_by("9.9.9", "renamed", tmp_path / "other", wheel)
    assert first == other
    for mode in ("flat", "layered"):
        assert b"9.9.9" not in (tmp_path / "other" / mode).read_bytes()


@pytest.mark.parametrize(
    ("field", "value"), [("site", "x"), ("prefix", "x"), ("python", "x"), ("scripts", "x")]
)
def test_a_scheme_with_another_folder_gives_another_key(field: str, value: str) -> None:
    plain = {"site": "a", "prefix": "b", "version": "3.11", "python": "c"}
    keys = {
        part_key("wheel", scheme=Scheme(**fields).key_fields)  # type: ignore[arg-type]
        for fields in (plain, {**plain, field: value})
    }
    assert len(keys) == 2


def test_the_encoding_of_keys_stays() -> None:
    """A change here packs everything anew at every user: count the format up instead, and say so."""
    text = '["wheel",2,{"packer":"p","paths":["a"],"scheme":{"data":"usr"}}]'
    key = part_key("wheel", scheme={"data": "usr"}, packer="p", paths=["a"])
    assert key == hashlib.sha256(text.encode()).hexdigest()
