"""What a build runs as root, and its check as the user, as a shell script to read."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.build.conda.scripts import read_scripts
from envbuild.limits import SCRIPT, read_whole
from envbuild.lock.model import Lock
from envbuild.net.partial import is_complete
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Source
from envbuild.store.layout import Store
from envbuild.store.units import count_noun

SHOWN = 8


def script_text(source: Source, lock: Lock, store: Store) -> str:
    """Return, as a shell script with remarks, what a build runs as root, and what its check runs as the user."""
    recipe = source.recipe
    plan = plan_definition(recipe, lock)
    flat = f"runs none of it, but {_flat_remark(lock, len(recipe.system.post))}"
    parts = [
        f"# What envbuild make {recipe.name} runs as root: root of a user namespace, which has your rights outside.",
        f"# --mode flat {flat}.",
        *_script_part("outside the image, in its root folder (%setup)", plan.setup),
        *_script_part("inside the image (%post)", plan.post),
    ]
    parts += _conda_parts(lock, store)
    if recipe.check.script:
        script = read_whole(source.path.parent / recipe.check.script, SCRIPT)
        text = script.decode("utf-8").splitlines()
        parts += _script_part(
            f"its check runs {recipe.check.script} inside the sealed image, as you", tuple(text)
        )
    return "\n".join(parts) + "\n"


def _conda_parts(lock: Lock, store: Store) -> list[str]:
    """Return the scripts of conda packages that the store has, and which it cannot show."""
    parts, unseen = [], []
    for package in lock.conda:
        file = store.artifact(package.sha256)
        if not is_complete(file, package.size):
            unseen.append(package.name)
            continue
        for name, text in read_scripts(file, package):
            title = f"inside the image, conda's {package.name} {package.version}: {name}"
            parts += _script_part(title, tuple(text.splitlines()))
    if unseen:
        names = ", ".join(unseen[:SHOWN]) + (" and more" if len(unseen) > SHOWN else "")
        parts += ["", f"# Not downloaded yet, so the scripts they may bring are not shown: {names}"]
    return parts


def _script_part(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"# ---- {title} ----", *lines] if lines else []


def _flat_remark(lock: Lock, post: int) -> str:
    debian, conda = len(lock.installed_debian), len(lock.conda)
    linked = f"the scripts that {count_noun(conda, 'conda package')} may bring, " if conda else ""
    sources = sum(package.is_sdist for package in lock.python)
    return (
        f"the maintainer scripts of {count_noun(debian, 'Debian package')}, {linked}"
        f"the set-up programs of {count_noun(sources, 'source package')} and "
        f"{count_noun(post, 'line')} of [system] post"
    )
