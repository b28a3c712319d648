"""Finding out that there is nothing to do imports nothing that builds."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

LOOKING = (
    "cli.make",
    "app.image",
    "recipe.find",
    "lock.read",
    "lock.staleness",
    "plan.definition",
    "build.image_cache",
)
"""What a ``make`` goes through before it sees that its image is there."""
BUILDING = (
    "build.make",
    "build.assemble",
    "base.debian.bootstrap",
    "net.fetch",
    "resolve.model",
    "shelf.fetch",
    "runtime",
)


def test_looking_whether_an_image_is_there_imports_nothing_that_builds() -> None:
    loaded = loaded_by(LOOKING)
    assert {f"envbuild.{name}" for name in LOOKING} <= loaded
    assert all(find_spec(f"envbuild.{name}") for name in BUILDING)
    assert not loaded & {f"envbuild.{name}" for name in BUILDING}


def test_submitting_a_job_imports_nothing_that_builds() -> None:
    """Half of what ``submit`` took was the import of the assembly, to read the lock inside an image."""
    loaded = loaded_by(("cli.submit", "build.image.embedded"))
    assert not loaded & {"envbuild.build.assemble", "envbuild.build.fetch", "installer"}


def loaded_by(names: tuple[str, ...]) -> set[str]:
    """Import modules of envbuild in a process of its own, and return all modules that it has then."""
    asked = "; ".join(f"import envbuild.{name}" for name in names)
    told = subprocess.run(
        [sys.executable, "-c", f"{asked}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())
