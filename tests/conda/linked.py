"""Layers of images with environments that py-rattler has linked."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

from tests.conda.archives import Archive


def conda_tar(folder: Path, prefix: str, *archives: Archive) -> bytes:
    """Return a layer with an environment that py-rattler has linked for a prefix."""
    import rattler

    records = []
    for archive in archives:
        archive.write(folder / "old")
        path = folder / "old" / archive.file
        records.append(asyncio.run(rattler.RepoDataRecord.from_package_archive(path)))
    made = folder / "prefix"
    work = rattler.install(
        records, made, alternative_target_prefix=prefix, cache_dir=folder / "cache"
    )
    asyncio.run(work)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(made, prefix.lstrip("/"))
    return out.getvalue()
