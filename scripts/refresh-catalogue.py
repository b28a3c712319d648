"""Write envbuild/data/catalogue.toml anew: images from a facts sheet, framework wheels from the package index.

    python scripts/refresh-catalogue.py SHEET.yaml       # a sheet with a list "images" (image, tag, python, cuda, …)

The wheels' Python versions are read from the file names on this machine's package index; which CUDA they were built
for stands in frameworks.toml.  Rows of other tables of the catalogue ([[suite]]) are kept in this file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from envbuild.context import open_context
from envbuild.net.index import index_url, make_client, read_links
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import load_settings
from envbuild.toml import quote, write_value

TARGET = Path(__file__).parents[1] / "envbuild" / "data" / "catalogue.toml"
HEAD = """\
# Bases to start from, written by scripts/refresh-catalogue.py; as of 2026-11-21.
#
# [[suite]] a Debian release that envbuild bootstraps: with [[wheels]] of a framework it makes a base without any image.
# [[wheels]] a release line of a framework on the package index: for which Python versions it has Linux wheels.
# [[image]]  an image of a registry.  status: verified (seen in the source), derived (follows from a verified rule, the
#            tag was not opened), unverified (memory or analogy: look at it with envbuild base inspect).  driver is the
#            oldest driver where the maker states one; else it follows from cuda (cuda.toml).
schema = 1

# Python and libc of the release's own packages (packages of python3 and libc6 in the main suite).
[[suite]]
bootstrap = "debian:bullseye"
python = "3.9"
distro = "debian11"

[[suite]]
bootstrap = "debian:bookworm"
python = "3.11"
distro = "debian12"

[[suite]]
bootstrap = "debian:trixie"
python = "3.13"
distro = "debian13"

# The C library of each release (its package libc6).
[glibc]
"ubuntu16.04" = "2.23"
"ubuntu18.04" = "2.27"
"ubuntu20.04" = "2.31"
"ubuntu22.04" = "2.35"
"ubuntu24.04" = "2.39"
debian11 = "2.31"
debian12 = "2.36"
debian13 = "2.41"
"""
LINES = {
    # the index's wheels of these bring or contain their CUDA libraries from these releases on
    "torch": ("torch", "torch=={line}.*", Version("1.8")),
    "tensorflow": ("tensorflow", "tensorflow[and-cuda]=={line}.*", Version("2.14")),
    "jax": ("jax-cuda12-plugin", "jax[cuda12]=={line}.*", Version("0.4.30")),
    "cupy": ("cupy-cuda12x", "cupy-cuda12x[ctk]=={line}.*", Version("14.0")),
}
PINNED = {("tensorflow", "2.14"): ("tensorrt", "8.5.3.1")}
"""What the extra of a line pins, and has wheels for fewer Pythons than the framework itself."""
KEYS = ("python", "distro", "cuda", "cudnn", "driver", "status", "source", "defect", "note")


def wheel_rows(framework: str) -> list[dict[str, Any]]:
    """Return one row for each release line, with the Python versions it has wheels for."""
    project, requirement, first = LINES[framework]
    found: dict[str, set[str]] = {}
    for version, python in wheels_of(project):
        if version >= first and not version.is_prerelease:
            found.setdefault(f"{version.major}.{version.minor}", set()).add(python)
    sources = {}
    for line in found:
        name, pin = PINNED.get((framework, line), ("", ""))
        if name:
            found[line] &= {python for version, python in wheels_of(name) if str(version) == pin}
            sources[line] = f", and of {name} {pin}, which its extra pins,"
    return [
        {
            "framework": framework,
            "line": line,
            "requirement": requirement.format(line=line),
            "pythons": tuple(sorted(pythons, key=Version)),
            "source": f"file names of {project}{sources.get(line, '')} on the package index",
        }
        for line, pythons in sorted(found.items(), key=lambda item: Version(item[0]))
    ]


def wheels_of(project: str) -> Iterator[tuple[Version, str]]:
    """Yield the version and the Python of a project's Linux wheels."""
    context = open_context(load_settings(), LocalRunner(), Silent())
    with make_client(context.settings) as client:
        for link in read_links(index_url(context), project, client):
            match = re.fullmatch(
                r"[^-]+-([^-]+)(?:-\d+)?-cp(\d)(\d+)-[^-]+-(?:many)?linux[\w.]*x86_64\.whl",
                link.file,
            )
            if match and not link.yanked:
                with suppress(InvalidVersion):
                    yield Version(match[1]), f"{match[2]}.{match[3]}"


def image_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return one row of the sheet in the catalogue's words."""
    framework, version = "", ""
    dist = " ".join(row["framework_dist"][:1]).split("|")[0].strip()
    match = re.match(r"(torch|tensorflow|jax)(?:-gpu)?(?:==| )?([0-9][0-9.]*[0-9])?", dist)
    if match:
        framework, version = match[1], match[2] or ""
    suffix = row["tag"] if not row.get("variants") else f"{row['tag']}-{row['variants'][0]}"
    out: dict[str, Any] = {"image": f"docker://{row['image']}:{suffix}"}
    if framework:
        out["framework"] = framework
        out["holds"] = re.sub(r" \((nv|JAX-Toolbox)\)", "", dist)
    if version:
        out["version"] = version
    driver = re.match(r"\d+(\.\d+)*", str(row.get("min_driver") or ""))
    distro = str(row.get("distro") or "")
    sure = re.split(r"[?/]", distro)[0]
    if distro != sure:
        row = {
            **row,
            "distro": sure,
            "note": row.get("note") or f"the distribution is not certain: {distro}",
        }
    notes = [str(row[key]) for key in ("warn", "note") if row.get(key)]
    values = {
        **{
            key: row.get(key)
            for key in ("python", "distro", "cuda", "cudnn", "status", "source", "defect")
        },
        "driver": driver[0] if driver else None,
        "note": "; ".join(notes) or None,
    }
    return out | {key: str(values[key]) for key in KEYS if values[key] is not None}


def write_rows(title: str, rows: list[dict[str, Any]]) -> str:
    """Lay rows out as an array of tables."""
    blocks = []
    for row in rows:
        lines = [
            f"{key} = {quote(value) if isinstance(value, str) else write_value(value)}"
            for key, value in row.items()
        ]
        blocks.append(f"\n[[{title}]]\n" + "\n".join(lines) + "\n")
    return "".join(blocks)


def main() -> None:
    """Write the catalogue."""
    sheet = yaml.safe_load(Path(sys.argv[1]).read_text("utf-8"))
    images = [image_row(row) for row in sheet["images"]]
    wheels = [row for framework in LINES for row in wheel_rows(framework)]
    TARGET.write_text(HEAD + write_rows("wheels", wheels) + write_rows("image", images), "utf-8")
    print(f"{TARGET}: {len(wheels)} release lines, {len(images)} images")


if __name__ == "__main__":
    main()
