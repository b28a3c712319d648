"""Questions to the solver, as tests ask them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from envbuild.conda.choose import choose_conda
from envbuild.conda.model import CondaRequest, CondaSolution, GpuTarget
from envbuild.context import Context
from envbuild.settings import Settings, load_settings
from tests.support import quiet_context


def user_of(folder: Path, text: str = "", **channels: str) -> Settings:
    """Return the settings of a user with these channels; ``text`` is more of the settings file."""
    config = folder / "config.toml"
    lines = "".join(f'{name} = "{url}"\n' for name, url in channels.items())
    config.write_text(f"[channels]\n{lines}\n{text}", encoding="utf-8")
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "HOME": str(home),
        "ENVBUILD_CONFIG": str(config),
        "ENVBUILD_STORE": str(folder / "store"),
        "PATH": "/usr/bin:/bin",
    }
    return load_settings(environment, folder)


def context_of(settings: Settings) -> Context:
    """Return the context of a user who is told nothing."""
    return quiet_context(settings)


def choose(
    context: Context,
    *specs: str,
    channels: tuple[str, ...] = ("forge",),
    driver: str | None = None,
    cards: tuple[int, ...] = (),
    **other: Any,
) -> CondaSolution:
    """Solve match specs for a base with glibc 2.36 on x86_64."""
    request = CondaRequest(
        specs=specs,
        channels=channels,
        machine="x86_64",
        glibc="2.36",
        target=GpuTarget(driver=driver, capabilities=cards),
    )
    return choose_conda(dataclasses.replace(request, **other), context)


def builds(solution: CondaSolution) -> dict[str, str]:
    """Return the build of every package by its name."""
    return {package.name: package.build for package in solution.packages}
