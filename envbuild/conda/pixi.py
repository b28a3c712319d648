"""Locks of pixi (rattler's own lock files), by rattler itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rattler import LockChannel, LockFile, LockPlatform, RepoDataRecord


def write_pixi_lock(
    path: Path,
    *,
    platform: str,
    virtual: Sequence[str],
    channels: Sequence[str],
    records: Sequence[RepoDataRecord],
    wheels: Mapping[tuple[str, str], str],
) -> None:
    """Write a pixi.lock of one environment; ``channels`` are addresses.

    ``wheels`` has the address of each wheel on top by its name and version.
    """
    node = LockPlatform(platform, virtual_packages=list(virtual))
    lock = LockFile([node])
    lock.set_channels("default", [LockChannel(url) for url in channels])
    for record in records:
        lock.add_conda_package("default", node, record)
    for (name, version), url in wheels.items():
        lock.add_pypi_package("default", node, name, version, url)
    lock.to_path(path)
