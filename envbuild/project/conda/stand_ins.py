"""Lines of an environment.yml that cannot stay as they are, and what stands for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import Requirement as Pep508

from envbuild.data.package_tables import load_conda, load_names
from envbuild.names import Texts
from envbuild.project.gather import read_list
from envbuild.project.model import Requirement
from envbuild.project.names import conda_name
from envbuild.recipe.conda import spec_name

# a line of a dump: NAME=VERSION=BUILD
BUILT = re.compile(r"(?P<spec>[\w.-]+==?[^=<>!~,\s]+)=(?P<build>[^=\s]+)")
DUMP = 10
"""Lines from which on a list with builds is a dump."""
# a line without bounds
PLAIN = re.compile(r"(\S+::)?[\w.-]+")
# the project itself among pip's lines
OWN = re.compile(r"((-e|--editable)[\s=]+)?\./?(\[[\w\s,.-]*\])?")
DECLARED = ("pyproject.toml", "setup.cfg", "setup.py")


def without_build(line: str) -> str:
    """Return a match spec without its build, unless that tells GPU or CPU."""
    built = BUILT.fullmatch(line)
    if built is None:
        return line
    name = built["build"].replace("*", "_")
    if re.search(f"{load_conda().builds}|(^|_)cpu", name):
        return line
    return built["spec"]


def cut_dump(lines: Sequence[str], pip: Iterable[str]) -> tuple[list[str], Texts]:
    """Return a dump of a whole environment without what nobody asks for, and a note on it.

    What others usually bring stays, without its version.  All other lists are left as they are.
    """
    built = [line for line in lines if BUILT.fullmatch(line)]
    if len(lines) < DUMP or 2 * len(built) < len(lines):
        return [*lines], ()
    table = load_conda()
    names = {line: spec_name(line) for line in lines}
    asked = table.asked | table.depends | table.libraries | table.frameworks
    of_pip = any(line.startswith("nvidia-") for line in pip)
    if of_pip and not table.frameworks & set(names.values()):
        # wheels of CUDA: pip's framework needs nothing of conda's
        asked = frozenset({"python"})
    kept = [line for line, name in names.items() if name in asked or not _is_library(name)]
    brought = load_names().transitive.names
    specs = [names[line] if conda_name(names[line]) in brought else line for line in kept]
    gone = len(lines) - len(kept)
    note = f"a dump of a whole environment: {gone} libraries are left out, for others bring them"
    hint = "conda env export --from-history lists what was asked for"
    return [*map(without_build, specs)], (f"{note}; {hint}",)


def _is_library(name: str) -> bool:
    """Tell whether others bring a package of conda: no name of Python's stands for it."""
    known = conda_name(name)
    if known is None:
        return any(fnmatchcase(name, pattern) for pattern in load_conda().brought)
    return known == ""


def put_stand_ins(lines: Sequence[str], channels: Sequence[str]) -> tuple[list[str], Texts]:
    """Return match specs without packages of channels that are not asked, and notes of these."""
    specs, notes = [*lines], []
    for owner, instead in load_conda().only_in.items():
        own = [name for name in map(spec_name, specs) if name in instead]
        is_asked = any(name.startswith(owner) for name in channels)
        if own and not is_asked:
            stand_ins = ", ".join(f"{name} ({instead[name] or 'left out'})" for name in own)
            notes.append(f"the channel {owner} alone has {stand_ins}")
            specs = [_put_instead(line, instead) for line in specs]
    return [line for line in specs if line], tuple(notes)


def _put_instead(line: str, instead: Mapping[str, str]) -> str:
    """Return a match spec by its other name, "" where nothing stands for it."""
    name = spec_name(line)
    if name not in instead:
        return line
    return without_build(line).replace(name, instead[name], 1) if instead[name] else ""


def declared_needs(pip: Iterable[str], folder: Path) -> list[Requirement]:
    """Return what the project itself requires, where pip is to install it."""
    named = any(OWN.fullmatch(line.strip()) for line in pip)
    paths = [folder / name for name in DECLARED if named]
    found: list[Requirement] = []
    for path in filter(Path.is_file, paths):
        findings = read_list(path, folder)
        found += findings.requirements if findings else ()
    return found


def merge_wheels(
    lines: Sequence[str], wheels: Iterable[Requirement]
) -> tuple[list[str], Texts, Texts]:
    """Return match specs, the wheels that come on top, and notes on those that do not.

    What conda's lines bring is never replaced by pip: a wheel's bounds become those of a line that
    has none.
    """
    names = [spec_name(line) for line in lines]
    places = {conda_name(name) or name: place for place, name in enumerate(names)}
    specs, texts, notes = [*lines], [], []
    for wheel in wheels:
        place = places.get(wheel.name)
        asked = Pep508(wheel.text)
        if place is None or asked.url:
            plain = re.sub(r"\+cu\d+\Z", "", wheel.text)
            texts.append(plain)
            if plain != wheel.text:
                notes.append(f"without its build, which is on no index of Python's: {wheel.text}")
            continue
        bounds = re.sub(r"\+[\w.]+", "", str(asked.specifier))
        if bounds and PLAIN.fullmatch(specs[place]):
            specs[place] += f" {bounds}"
        notes.append(f"conda brings it, so pip does not: {wheel.text}")
    return specs, tuple(dict.fromkeys(texts)), tuple(notes)
