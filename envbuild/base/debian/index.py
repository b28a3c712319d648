"""Read a suite's Packages file: what exists, where it is, with which hash."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from envbuild.base.model import DebianPackage
from envbuild.errors import HostError, IntegrityError, UsageError
from envbuild.names import Texts
from envbuild.toml import closest

if TYPE_CHECKING:
    from envbuild.base.debian.apt import InstalledPackage

NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
OWN_FIELDS = re.compile(
    r"(?:Package|Status|Version|Architecture|Filename|Size|MD5sum|SHA1|SHA256|SHA512): "
)

OF_ANY_VERSION = re.compile(r"(?:Provides|Multi-Arch|Essential|Priority|Section): ")


@dataclass(frozen=True)
class DebianIndex:
    """The stanzas of a Packages file by package name; a name may have several versions."""

    stanzas: dict[str, Texts]

    @classmethod
    def read(cls, *paths: Path) -> DebianIndex:
        """Read uncompressed Packages files (50 MB for a whole suite)."""
        try:
            return cls.parse("\n\n".join(path.read_text("utf-8", "replace") for path in paths))
        except OSError as error:
            raise HostError(f"cannot be read: {error.strerror}", where=error.filename) from error

    @classmethod
    def parse(cls, text: str) -> DebianIndex:
        """Split the text of a Packages file."""
        found: dict[str, Texts] = {}
        for stanza in text.split("\n\n"):
            name = field_of(stanza, "Package")
            if name:
                found[name] = (*found.get(name, ()), stanza.strip("\n"))
        return cls(found)

    @cached_property
    def required(self) -> set[str]:
        """The essential packages and those of priority "required", as minbase takes them."""
        wanted = re.compile(r"^(?:Essential: yes|Priority: required)$", re.MULTILINE)
        return {name for name, stanzas in self.stanzas.items() if wanted.search(stanzas[0])}

    @cached_property
    def virtual(self) -> set[str]:
        """The names that packages provide."""
        found: set[str] = set()
        for stanza in itertools.chain.from_iterable(self.stanzas.values()):
            provided = field_of(stanza, "Provides") or ""
            found.update(word.split()[0] for word in provided.split(",") if word.strip())
        return found

    def require(self, name: str, release: str) -> None:
        """Raise UsageError unless a release ("Debian bookworm") has a package.

        apt would take an unknown name for a pattern.
        """
        if NAME.fullmatch(name) and (name in self.stanzas or name in self.virtual):
            return
        near = closest(name, self.stanzas) if NAME.fullmatch(name) else ""
        near = near if near.startswith("; did you mean") else ""
        raise UsageError(
            f"{release} has no package {name!r} in its main section{near}",
            where="[system] packages",
        )

    def locked(
        self, name: str, version: str, architecture: str, group: Literal["base", "system", "build"]
    ) -> DebianPackage:
        """Return a package as a lock has it.  Raises IntegrityError for a wrong index."""
        for stanza in self.stanzas.get(name, ()):
            if (
                field_of(stanza, "Version") == version
                and field_of(stanza, "Architecture") == architecture
            ):
                return self._locked(stanza, group)
        raise IntegrityError(
            f"apt chose {name} {version} ({architecture}), which the package list does not have"
        )

    def _locked(self, stanza: str, group: Literal["base", "system", "build"]) -> DebianPackage:
        size = field_of(stanza, "Size") or ""
        data = {
            "name": field_of(stanza, "Package"),
            "version": field_of(stanza, "Version"),
            "architecture": field_of(stanza, "Architecture"),
            "group": group,
            "path": field_of(stanza, "Filename"),
            "size": int(size) if re.fullmatch("[0-9]{1,18}", size) else size,
            "sha256": field_of(stanza, "SHA256"),
        }
        try:
            return msgspec.convert(data, DebianPackage)
        except msgspec.ValidationError as error:
            raise IntegrityError(
                f"the package list describes it wrongly: {error}", where=str(data["name"])
            ) from error

    def status_entry(self, package: InstalledPackage) -> str:
        """Write an installed package for /var/lib/dpkg/status, with its relations in the suite."""
        known = list(self.stanzas.get(package.name, ()))
        same = [one for one in known if field_of(one, "Version") == package.version]
        stanza = (same or known or [""])[0]
        lines = [line for line in stanza.split("\n") if line and not OWN_FIELDS.match(line)]
        # apt takes an installed package for another build of the same version unless sizes and
        # relations are the same; of another version (an image's, from the security suite) what it
        # needs is not known, and is there anyway
        kept = lines if same else [line for line in lines if OF_ANY_VERSION.match(line)]
        lines = [
            f"Package: {package.name}",
            "Status: install ok installed",
            f"Version: {package.version}",
            f"Architecture: {package.architecture}",
            *kept,
        ]
        return "\n".join(lines) + "\n\n"


def field_of(stanza: str, name: str) -> str | None:
    """Return the first line of a stanza's field, or None."""
    start = 0
    if not stanza.startswith(f"{name}: "):
        start = stanza.find(f"\n{name}: ") + 1
        if start == 0:
            return None
    end = stanza.find("\n", start)
    return stanza[start + len(name) + 2 : end if end >= 0 else None]
