"""A small Debian mirror in a folder: real .deb files, real lists, a real signature."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.run import Command, LocalRunner

DATE = "Sat, 11 Jul 2026 10:00:00 UTC"


@dataclass
class Mirror:
    """A mirror under ``folder``; packages are added, then ``publish`` writes and signs the lists."""

    folder: Path
    keyring: Path
    files: dict[Path, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The mirror's URL for apt."""
        return f"file:{self.folder}"

    def add(
        self,
        name: str,
        version: str = "1.0-1",
        architecture: str = "all",
        *,
        component: str = "main",
        **fields: str,
    ) -> Path:
        """Build a real package with one file in it."""
        tree = self.folder.parent / "trees" / f"{name}_{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "usr/share" / name).mkdir(parents=True)
        (tree / "usr/share" / name / "version").write_text(version)
        lines = {
            "Package": name,
            "Version": version,
            "Architecture": architecture,
            "Maintainer": "T <t@t.invalid>",
        }
        lines |= {key.replace("_", "-"): value for key, value in fields.items()} | {
            "Description": "for tests"
        }
        control = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (tree / "DEBIAN/control").write_text(control)
        pool = self.folder / "pool" / component / name[0] / name
        pool.mkdir(parents=True, exist_ok=True)
        deb = pool / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        argv = ("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb))
        LocalRunner()(Command(argv=argv))
        self.files[deb] = control
        return deb

    def publish(
        self,
        suite: str = "bookworm",
        *,
        sign: bool = True,
        changes: Mapping[str, str] | None = None,
    ) -> None:
        """Write the lists of a suite; ``changes`` replaces texts in them."""
        stanzas: dict[str, list[str]] = {"main": []}
        for deb, control in self.files.items():
            data = deb.read_bytes()
            path = deb.relative_to(self.folder)
            stanzas.setdefault(path.parts[1], []).append(
                f"{control}Filename: {path}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
            )
        sums = ""
        for component, found in stanzas.items():
            text = "\n".join(found)
            for old, new in (changes or {}).items():
                text = text.replace(old, new)
            lists = self.folder / "dists" / suite / component / "binary-amd64"
            lists.mkdir(parents=True, exist_ok=True)
            (lists / "Packages").write_text(text)
            digest = hashlib.sha256(text.encode()).hexdigest()
            sums += f" {digest} {len(text.encode())} {component}/binary-amd64/Packages\n"
        release = (
            f"Origin: Debian\nLabel: Debian\nSuite: stable\nCodename: {suite}\nDate: {DATE}\n"
            f"Architectures: amd64\nComponents: {' '.join(stanzas)}\nSHA256:\n{sums}"
        )
        top = self.folder / "dists" / suite
        (top / "Release").write_text(release)
        if sign:
            self._gpg("--clearsign", "--output", str(top / "InRelease"), str(top / "Release"))
            (top / "Release").unlink()

    def make_key(self) -> None:
        """Make the key that lists are signed with."""
        self.keyring.parent.mkdir(mode=0o700)
        self._gpg(
            "--passphrase",
            "",
            "--quick-generate-key",
            "Tests <t@t.invalid>",
            "rsa2048",
            "sign",
            "never",
        )
        self._gpg("--output", str(self.keyring), "--export")

    def stop(self) -> None:
        """End the agent that gpg started for this key folder."""
        argv = ("gpgconf", "--homedir", str(self.keyring.parent), "--kill", "gpg-agent")
        LocalRunner()(Command(argv=argv), check=False)

    def _gpg(self, *arguments: str) -> None:
        home = ("--homedir", str(self.keyring.parent))
        LocalRunner()(
            Command(argv=("gpg", "--batch", "--yes", "--quiet", *home, *arguments), timeout=60)
        )
