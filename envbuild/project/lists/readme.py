"""Read what a README names: the framework's release, and the project's groups to install."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.names import Texts
from envbuild.project.model import Requirement
from envbuild.project.tree import ASIDE, read_text, shown_path

NAMES = ("README.md", "README.rst", "README", "readme.md", "INSTALL.md")
BLOCK = re.compile(r"^[ \t]*(`{3,16}|~{3,16})[^\n]*\n(.*?)^[ \t]*\1", re.MULTILINE | re.DOTALL)
TRIED = (
    r"\b(?:tested|tried|ran|runs?|works?|developed|implemented|written|built|requires?|"
    r"experiments?|environment)\b[^\n]{0,80}?[\s,;/&+(]"
)
"""What a project was tried with: "Tested on Python 3.7, PyTorch 1.4."."""
RELEASE = re.compile(
    r"(?:^[ \t]*(?:[-*+]|\d+\.)[ \t]+(?:(?:ubuntu|linux|python|cuda)\b[^\n]{0,80}?[\s,;/&+])?"
    rf"|{TRIED})"
    r"(?P<name>tensorflow(?:-gpu)?|pytorch|torch|jax)\b[\s(:,]{0,9}"
    r"(?:version\s{0,9})?(?P<sign>==|>=|≥|=|v)?\s{0,9}(?P<release>\d+\.\d+)(?P<rest>[^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
"""An item of a list with a framework's release: "- PyTorch 1.3.0", "- CUDA 9.2 + PyTorch 1.0".

Also what a project was tried with.
"""
SAID = {
    name: re.compile(
        r"(?:^[ \t]*(?:[-*+]|\d+\.)[ \t]+"
        r"(?:(?:ubuntu|linux|python|nvidia|gpu)\b[^\n]{0,80}?[\s,;/&+])?"
        rf"|{TRIED}|\bconda create\b[^\n]{{0,80}}\s)"
        rf"{name}(?:[\s(:,]|version){{0,9}}(?:==?|v)?\s{{0,9}}({release}\.\d{{1,2}})([^\n]*)",
        re.MULTILINE | re.IGNORECASE,
    )
    for name, release in (("python", "3"), ("cuda", r"(?:8|9|1\d)"))
}
"""A README's Python or CUDA: "- Python 3.7.0", "conda create python=3.8", "runs with CUDA 10.0"."""
INSTALLER = re.compile(r"\b(?:pip|conda|mamba|uv)\d*\s")
ITEM = re.compile(
    r"^[ \t]*(?:[-*+][ \t]+)?`?(?P<name>[A-Za-z][\w.-]*)`?[ \t]*(?P<sign>[=<>~]=|=)[ \t]*"
    r"`?(?P<release>\d+(?:\.\d+)+)`?[ \t]*$",
    re.MULTILINE,
)
"""A line that is a package with its release and nothing else: "dgl == 0.8.2"."""
PINNED = re.compile(
    r"[\s\"'](?P<name>tensorflow(?:-gpu)?|pytorch|torch|jax)(?:\[[\w,-]+\])?"
    r"==?(?P<release>\d+\.\d+(?:\.\d+)?)"
)
"""A framework's release that is installed: pip install torch==1.12.1+cu113."""
OR_NEWER = re.compile(
    r"[.\d]*\s*(\+|(and|or) (later|newer|higher|above|up)|(-|\u2013|~|to|/|or|and|,)\s*\d)",
    re.IGNORECASE,
)
"""What makes a release one of several."""
NOT_HERE = re.compile(rf"{ASIDE.pattern}|cpu|npu|tpu|xpu|rocm|amd|mps|mac|win", re.IGNORECASE)
"""Groups for changing the project, or for other machines."""
FRAMEWORK = re.compile(r"(?<![\w./-])(?:py)?(torch|tensorflow|jax)\b(?![./-])")
OWN_EXTRAS = re.compile(r"[\s\"']\./?(?:\[([\w\s,-]+)\])?[\"']?(?=\s|$)")
"""The project itself among what is installed, with the groups that it takes."""
PIP_LINE = re.compile(r"-e( \.\[[\w ,-]+\])")


def first_framework(root: Path) -> str | None:
    """Return the framework that the README speaks of first; None where it names none."""
    text = "\n".join(read_text(root / name) or "" for name in NAMES)
    named = FRAMEWORK.search(text.lower())
    return framework_name(named[1]) if named else None


def own_extras(root: Path) -> Texts:
    """Return the optional groups that the project's first installation takes."""
    for words in _installations(root):
        if found := OWN_EXTRAS.search(words):
            names = (name.strip() for name in (found[1] or "").split(","))
            return tuple(name for name in names if name and not NOT_HERE.search(name))
    return ()


def _installations(root: Path) -> Iterator[str]:
    """Yield what an environment.yml has the project's pip install, then what the README does."""
    yield from PIP_LINE.findall(read_text(root / "environment.yml") or "")
    for path in (root / name for name in NAMES):
        for block in BLOCK.finditer(read_text(path) or ""):
            yield from _installed_words(block[2])


def framework_releases(root: Path, scripts: Iterable[Path] = ()) -> tuple[Requirement, ...]:
    """Return the frameworks whose release the README names, or ``scripts`` install.

    "TensorFlow 1.15" is read as tensorflow==1.15.*, "PyTorch >= 1.6" says nothing of the newest.
    """
    found: list[Requirement] = []
    for path in (*(root / name for name in NAMES), *scripts):
        for match in RELEASE.finditer(_without_marks(read_text(path) or "")):
            name = framework_name(match["name"].lower().replace("pytorch", "torch"))
            older = match["sign"] in (">=", "≥") or OR_NEWER.match(match["rest"])
            if name is not None and not older:
                line = f"{name}=={match['release']}.*"
                where = f"{shown_path(path, root)}, which names {match['name']} {match['release']}"
                found.append(Requirement(text=line, name=name, where=where))
        found += _installed_frameworks(path, root)
    return tuple(found)


def said_releases(root: Path) -> dict[str, str]:
    """Return the one Python and the one CUDA ("3.7", "10.0") that the README says it runs with."""
    found: dict[str, str] = {}
    for path in (root / name for name in NAMES):
        text = _without_marks(read_text(path) or "")
        for name, pattern in SAID.items():
            releases = [one for one, rest in pattern.findall(text) if not OR_NEWER.match(rest)]
            found |= {name: releases[0]} if releases and name not in found else {}
    return found


def _without_marks(text: str) -> str:
    """Return Markdown without the marks around words and with the words of its links."""
    text = re.sub(r"\[([^\[\]\n]*)\]\([^()\n]*\)", r"\1", text)
    return re.sub(r"[`*]{1,2}(?=\w)|(?<=\w)[`*]{1,2}", "", text)


def _installed_words(text: str) -> Iterator[str]:
    """Yield what each command of pip, uv or conda installs; every sign is looked at once."""
    for command in re.split(r"[;&|\n]+", text):
        if found := INSTALLER.search(command):
            yield command[found.end() :].partition("install")[2]


def _installed_frameworks(path: Path, root: Path) -> list[Requirement]:
    """Return the frameworks that a README's blocks or a script install at one release."""
    text = re.sub(r"\\\n", " ", read_text(path) or "")
    blocks = [text] if path.name not in NAMES else [block[2] for block in BLOCK.finditer(text)]
    words = chain.from_iterable(map(_installed_words, blocks))
    pins: dict[str, set[str]] = {}
    for match in filter(None, map(PINNED.search, words)):
        name = framework_name(match["name"].replace("pytorch", "torch"))
        if name is not None:
            pins.setdefault(name, set()).add(match["release"])
    where = f"{shown_path(path, root)}, which installs it"
    return [
        Requirement(text=f"{name}=={releases.pop()}", name=name, where=where)
        for name, releases in pins.items()
        if len(releases) == 1
    ]
