"""How old a project is by the releases that it pins, and which Pythons those can be had for."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from packaging.specifiers import SpecifierSet

from envbuild.names import Texts
from envbuild.project.draft.clean import bounds_of
from envbuild.project.model import Release, Requirement
from envbuild.project.names import implied_framework

FEWEST_DATED = 2
"""Releases with a day from which on they tell the age of a project."""
DATED_SHARE = 0.2
"""Share of its packages that they must be: one old pin among many packages says nothing."""
WITH_FRAMEWORKS = {"transformers", "tokenizers", "datasets", "evaluate", "spacy-transformers"}
"""Packages that are released for the frameworks of their day, though they need none."""
KERAS_3 = dt.date(2024, 3, 9)
"""TensorFlow 2.16 came out, the first with Keras 3 (data/releases.toml)."""
MOST_PATCHES = 5
TORCH = tuple(f"1.{minor}" for minor in range(4, 14)) + tuple(f"2.{minor}" for minor in range(20))
TORCHVISION = tuple(f"0.{number}" for number in range(5, 5 + len(TORCH)))
TORCH_LINES = {
    "torchaudio": tuple((line, line.replace("1.", "0.", 1)) for line in TORCH),
    "torchvision": tuple(zip(TORCH, TORCHVISION, strict=True)),
}
"""Release lines of PyTorch with those of its companions, oldest first."""
TORCH_CUDAS = {
    "9.2": ">=1.0,<1.8",
    "10.0": ">=1.0,<1.5",
    "10.1": ">=1.3,<1.9",
    "10.2": ">=1.5,<1.13",
    "11.0": ">=1.7,<1.8",
    "11.1": ">=1.8,<1.11",
    "11.3": ">=1.10,<1.13",
    "11.5": ">=1.11,<1.12",
    "11.6": ">=1.12,<2",
    "11.7": ">=1.13,<2.1",
    "11.8": ">=2.0,<2.8",
    "12.1": ">=2.1,<2.6",
    "12.4": ">=2.4,<2.7",
}
"""Release lines of PyTorch that its own index has builds of, by their CUDA (one of its folders)."""
GRACE = dt.timedelta(days=30)
"""A project's pins may be a little older than the framework that they were tried with."""


def newest_pin(releases: Mapping[str, Release], packages: int) -> dt.date | None:
    """Return the day of the newest pinned release: a framework may be that young.

    None where nothing is pinned, or too little to tell; a pin of a package that is used with a
    framework alone tells.
    """
    days = [release.day for release in releases.values() if release.day is not None]
    pinned = {
        name for name, release in releases.items() if release.exact and release.day is not None
    }
    close = any(name in WITH_FRAMEWORKS or implied_framework(name) for name in pinned)
    enough = len(days) >= FEWEST_DATED and len(days) >= DATED_SHARE * packages
    if not pinned or not (close or enough):
        return None
    return max(days) + GRACE


def keras_2_only(requirements: Sequence[Requirement], releases: Mapping[str, Release]) -> list[str]:
    """Return the packages that need Keras 2: keras<3, and what had no release since Keras 3."""
    found = []
    for requirement in requirements:
        bounds = bounds_of(requirement)
        if requirement.name == "keras" and bounds and not SpecifierSet(bounds).contains("3.0.0"):
            found.append(requirement.name)
        release = releases.get(requirement.name)
        on_keras = (
            requirement.name.startswith("keras-")
            or implied_framework(requirement.name) == "tensorflow"
        )
        if (
            on_keras
            and release is not None
            and release.latest is not None
            and release.latest < KERAS_3
        ):
            found.append(requirement.name)
    return found


def shared_pythons(releases: Mapping[str, Release]) -> Texts:
    """Return the Python series that most of the pinned releases have files for."""
    pinned = (release.pythons for release in releases.values() if release.exact)
    counts = Counter(chain.from_iterable(pinned))
    most = max(counts.values(), default=0)
    return tuple(
        sorted(
            (series for series in counts if counts[series] == most), key=lambda one: int(one[2:])
        )
    )


def torch_bounds(requirement: Requirement) -> str:
    """Return the bounds of PyTorch for a companion: torchvision==0.15.2 needs torch>=2.0,<2.1.

    Empty where the companion has no bounds from above.  torchaudio has PyTorch's own numbers
    since 2.0, torchvision is one line ahead (their installation tables).
    """
    bounds = SpecifierSet(bounds_of(requirement))
    if requirement.name not in TORCH_LINES or not any(
        one.operator in ("==", "===", "~=", "<", "<=") for one in bounds
    ):
        return ""
    lines = TORCH_LINES[requirement.name]
    fitting = [
        torch
        for torch, other in lines
        if any(bounds.contains(f"{other}.{patch}") for patch in range(MOST_PATCHES))
    ]
    if not fitting or len(fitting) == len(lines):
        return ""
    oldest, newest = fitting[0], fitting[-1]
    lower = f">={oldest}," if oldest != lines[0][0] else ""
    # 1.13 is the last line of torch 1
    if newest == "1.13":
        return f"{lower}<2"
    major, minor = newest.split(".")
    return f"{lower}<{major}.{int(minor) + 1}"
