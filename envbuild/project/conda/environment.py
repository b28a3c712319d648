"""Read a conda environment file: its packages by other names, and its pip section."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from envbuild.data.package_tables import load_names
from envbuild.names import Pairs
from envbuild.project.cuda import cuda_of
from envbuild.project.lists.declared import split_requirements
from envbuild.project.lists.printed import printed_by_conda
from envbuild.project.lists.requirements import read_pip_lines
from envbuild.project.model import FileFindings, Requirement
from envbuild.project.names import conda_name
from envbuild.project.tree import read_text, shown_path
from envbuild.records import replace
from envbuild.yaml import parse_yaml

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# numpy[version=">=1.2,<2",build=py312*]
VERSION = re.compile(
    r"\[(?:[^\[]*,)?version=(?:(['\"])(?P<quoted>[^'\"]+)\1(?:,[^\[]*)?|(?P<plain>[^'\"\[\]]+))\]"
)


WRITTEN_BY_CONDA = {"_libgcc_mutex", "_openmp_mutex", "ca-certificates", "ld_impl_linux-64"}
"""Packages of conda that nobody asks for by hand."""
INSTALLATION = {
    "conda", "anaconda-client", "anaconda-navigator", "anaconda-project", "conda-build",
    "conda-content-trust", "conda-libmamba-solver", "conda-package-handling",
}  # fmt: skip
"""Packages of a conda installation itself: a dump with one holds all that its owner uses."""


def read_conda(path: Path, root: Path) -> FileFindings | None:
    """Read an environment.yml; None for YAML that is no environment.

    Raises UsageError for text that is no YAML.
    """
    file = shown_path(path, root)
    data = parse_yaml(read_text(path) or "", file)
    if not isinstance(data, dict):
        return None
    if not {"dependencies", "channels"} & set(data):
        note = f"{file} names an environment, but no packages"
        return FileFindings(file=file, notes=(note,)) if "name" in data else None
    entries = data.get("dependencies")
    reader = CondaReader(file, root, path)
    for entry in entries if isinstance(entries, list) else []:
        reader.entry(entry)
    if not isinstance(entries, list) or not entries:
        reader.notes.append(f"{file} lists no packages")
    reader.title = title_of(data)
    reader.environment = variables_of(data)
    return reader.findings()


def title_of(data: Mapping[str, object]) -> str | None:
    """Return the name of an environment file; "base" names conda's own installation."""
    name = data.get("name")
    return name if isinstance(name, str) and name not in ("", "base") else None


def variables_of(data: Mapping[str, object]) -> Pairs:
    """Return the variables of an environment file, without those that no shell could set."""
    table = data.get("variables")
    if not isinstance(table, dict):
        return ()
    pairs = [(str(name), str(value)) for name, value in table.items()]
    return tuple(pair for pair in pairs if NAME.fullmatch(pair[0]) and pair[1].isprintable())


def read_printed(path: Path, root: Path) -> FileFindings | None:
    """Read what conda list had printed into a file; None for any other text."""
    printed = printed_by_conda(read_text(path) or "")
    if printed is None:
        return None
    with_conda, with_pip = printed
    reader = CondaReader(shown_path(path, root), root, path)
    for line in with_conda:
        reader.entry(line)
    reader.entry({"pip": with_pip})
    # nobody wrote the part of pip by hand, as in an environment file
    return replace(reader.findings(), direct=frozenset())


class CondaReader:
    """One environment file."""

    def __init__(self, file: str, root: Path, path: Path) -> None:
        self.file, self.root, self.path = file, root, path
        self.requirements: list[Requirement] = []
        self.aside: list[tuple[str, str]] = []
        self.system: list[str] = []
        self.notes: list[str] = []
        self.direct: set[str] = set()
        self.python: str | None = None
        self.builds = 0
        self.pins = 0
        self.count = 0
        self.is_exported = False
        self.installation = False
        self.cuda: str | None = None
        self.unknown: list[str] = []
        self.title: str | None = None
        self.environment: Pairs = ()

    def entry(self, entry: object) -> None:
        """Read one item of the list of dependencies."""
        if isinstance(entry, dict):
            self._pip(pip_section(entry))
        elif isinstance(entry, str):
            self.count += 1
            self._package(entry)

    def _pip(self, lines: list[str]) -> None:
        """Read the pip section: lines as a list of requirements has them."""
        found = read_pip_lines(lines, self.path, self.root, self.file)
        self.requirements += found.requirements
        self.direct |= {requirement.name for requirement in found.requirements}
        self.aside += found.aside
        self.notes += found.notes
        self.cuda = self.cuda or found.cuda

    def _package(self, entry: str) -> None:
        """Read one conda package: [channel::]name[ bounds | =version[=build]]."""
        text = re.sub(r"^[\w./-]+::?(?=[A-Za-z])", "", entry.split("#", maxsplit=1)[0].strip())
        match = re.match(r"([A-Za-z0-9_][\w.-]*)\s*(.*)$", text)
        if not match:
            return
        name, wish = match[1].lower(), match[2].strip()
        self.builds += bool(re.fullmatch(r"=[^=\s]+=\S+", wish))
        self.pins += wish.startswith("=")
        self.is_exported = self.is_exported or name in WRITTEN_BY_CONDA
        self.installation = self.installation or name in INSTALLATION
        bounds = conda_bounds(wish)
        if name == "python":
            self.python = bounds or None
            return
        self.cuda = self.cuda or conda_cuda(name, wish)
        note = compiler_note(name, bounds, self.file)
        self.notes += [note] if note else []
        known = conda_name(name)
        if known is None:
            self.unknown.append(f"{name}{bounds}")
        elif known.startswith("system:"):
            self.system.append(known.removeprefix("system:"))
        elif known:
            requirements, aside = split_requirements([f"{known}{bounds}"], self.file)
            self.requirements += requirements
            self.aside += aside

    def findings(self) -> FileFindings:
        """Return what the file says."""
        frozen = self._is_dump()
        reason = f"{self.file}: a conda package that nothing is known of outside of conda"
        unknown = () if frozen else tuple((name, reason) for name in self.unknown)
        if frozen and self.unknown:
            names = ", ".join(re.sub(r"[=<>!~].*", "", name) for name in self.unknown)
            self.notes.append(
                f"{self.file}: of these conda packages nothing is known outside of conda: {names}"
            )
        direct = self._direct() if frozen else frozenset()
        return FileFindings(
            file=self.file,
            requirements=tuple(self.requirements),
            aside=(*self.aside, *unknown),
            system=() if frozen else tuple(dict.fromkeys(self.system)),
            python=self.python,
            environment=self.environment,
            frozen=frozen,
            direct=direct,
            notes=tuple(self.notes),
            cuda=self.cuda,
            title=self.title,
            conda_only=tuple(name for name, _ in unknown),
            installation=self.installation,
        )

    def _is_dump(self) -> bool:
        """Whether conda wrote the whole environment down: with builds, or with --no-builds."""
        has_builds = self.builds >= 0.5 * self.count
        is_pinned = self.is_exported and self.pins >= 0.9 * self.count
        return self.count >= 10 and (has_builds or is_pinned)

    def _direct(self) -> frozenset[str]:
        """Return the pip section of a dump, if people wrote it and chose nothing else."""
        brought = set(load_names().transitive.names)
        of_conda = {requirement.name for requirement in self.requirements} - self.direct
        if of_conda - brought or len(self.direct & brought) > 0.1 * len(self.direct):
            return frozenset()
        return frozenset(self.direct)


def compiler_note(name: str, bounds: str, where: str) -> str | None:
    """Say of conda's CUDA compiler that the base has to have one; None for every other package."""
    if not re.fullmatch(
        r"cuda|cuda-(toolkit|nvcc|compiler|dev)|cudatoolkit-dev|nvcc(_linux-64)?", name
    ):
        return None
    return (
        f"{where}: {name}{bounds} is CUDA's compiler: the base brings CUDA; "
        "where code is compiled, take a -devel image"
    )


def pip_section(entry: Mapping[str, object]) -> list[str]:
    """Return the lines of pip's section, a list or a text."""
    section = entry.get("pip")
    lines = _pip_lines(section) if isinstance(section, str) else section
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _pip_lines(text: str) -> list[str]:
    """Return the lines of a pip section that is text; several names on a line are split."""
    found: list[str] = []
    for line in text.splitlines():
        plain = not re.search(r"[;@#]|^\s*-", line)
        found += re.split(r"\s(?=[A-Za-z])", line.strip()) if plain else [line]
    return found


def conda_cuda(name: str, wish: str) -> str | None:
    """Return the CUDA version that a conda package pins, as in cudatoolkit=11.3."""
    if re.fullmatch(
        r"cudatoolkit(-dev)?|pytorch-cuda|cuda|cuda-(toolkit|runtime|version|nvcc|cudart)", name
    ):
        version = re.search(r"(\d{1,9}\.\d+)", wish)
        return version[1] if version else None
    return cuda_of(name) or cuda_of(wish.rpartition("=")[2])


def unswapped(wish: str) -> str:
    """Return bounds with ">=" for "=>", which conda reads and other solvers refuse."""
    return re.sub(r"(?<!=)=([<>])(?!=)", r"\1=", wish)


def conda_bounds(wish: str) -> str:
    """Return conda's bounds in the form of PEP 440: "=1.2" is "==1.2.*"."""
    wish = unswapped(wish).strip("()")
    keyed = VERSION.fullmatch(wish)
    wish = keyed["quoted"] or keyed["plain"] if keyed else wish
    if "|" in wish or "[" in wish:
        return ""  # a choice: PEP 440 has none
    wish = re.sub(r"(?<=[<>=!~])\s+(?=\d)", "", wish)
    built = re.fullmatch(r"={1,2}([^=\s]+)=\S+", wish)
    if built and not built[1].endswith("*"):
        return f"=={built[1]}"
    wish = f"={built[1]}" if built else wish
    parts = [part.strip().split()[0] for part in wish.split(",") if part.strip()]
    return ",".join(filter(None, map(_conda_bound, parts)))


def _conda_bound(part: str) -> str:
    part = re.sub(r"^([<>]=?.*?)\.?\*$", r"\1", part)
    exact = re.fullmatch(r"(={0,2})(\d[\w.!+]*?)(\.?\*)?", part)
    if exact is None:
        return part if re.fullmatch(r"[<>=!~]=?\d[\w.!+*]*", part) else ""
    sign, version, star = exact.groups()
    # conda's "=1.2" stands for every 1.2.x, its "1.2" alone too; "=1.2.3" is meant as it is
    is_series = star or sign == "" or (sign == "=" and version.count(".") < 2)
    if is_series and version.replace(".", "").isdigit():
        return f"=={version}.*"
    return f"=={version}"
