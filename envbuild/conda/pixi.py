"""Locks of pixi (rattler's own lock files), by rattler itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rattler import LockChannel, LockFile, LockPlatform, RepoDataRecord

from envbuild.conda.model import PixiQuestion
from envbuild.net.redact import without_token


def pixi_text(question: PixiQuestion, records: Sequence[RepoDataRecord], work: Path) -> str:
    """Return the pixi.lock of one environment; ``work`` is a folder for rattler to write it in."""
    for record in records:
        record.url, record.channel = without_token(record.url), without_token(record.channel)
    node = LockPlatform(question.platform, virtual_packages=list(question.virtual))
    lock = LockFile([node])
    lock.set_channels("default", [LockChannel(url) for url in question.channels])
    for record in records:
        lock.add_conda_package("default", node, record)
    for wheel in question.wheels:
        lock.add_pypi_package("default", node, wheel.name, wheel.version, wheel.url)
    lock.to_path(work / "pixi.lock")
    text = (work / "pixi.lock").read_text("utf-8")
    for wheel in question.wheels:
        # py-rattler takes no hash of a wheel; the format and pixi have one
        first = f"\n- pypi: {wheel.url}\n"
        text = text.replace(first, f"{first}  sha256: {wheel.sha256}\n")
    return text
