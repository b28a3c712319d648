"""Locks of pixi (rattler's own lock files), by rattler itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler import LockChannel, LockFile, LockPlatform, RepoDataRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedWheel:
    """A wheel of a lock, and where it is."""

    name: str
    version: str
    sha256: str
    url: str


def write_pixi_lock(
    path: Path,
    *,
    platform: str,
    virtual: Sequence[str],
    channels: Sequence[str],
    records: Sequence[RepoDataRecord],
    wheels: Sequence[LockedWheel],
) -> None:
    """Write a pixi.lock of one environment; ``channels`` are addresses.

    ``wheels`` are those on top.
    """
    node = LockPlatform(platform, virtual_packages=list(virtual))
    lock = LockFile([node])
    lock.set_channels("default", [LockChannel(url) for url in channels])
    for record in records:
        lock.add_conda_package("default", node, record)
    for wheel in wheels:
        lock.add_pypi_package("default", node, wheel.name, wheel.version, wheel.url)
    lock.to_path(path)
    text = path.read_text("utf-8")
    for wheel in wheels:
        # py-rattler takes no hash of a wheel; the format and pixi have one
        first = f"\n- pypi: {wheel.url}\n"
        text = text.replace(first, f"{first}  sha256: {wheel.sha256}\n")
    path.write_text(text, "utf-8")
