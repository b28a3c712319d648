"""Read requirements*.txt as pip does: includes, markers, addresses, hashes."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement as Pep508
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envbuild.base.suggest import framework_name
from envbuild.data.package_tables import load_names
from envbuild.errors import UsageError
from envbuild.project.cuda import cuda_of
from envbuild.project.lists.printed import printed_by_pip
from envbuild.project.model import FileFindings, Requirement
from envbuild.project.private import has_secret, without_secrets
from envbuild.project.tree import is_about_developing, is_inside, read_text, shown_path
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.recipe.trees import COMMIT, read_tree_line

MOST_FILES = 100
"""Files that one list may include before it is taken for a mistake."""
NO_ADDRESS = (
    'init takes no addresses: write "NAME @ git+https://HOST/PATH@COMMIT", or put it on an index'
)
OPTION = re.compile(r"\s--?[a-z].*$")
EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
ADDRESS = re.compile(
    r"[a-z+]+://|git\+|file:|\.{1,2}/|/|\.$|\.\[|[\w.\[\],-]+\s*@\s*\S+:|\S+\.(whl|tar\.gz"
    r"|zip)(\s|$)"
)
CONDA_BUILT = re.compile(r"([A-Za-z0-9][\w.-]*) @ file://\S*/[\w.-]+_\d{10,}/work(/\S*)?")
"""What pip freeze writes of a package that conda had built: a folder with the time of its build."""
FOLDER = re.compile(r"(?!\S+\.(whl|zip|gz|bz2)$)\.(/[\w-][\w.-]*)+/?(\[[\w,\s-]*\])?")
"""A folder of the project, as pip names one in place."""
VIA = re.compile(r"#\s+via\b|^[ \t]+#\s{1,3}(-r\s|via\b)", re.MULTILINE)


def parse_requirement(text: str, where: str) -> Requirement | None:
    """Return the requirement in a PEP 508 line; None where it is none, or an address."""
    cleaned = re.sub(r"\s#.*$", "", text.strip()).strip().rstrip(";,").strip()
    try:
        requirement = Pep508(cleaned)
    except NO_REQUIREMENT:
        return None
    if requirement.url is not None or not cleaned.isprintable() or len(cleaned) > 250:
        return None
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return Requirement(
        text=f"{requirement.name}{extras}{requirement.specifier}{marker}",
        name=canonicalize_name(requirement.name),
        where=where,
    )


def parse_wheel_address(text: str, where: str) -> Requirement | None:
    """Return the requirement for the address of a CUDA wheel: its name and whole version.

    ``torch @ https://HOST/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl`` is
    torch==2.0.1+cu118.  None for any other address: a wheel without a local part may hold
    anything under its name.
    """
    match = re.search(r"://[^\s#?]{0,500}/([^/\s#?]{1,300}\.whl)", text)
    if match is None or cuda_of(unquote(match[1])) is None:
        return None
    try:
        name, version, _, _ = parse_wheel_filename(unquote(match[1]))
    except InvalidWheelFilename:
        return None
    return Requirement(text=f"{name}=={version}", name=name, where=where) if version.local else None


def _parse_conda_built(text: str, where: str) -> Requirement | None:
    """Return the requirement for what conda had built where the list was written: its name alone.

    ``pip freeze`` writes NAME @ file:///croot/NAME_1697131234567/work: that folder is gone, and
    the version is told nowhere.
    """
    found = CONDA_BUILT.fullmatch(text.strip())
    if found is None:
        return None
    return Requirement(text=found[1], name=canonicalize_name(found[1]), where=where)


def parse_commit(text: str, where: str) -> Requirement | None:
    """Return the requirement for a commit of a git server, None for any other address.

    ``git+https://HOST/PATH@COMMIT#egg=NAME`` is NAME @ git+https://HOST/PATH@COMMIT.  What a tag or
    a branch names may be changed by others, so it is not taken.
    """
    line, egg = text.strip(), EGG.search(text)
    if egg and text.startswith("git+"):
        line = f"{egg[1]} @ {line}"
    try:
        tree = read_tree_line(line)
    except UsageError:
        return None
    if tree is None or tree.name is None or not tree.url.startswith("https://"):
        return None
    if not COMMIT.fullmatch(tree.revision) or framework_name(tree.name) or has_secret(line):
        return None
    extras = f"[{','.join(tree.extras)}]" if tree.extras else ""
    return Requirement(
        text=f"{tree.name}{extras} @ {tree.source(tree.revision)}",
        name=canonicalize_name(tree.name),
        where=where,
    )


def _parse_direct(line: str, where: str) -> Requirement | None:
    """Return the requirement for an address that tells what is meant, None for any other line."""
    parsers = (parse_wheel_address, parse_commit, _parse_conda_built)
    return next(filter(None, (parse(line, where) for parse in parsers)), None)


def refuse_address(text: str, where: str) -> tuple[str, str]:
    """Return an address or a folder that is not taken, and why."""
    return without_secrets(text)[:200], f"{where}: {why_no_package(text)}"


def why_no_package(text: str) -> str:
    """Return why an address or a folder is not taken, and what to write."""
    if text.endswith((".whl", ".tar.gz", ".zip")) or not FOLDER.fullmatch(text):
        return NO_ADDRESS
    return f'a folder of the project: "-e {text}" in the dependencies installs it'


NOT_INSTALLED = (
    "the project itself is not installed: its folder is bound when the image runs "
    '(with a pyproject.toml or setup.py, "-e ." in the dependencies installs it)'
)


class _RequirementsReader:
    """One list with all that it includes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requirements: list[Requirement] = []
        self.aside: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.bounds: dict[str, str] = {}
        self.seen: set[Path] = set()
        self.include: list[Path] = []
        self.cuda: str | None = None
        self.text = ""

    def read(self, path: Path, *, constraints: bool) -> None:
        """Read one file; one that includes itself is read once."""
        name = shown_path(path, self.root)
        if not is_inside(path, self.root):
            self.notes.append(
                f"{name} lies outside of the project, or is a link that leads there: not read"
            )
            return
        place = path.resolve()
        if place in self.include:
            chain = " -> ".join(shown_path(one, self.root) for one in (*self.include, place))
            self.notes.append(f"{name} includes itself ({chain}): read once")
            return
        if place in self.seen:
            return
        if len(self.seen) >= MOST_FILES:
            raise UsageError(
                f"includes more than {MOST_FILES} files",
                where=shown_path(self.include[0], self.root),
            )
        text = read_text(path)
        if text is None:
            self.notes.append(f"{name} cannot be read as text, so what it asks for is missing here")
            return
        if self.include:
            how = "as bounds" if constraints else "too"
            self.notes.append(f"{shown_path(self.include[0], self.root)}: {name} is read {how}")
        self.seen.add(place)
        self.include.append(place)
        self.text += "" if constraints else text
        for number, line in _logical_lines(printed_by_pip(text)):
            self.line(line, f"{name}, line {number}", path, constraints=constraints)
        self.include.pop()

    def line(self, line: str, where: str, path: Path, *, constraints: bool) -> None:
        """Read one line that is not empty."""
        option = re.match(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)?(\S+)", line)
        if option:
            self._included(
                option[1], path, constraints=constraints or line.startswith(("-c", "--c"))
            )
        elif (direct := _parse_direct(line, where)) is not None:
            self.requirements.append(direct)
        elif re.match(r"(-e|--editable)\b", line) or ADDRESS.match(line):
            self._address(re.sub(r"^(-e|--editable)[\s=]+", "", line), where)
        elif line.startswith("-"):
            self._option(line, where)
        elif (found := parse_requirement(OPTION.sub("", line).rstrip("."), where)) is None:
            self.aside.append(
                (without_secrets(line)[:120], f"{where}: not a requirement as PEP 508 has it")
            )
        elif constraints:
            self.bounds[found.name] = re.sub(r"^[\w.-]+", "", found.text)
        else:
            self.requirements.append(found)

    def _included(self, name: str, path: Path, *, constraints: bool) -> None:
        if re.match(r"[a-z]+://", name):
            self.notes.append(
                f"{shown_path(path, self.root)} includes {without_secrets(name)}, which is "
                "not fetched"
            )
            return
        where = shown_path(path, self.root)
        developing = is_about_developing(Path(name)) and not is_about_developing(Path(where))
        if developing and not constraints:
            self.notes.append(f"{where}: {name} is for those who change or ship it: not read")
            return
        self.read(path.parent / name, constraints=constraints)

    def _address(self, text: str, where: str) -> None:
        if text.rstrip("/") in (".", "./") or re.match(r"\.(\[[\w,\s-]*\])?$", text):
            self.notes.append(f"{where}: {NOT_INSTALLED}")
            return
        self.aside.append(refuse_address(text, where))

    def _option(self, line: str, where: str) -> None:
        match = re.match(r"(-[a-zA-Z]|--[\w-]+)", line)
        option = match[1] if match else line
        if option in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links"):
            self.cuda = self.cuda or cuda_of(line)
            known = (
                " (CUDA builds come with the base)" if "pytorch" in line or cuda_of(line) else ""
            )
            self.notes.append(
                f"{where}: {option} is left out: name the index in [python] indexes if it is "
                f"needed{known}"
            )
        elif option not in (
            "--no-binary",
            "--only-binary",
            "--pre",
            "--trusted-host",
            "--prefer-binary",
            "--no-cache-dir",
        ):
            self.notes.append(f"{where}: pip's option {option} is left out")


def read_requirements(path: Path, root: Path) -> FileFindings:
    """Read a list with all that it includes.  Raises UsageError for one that never ends."""
    reader = _RequirementsReader(root)
    reader.read(path, constraints=False)
    return _findings_of(reader, shown_path(path, root))


def read_pip_lines(lines: list[str], path: Path, root: Path, where: str) -> FileFindings:
    """Read lines of a list that stand in another file (the pip section of a conda environment)."""
    reader = _RequirementsReader(root)
    for _, line in _logical_lines("\n".join(lines)):
        reader.line(line, where, path, constraints=False)
    return _findings_of(reader, where)


def _findings_of(reader: _RequirementsReader, file: str) -> FileFindings:
    requirements = tuple(_with_bounds(one, reader.bounds) for one in reader.requirements)
    return FileFindings(
        file=file,
        requirements=requirements,
        aside=tuple(reader.aside),
        frozen=_is_dump(requirements, reader.text),
        direct=_called_direct(reader.text) if VIA.search(reader.text) else frozenset(),
        notes=tuple(reader.notes),
        cuda=reader.cuda,
    )


def _with_bounds(one: Requirement, bounds: dict[str, str]) -> Requirement:
    """Give a requirement without bounds those of the constraints file."""
    bound = bounds.get(one.name, "")
    if not bound or re.search(r"[<>=!~;]", one.text):
        return one
    return Requirement(text=f"{one.text}{bound}", name=one.name, where=one.where)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that say something, continued ones joined, with their numbers."""
    found: list[tuple[int, str]] = []
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        start = start if pending else number
        pending += line.rstrip("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        if pending.strip():
            found.append((start, pending.strip()))
        pending = ""
    return [*found, (start, pending.strip())] if pending.strip() else found


MANY_BROUGHT = 20
"""Indirect packages that no list by hand names."""


def _is_dump(requirements: tuple[Requirement, ...], text: str) -> bool:
    """Whether a list is a dump of a whole environment (pip freeze, pip-compile, uv).

    Everything is pinned by == and there are packages among them that nobody asks for directly;
    in a short one they are half of it.  With many of these, half of the pins is enough: people
    take the paths of conda's own builds (NAME @ file:///croot/...) off by hand.
    """
    if "--hash=" in text or "autogenerated by pip-compile" in text or VIA.search(text):
        return True
    pinned = sum(1 for one in requirements if re.search(r"={2,3}|@ ", one.text))
    pinned += sum(1 for line in text.splitlines() if CONDA_BUILT.fullmatch(line.strip()))
    names = {one.name for one in requirements}
    brought = len(names & set(load_names().transitive.names))
    enough = len(requirements) >= 15 or brought >= 0.5 * len(requirements)
    share = 0.5 if brought >= MANY_BROUGHT else 0.9
    return enough and pinned >= share * len(requirements) and brought >= 5


def _called_direct(text: str) -> frozenset[str]:
    """Return the names that a compiled list calls direct: their "via" names a file."""
    found: set[str] = set()
    name, open_via = "", False
    for line in text.splitlines():
        pinned = re.match(r"([A-Za-z0-9][\w.-]*)(\[[^]]*\])?==", line)
        if pinned:
            name, open_via = canonicalize_name(pinned[1]), False
        via = re.search(r"#\s+via\s*(.*)$", line)
        continues = open_via and line.strip().startswith("#")
        source = line.strip().lstrip("#").strip() if continues else ""
        if via:
            source = via[1]
        open_via = bool(via) or continues
        if name and re.search(
            r"(^|,\s*)(-r\s|[^\s,]+ \((pyproject\.toml|setup\.(py|cfg))\))", source
        ):
            found.add(name)
    return frozenset(found)
