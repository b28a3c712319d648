"""The two files of a bundle that are for people without envbuild: a text and a shell script."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.plan.shell import SUPPLIED
from envbuild.recipe.model import Recipe
from envbuild.script_files import read_script


def build_script(recipe: Recipe) -> str:
    """Return the script that builds with the container runtime alone."""
    files = SUPPLIED.rsplit("/", 1)[0]
    return read_script("envbuild.bundle", "scripts/build.sh", files=files, name=recipe.name)


def readme(recipe: Recipe, lock: Lock, *, pythons: Sequence[str]) -> str:
    """Return the bundle's README.

    ``pythons`` are those that envbuild's own wheels inside are for.
    """
    name = recipe.name
    install = (
        f"    tar -xf {name}.bundle.tar\n"
        f"    python3 -m venv venv    # Python {', '.join(pythons)}\n"
        f"    venv/bin/pip install --no-index --find-links {name}/tool envbuild\n"
        f"    venv/bin/envbuild make --from-bundle {name}.bundle.tar\n"
        if pythons
        else f"    envbuild make --from-bundle {name}.bundle.tar\n"
    )
    return f"""\
# {name}: everything to build it without a network

{recipe.recipe.summary or name}

Base: {lock.base.reference}, {lock.python_title}, {lock.base.framework or "no framework"}.
Lock: {lock_digest(lock)}

With envbuild (the same image as anywhere else, checked afterwards):

{install}
With Apptainer or Singularity alone, from the unpacked folder (the same packages):

    sh {name}/build.sh

What is inside: `{name}.def` (the definition), `files/` (packages), `base/` (the base), `recipes/` and `lockfiles/`
(what envbuild reads), `SHA256SUMS` and `bundle.json` (what every file has to be).
"""
