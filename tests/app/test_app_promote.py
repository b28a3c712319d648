"""``promote`` that is killed at any of its steps: it has changed all or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from envbuild.app.dev import add
from envbuild.app.dev.layer import DevRecord, write_record
from envbuild.app.make import MakeRequest, make
from envbuild.app.spec import build_spec
from envbuild.base.digests import known_digest
from envbuild.build.make import building
from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import Lock
from envbuild.recipe.edit import add_requirements
from envbuild.recipe.find import find_recipe
from envbuild.recipe.read import parse_recipe
from envbuild.store.gc import find_leftovers, remove_files
from tests.tiny_build import TinyProject

LAYER, RECORD = "tiny.dev-0123456789ab.sqfs", "tiny.dev.json"
CHANGED = ("recipes/tiny.toml", "lockfiles/tiny.lock", "tiny.sif")
NAMING = ("replace", "rename", "unlink")
KILLED = 9


def keep_image(tiny: TinyProject, lock: Lock, text: str) -> None:
    """Put the image of a lock into the store, as an earlier make did."""
    source = structs.replace(tiny.source, recipe=parse_recipe(text, tiny.source.path), text=text)
    spec = build_spec(source, lock, tiny.folder / "earlier.sif", "flat", tiny.context)
    with building(spec, tiny.context):
        pass
    spec.target.unlink()


def state_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*CHANGED, LAYER, RECORD)}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyProject:
    """A project whose image has a layer, and a store that has the image without it."""
    tiny = TinyProject(tmp_path / "p")
    text, path = tiny.source.text, tiny.source.path
    keep_image(tiny, tiny.lock, text)
    make("tiny", MakeRequest(check=False), tiny.context)
    gamma = tiny.wheel("gamma", {"gamma.py": b"three = 3\n"})
    (tiny.folder / LAYER).write_bytes(bytes(4096))
    record = DevRecord(
        image=known_digest(tiny.folder / "tiny.sif", tiny.store),
        layer=LAYER,
        size=4096,
        sha256=f"sha256:{hashlib.sha256(bytes(4096)).hexdigest()}",
        lock=structs.replace(tiny.lock, python=(gamma,), direct=()),
        packages=("gamma==1.0",),
    )
    write_record(record, tiny.folder / RECORD, tiny.store)
    promoted = add_requirements(text, record.packages, path, "python")
    lock = structs.replace(
        tiny.lock,
        recipe_digest=recipe_digest(parse_recipe(promoted, path)),
        python=(*tiny.lock.python, gamma),
    )
    keep_image(tiny, lock, promoted)
    monkeypatch.setattr(add, "update_lock", lambda *_: (None, lock))
    return tiny


def promote(tiny: TinyProject) -> None:
    add.promote_layer("tiny", add.RecipeChange(check=False), tiny.context)


def killed_at(step: int, tiny: TinyProject) -> bool:
    """Promote in a process that ends before this change of a name; tell whether there is one."""
    child = os.fork()
    if child == 0:
        left = step

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(path: Path, *words: Any, **more: Any) -> Any:
                nonlocal left
                left -= not path.is_relative_to(tiny.store.root)
                return real(path, *words, **more) if left else os._exit(KILLED)

            return call

        for name in NAMING:
            setattr(Path, name, counted(getattr(Path, name)))
        try:
            promote(tiny)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def files_after_gc(tiny: TinyProject) -> set[Path]:
    """Return the project's files once ``store gc`` has removed what a killed process left."""
    for removal in find_leftovers(tiny.store):
        remove_files(removal)
    files = {path for path in tiny.folder.rglob("*") if path.is_file()}
    return {path for path in files if not path.is_relative_to(tiny.store.root)}


def test_all_or_nothing_is_promoted_by_one_that_is_killed(tiny: TinyProject) -> None:
    before, step = state_of(tiny.folder), 1
    promote(tiny)
    after = {name: (tiny.folder / name).read_bytes() for name in CHANGED}
    assert not [name for name in CHANGED if before[name] == after[name]]
    whole = files_after_gc(tiny)
    while True:
        for name, data in before.items():
            (tiny.folder / name).write_bytes(data)
        if not killed_at(step, tiny):
            break
        find_recipe("tiny", tiny.context.settings)  # who reads the recipe next
        now = {name: (tiny.folder / name).read_bytes() for name in CHANGED}
        assert now == after or now.items() <= before.items(), step
        if (tiny.folder / RECORD).exists():
            assert (tiny.folder / LAYER).exists()
            promote(tiny)
        assert {name: (tiny.folder / name).read_bytes() for name in CHANGED} == after, step
        assert files_after_gc(tiny) == whole, step
        step += 1
    assert step > len(before)
