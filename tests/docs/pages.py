"""Read the pages for people: their code blocks, tables and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One ``$ command`` of a console block and the lines shown below it."""

    command: str
    shown: tuple[str, ...]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    """Return a page without its fenced blocks and inline code."""
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    )


def steps(block: str) -> list[Step]:
    """Split a console block into its commands."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        found.append(Step(command=command, shown=tuple(shown)))
    return found


def section(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    start = re.search(rf"^{re.escape(heading)}$", text, flags=re.MULTILINE)
    assert start, f"no heading {heading!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, flags=re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of all table rows, without heads and rulers."""
    lines = text.splitlines()
    rulers = {number for number, line in enumerate(lines) if re.fullmatch(r"\|[-| ]+\|", line)}
    heads = {number - 1 for number in rulers}
    return [
        cells(line)
        for number, line in enumerate(lines)
        if line.startswith("|") and number not in rulers | heads
    ]


def cells(line: str) -> tuple[str, ...]:
    """Split a table row; an escaped bar stays in its cell."""
    return tuple(
        cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]
    )


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shape(line: str) -> str:
    """Return a line without what differs from run to run: folders, numbers, and the width of blanks."""
    line = re.sub(r"(?<![\w.])/?(?:[\w.~-]+/)+(?=[\w.-]+\.\w+)", "", line)
    line = re.sub(r"\d+(\.\d+)*", "0", line)
    line = re.sub(r"(?<=\d )(ms|s|min|kB|MB|GB)\b", "unit", line)
    return " ".join(line.split())
