"""Published wheels against the rows of libraries that may be missing: what is accused in a healthy image, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.data import lookup

WHEELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "recorded/wheels/needed.json").read_text("utf-8")
)["wheels"]
THERE = {"libexpat.so.1"}
"""Debian's Python needs it too."""
WINDOWS = {
    "libGL.so.1",
    "libICE.so.6",
    "libSM.so.6",
    "libX11.so.6",
    "libXext.so.6",
    "libglib-2.0.so.0",
}
ACCUSED = {
    "PyQt5": {"libGL.so.1"},
    "opencv_python": WINDOWS | {"libgthread-2.0.so.0", "libxcb.so.1"},
    "rdkit": {"libX11.so.6", "libXext.so.6", "libXrender.so.1"},
    "mediapipe": {"libEGL.so.1", "libGLESv2.so.2"},
    "pyodbc": {"libodbc.so.2"},
    "lightgbm": {"libgomp.so.1"},
    "torchaudio": {"libgomp.so.1"},
    "taichi": {"libX11.so.6"},
}
"""Libraries that a bare Debian lacks and without which the package, or a part that people use, does not load."""


@pytest.mark.parametrize(
    "wheel", WHEELS, ids=[wheel["wheel"].split("-py")[0].split("-cp")[0] for wheel in WHEELS]
)
def test_a_healthy_image_with_this_wheel_is_accused_of_nothing_but_what_it_needs(
    wheel: dict[str, Any],
) -> None:
    """The wheel's companions, NVIDIA's libraries among them, count as installed."""
    accused = {
        soname
        for soname, objects in wheel["missing"].items()
        if soname not in THERE
        and not lookup.from_driver(soname)
        and not _in_a_wheel_of_nvidia(soname)
        and any(lookup.may_lack(f"/opt/site-packages/{path}") is None for path in objects)
    }
    assert accused == ACCUSED.get(wheel["wheel"].split("-")[0], set()) & set(wheel["missing"])
    assert all((row := lookup.provider_of(soname)) and row.debian for soname in accused)


def _in_a_wheel_of_nvidia(soname: str) -> bool:
    row = lookup.provider_of(soname)
    return bool(row and row.wheel and row.wheel.startswith("nvidia-"))
