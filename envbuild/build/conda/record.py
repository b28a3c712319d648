"""The record of an installed package, ``conda-meta/NAME-VERSION-BUILD.json``.

conda, mamba, pixi and py-rattler read a prefix by these files. Nothing of the machine that linked
stands in them: no cache, no host of a channel, no time.
"""

from __future__ import annotations

import msgspec

from envbuild.conda.metadata import CondaIndex, CondaPath
from envbuild.lock.model import CondaPackage

NO_HOST = "https://mirror.invalid"
"""The record's format wants an address; which mirror served the file is nobody's business."""


class InstalledPath(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of an installed package; ``sha256`` is of the archive's file, the other of ours."""

    path: str = msgspec.field(name="_path")
    type: str = msgspec.field(name="path_type")
    sha256: str | None = None
    sha256_in_prefix: str | None = None
    size: int | None = msgspec.field(name="size_in_bytes", default=None)
    placeholder: str | None = msgspec.field(name="prefix_placeholder", default=None)
    mode: str | None = msgspec.field(name="file_mode", default=None)


def installed_path(
    path: CondaPath, target: str, *, sha256: str | None, size: int | None
) -> InstalledPath:
    """Return what the record says of a path that was laid at ``target`` with these bytes."""
    return InstalledPath(
        path=target,
        type=path.type,
        sha256=path.sha256,
        sha256_in_prefix=sha256 if sha256 != path.sha256 else None,
        size=size,
        placeholder=path.placeholder,
        mode=path.mode,
    )


def package_record(
    package: CondaPackage, index: CondaIndex, paths: tuple[InstalledPath, ...]
) -> bytes:
    """Return the record of a package with the paths that it brought."""
    fields = msgspec.to_builtins(index)
    own = {key: value for key, value in fields.items() if value is not None and value != []}
    channel = f"{NO_HOST}/{package.channel}"
    record = {
        "constrains": [],
        "depends": [],
        **own,
        "channel": channel,
        "files": [path.path for path in paths],
        "fn": package.file,
        "link": {"source": "", "type": 1},
        "md5": package.md5,
        "paths_data": {"paths": paths, "paths_version": 1},
        "requested_spec": "None",
        "sha256": package.sha256,
        "size": package.size,
        "subdir": package.subdir,
        "url": f"{channel}/{package.subdir}/{package.file}",
    }
    filled = {key: value for key, value in record.items() if value is not None}
    return msgspec.json.format(msgspec.json.encode(filled, order="sorted"), indent=2) + b"\n"
