"""Read what a README or a script for it installs: lines with pip and conda."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.project.lists.readme import BLOCK, ITEM, NAMES
from envbuild.project.model import FileFindings, ImportedModule
from envbuild.project.names import distribution_of, is_known_distribution
from envbuild.project.shell.installs import read_lines
from envbuild.project.tree import is_inside, read_text, shown_path
from envbuild.store.units import minor_version

LINE = re.compile(
    r"^[ \t]*(?:[$%>][ \t]*)?((?:sudo[ \t]+)?(?:\S*python[\d.]*[ \t]+-m[ \t]+)?(?:pip|conda|mamba)\d*[ \t]+"
    r"(?:install|create)\b[^\n]*)$",
    re.MULTILINE,
)
INLINE = re.compile(
    r"^[ \t]*(?:(?:(?:[-*+]|\d+\.)[ \t]+)?`([^`\n]+)`[ \t.:]*"
    r"|(?:[-*+]|\d+\.)[ \t]+((?:pip3?|conda)[ \t]+install[ \t][^\n`]+))$",
    re.MULTILINE,
)
"""A line of a README that is one command and nothing else."""
SCRIPT = re.compile(
    r"(?!.*(cpu|windows|win|mac|rocm))(.*[-_.])?(init|install|set[-_]?up|env|environment"
    r"|requirements?|deps|dependencies|bootstrap|prepare)([-_.].*)?\.sh|[Mm]akefile"
)
"""Scripts of the shell that install what a project needs."""


STARTS = re.compile(
    r"^[ \t]*(?:[$>%][ \t]*)?(?:\w+=\S*[ \t]+)*"
    r"(deepspeed[ \t]+\S[^\n]*\.py|accelerate[ \t]+launch)\b",
    re.MULTILINE,
)
"""Lines that start a program with a launcher, which is of the package of its name."""


def launching_modules(root: Path) -> tuple[ImportedModule, ...]:
    """Return the packages whose launchers start the programs, by README's blocks and scripts."""
    scripts = [*root.glob("*.sh"), *root.glob("*/*.sh")]
    readmes = [*(root / name for name in NAMES), *root.glob("*/README.md")]
    texts = [(path, _joined_lines(path)) for path in scripts if is_inside(path, root)]
    for path in readmes:
        blocks = BLOCK.finditer(_joined_lines(path)) if is_inside(path, root) else ()
        texts += [(path, block[2]) for block in blocks]
    found: dict[str, str] = {}
    for path, text in texts:
        for start in STARTS.findall(text):
            found.setdefault(start.split()[0], shown_path(path, root))
    return tuple(
        ImportedModule(module=name, where=where, certain=True) for name, where in found.items()
    )


def read_readme(root: Path) -> FileFindings | None:
    """Read the installing lines of a project's README; None where it has none."""
    for path in (root / name for name in NAMES):
        text = _joined_lines(path)
        blocks = [block[2] for block in BLOCK.finditer(text)]
        blocks += map(_installing_line, ITEM.finditer(text))
        blocks += map("".join, INLINE.findall(text))
        findings = _read_installs(blocks, shown_path(path, root))
        if findings is not None:
            return findings
    return None


def _installing_line(item: re.Match[str]) -> str:
    """Return the line that installs an item of a README's list; empty for what is no package."""
    name = item["name"].lower().replace("pytorch", "torch")
    sign = "==" if item["sign"] == "=" else item["sign"]
    release = item["release"]
    if framework_name(name) and sign == "==":
        # a README's release of a framework is that line: 1.8.2 is on PyTorch's own server alone
        release = f"{minor_version(release)}.*"
    if name == "python":
        return f"conda install python{sign}{release}"
    known = is_known_distribution(canonicalize_name(name)) or distribution_of(name)
    return f"pip install {name}{sign}{release}" if known else ""


def read_script(root: Path) -> FileFindings | None:
    """Read the first script that installs packages; None where there is none."""
    for path in install_scripts(root):
        findings = _read_installs([_joined_lines(path)], shown_path(path, root))
        if findings is not None:
            return findings
    return None


def install_scripts(root: Path) -> list[Path]:
    """Return the scripts and makefiles that may install what a project needs."""
    found = (
        *sorted(root.glob("*.sh")),
        *sorted(root.glob("[Mm]akefile")),
        *sorted(root.glob("*/*.sh")),
    )
    return [path for path in found if SCRIPT.fullmatch(path.name) and is_inside(path, root)]


def _joined_lines(path: Path) -> str:
    return re.sub(r"\\\n", " ", read_text(path) or "")


def _read_installs(texts: list[str], file: str) -> FileFindings | None:
    lines = list(chain.from_iterable(map(LINE.findall, texts)))
    found = read_lines(lines, file)
    if not found.requirements:
        return None
    return FileFindings(
        file=file,
        requirements=tuple(found.requirements),
        aside=tuple(found.aside),
        python=found.python,
        cuda=found.cuda,
        only_imported=True,
    )
