"""The user's settings file (``~/.config/envbuild/config.toml``): its sections and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from envbuild.names import Texts
from envbuild.toml import TomlTable, convert, read_toml

DOWNLOADS = 6
"""Files fetched at the same time unless [build] downloads says otherwise."""
Folders = Annotated[Texts, Meta(description='A list of folders: ["/shared/envbuild", "~/own"].')]
MirrorUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s@]+\Z",
        description='A list of URLs: ["https://…", "http://127.0.0.1:5000"].',
    ),
]
ChannelUrls = (
    str
    | Annotated[
        Texts,
        Meta(min_length=1, description="A URL, or a list of them, best first."),
    ]
)


class StoreSettings(TomlTable, frozen=True):
    """Where the store is, and which other ones are read."""

    path: str | None = None
    below: Folders = ()


class RecipesSettings(TomlTable, frozen=True):
    """Where recipes are looked for."""

    folders: Folders = ()


class CondaSettings(TomlTable, frozen=True):
    """Which conda channels and packages may be used."""

    allow: Annotated[Texts, Meta(description='A list of channels: ["conda-forge"].')] | None = None
    deny_licenses: Annotated[Texts, Meta(description='A list of patterns: ["AGPL-*"].')] = ()
    vendor: bool = False


class MirrorsSettings(TomlTable, frozen=True):
    """URLs of the distributions' mirrors."""

    debian: str | None = None
    ubuntu: str | None = None


class Registry(TomlTable, frozen=True):
    """How a container registry is reached: ``mirrors`` are URLs that are asked first, in order."""

    mirrors: tuple[MirrorUrl, ...] = ()
    plain_http: bool = False


class BuildSettings(TomlTable, frozen=True):
    """Where builds work, and how many files are fetched at the same time."""

    tmpdir: str | None = None
    downloads: Annotated[int, Meta(ge=1, le=32, description="A whole number from 1 to 32.")] = (
        DOWNLOADS
    )


class RuntimeSettings(TomlTable, frozen=True):
    """Which program runs containers."""

    program: str | None = None


class CachesSettings(TomlTable, frozen=True):
    """Where programs inside images keep downloads and compiled code."""

    folder: str | None = None


class SettingsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; the keys of indexes, channels and registries are the user's own names."""

    store: StoreSettings = StoreSettings()
    recipes: RecipesSettings = RecipesSettings()
    indexes: dict[str, str] = {}
    channels: dict[str, ChannelUrls] = {}
    conda: CondaSettings = CondaSettings()
    mirrors: MirrorsSettings = MirrorsSettings()
    registries: dict[str, Registry] = {}
    build: BuildSettings = BuildSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    caches: CachesSettings = CachesSettings()


def read_settings_file(path: Path) -> SettingsFile:
    """Read the settings file; all defaults where there is none.

    Raises UsageError, with file, line and key, for one that does not parse or has unknown keys.
    """
    if not path.is_file():
        return SettingsFile()
    data, text = read_toml(path)
    return convert(data, SettingsFile, text=text, where=str(path))
