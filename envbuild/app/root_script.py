"""What a build runs as root, and its check as the user, as a shell script to read."""

from __future__ import annotations

from envbuild.lock.model import Lock
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Source


def script_text(source: Source, lock: Lock) -> str:
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
    if recipe.check.script:
        text = (source.path.parent / recipe.check.script).read_text("utf-8").splitlines()
        parts += _script_part(
            f"its check runs {recipe.check.script} inside the sealed image, as you", tuple(text)
        )
    return "\n".join(parts) + "\n"


def _script_part(title: str, lines: tuple[str, ...]) -> list[str]:
    return ["", f"# ---- {title} ----", *lines] if lines else []


def _flat_remark(lock: Lock, post: int) -> str:
    debian = len(lock.installed_debian)
    sources = sum(package.is_sdist for package in lock.python)
    return (
        f"the maintainer scripts of {debian} Debian packages, the set-up programs of {sources} source packages and "
        f"{post} lines of [system] post"
    )
