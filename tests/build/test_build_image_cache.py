"""Finding out that there is nothing to do imports nothing that builds."""

from __future__ import annotations

import subprocess
import sys

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
    "base.bootstrap",
    "store.fetch",
    "resolve.model",
    "shelf.take",
    "runtime",
)


def test_looking_whether_an_image_is_there_imports_nothing_that_builds() -> None:
    asked = "; ".join(f"import envbuild.{name}" for name in LOOKING)
    told = subprocess.run(
        [sys.executable, "-c", f"{asked}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(told.stdout.split())
    assert {f"envbuild.{name}" for name in LOOKING} <= loaded
    assert not loaded & {f"envbuild.{name}" for name in BUILDING}
