"""What a lock depends on and what it decides, each as one digest."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from envbuild.lock.model import Lock
from envbuild.recipe.model import CondaSection, Recipe
from envbuild.store.hashing import digest_of

YOUNGER = {"base": ("cpu",), "python": ("from-source", "version")}
"""Keys that came after the first locks: left out where they are not used, so that those locks still
fit."""


def recipe_digest(recipe: Recipe) -> str:
    """Return ``sha256:…`` over the sections that a lock depends on."""
    parts: dict[str, Any] = {"base": recipe.base, "python": recipe.python, "system": recipe.system}
    if recipe.files:
        parts["files"] = recipe.files
    if recipe.conda != CondaSection():
        # the kind of node decides which builds conda's packages are
        parts |= {"conda": recipe.conda, "target": recipe.target}
    plain: dict[str, dict[str, Any]] = msgspec.to_builtins(parts)
    # a key that is not used leaves the digest as it was before the key existed
    for section, keys in YOUNGER.items():
        for key in keys:
            if not plain[section][key]:
                del plain[section][key]
    return _digest(plain)


def lock_digest(lock: Lock) -> str:
    """Return ``sha256:…`` over all that a lock decides, without its proof."""
    return _digest({"lock": structs.replace(lock, proof="not run")})


def same_image(one: Lock, other: Lock) -> bool:
    """Whether two locks make one image: they may differ in what they tell people."""
    told = {"proof": "not run", "notes": (), "held_back": ()}
    return structs.replace(one, **told) == structs.replace(other, **told)


def image_key(lock: Lock, mode: str, definition: str) -> str:
    """Return the key of a built image: over lock digest, mode and definition.

    The definition says what the lock does not: variables and command of [run], lines of [system]
    post, summary.
    """
    return _digest({"lock": lock_digest(lock), "mode": mode, "definition": definition})


def _digest(parts: dict[str, Any]) -> str:
    return digest_of(msgspec.json.encode(parts, order="sorted"))
