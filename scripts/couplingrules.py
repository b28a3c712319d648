"""The rules that find-couplings.py prints, from a table of which releases go with which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import Version
from wheelneeds import Need

FRAMEWORKS = (
    "torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "torchdata",
    "tensorflow",
    "keras",
    "jax",
    "jaxlib",
)
"""What a base holds: the package gives way to it."""
GOOD, BAD, DECLARED, UNTOLD = "good", "bad", "declared", "untold"


@dataclass
class Table:
    """Whether releases of a package and of a target fit, and why not."""

    package: str
    target: str
    releases: list[Version]
    others: list[str]
    states: dict[tuple[Version, str], str] = field(default_factory=dict)
    needs: dict[tuple[Version, str], Need] = field(default_factory=dict)


def rules_of(table: Table) -> Iterator[str]:
    """Yield a table's rule."""
    forward = table.target in (*FRAMEWORKS, "cudnn")
    rows: list[tuple[list[Any], str, Need]] = []
    lines: Sequence[Any] = table.others if forward else table.releases
    for line in lines:
        cells = (
            [(release, line) for release in table.releases]
            if forward
            else [(line, one) for one in table.others]
        )
        states = [table.states[cell] for cell in cells]
        if BAD not in states:
            rows.append(([], "", Need("", "")))
            continue
        bound = bounds(shown_versions([cell[0 if forward else 1] for cell in cells]), states)
        need = table.needs[nearest_bad(cells, states)]
        if rows and rows[-1][1] == bound:
            rows[-1][0].append(line)
        else:
            rows.append(([line], bound, need))
    package, framework = (table.package, table.target) if forward else (table.target, table.package)
    every = [str(line) for line in lines]
    told = [
        (_when(framework, [str(one) for one in found], every), f"{package}{bound}", need)
        for found, bound, need in rows
        if bound
    ]
    if told:
        yield _rule(package, framework, told)


def nearest_bad(cells: Sequence[tuple[Version, str]], states: list[str]) -> tuple[Version, str]:
    """Return the last pair that does not fit before the newest that does, else the last of all."""
    good = [number for number, state in enumerate(states) if state == GOOD]
    bad = [number for number, state in enumerate(states) if state == BAD]
    below = [number for number in bad if good and number < good[-1]]
    return cells[(below or bad)[-1]]


def minor_of(version: Version | str) -> str:
    """Return a release's first two numbers, as its minor versions stand for one another."""
    return ".".join(map(str, Version(str(version)).release[:2]))


def shown_versions(every: Sequence[Version | str]) -> list[str]:
    """Return releases as they are written in bounds: by two numbers where those tell them apart."""
    minors = [minor_of(one) for one in every]
    return minors if len(set(minors)) == len(minors) else [str(one) for one in every]


def bounds(versions: list[str], states: list[str]) -> str:
    """Return the bound that leaves bad releases out and the newest good ones in, with the older ones that join them."""
    good = [number for number, state in enumerate(states) if state == GOOD]
    if not good:
        return "<0"
    bad = [number for number, state in enumerate(states) if state == BAD]
    below = max((number for number in bad if number < good[-1]), default=None)
    above = next((number for number in bad if number > good[-1]), None)
    parts = [f">={versions[below + 1]}"] if below is not None else []
    parts += [f"<{versions[above]}"] if above is not None else []
    return ",".join(parts)


def _when(name: str, found: list[str], every: list[str]) -> str:
    """Return the marker of a row: nothing is said of releases before the first that was compared."""
    first, last = every.index(found[0]), every.index(found[-1])
    shown = shown_versions(every)
    parts = [f">={shown[first]}"] if first else []
    parts += [f"<{shown[last + 1]}"] if last + 1 < len(every) else []
    return f"{name}{','.join(parts)}" if parts else f"{name}>={shown[0]}"


def _rule(package: str, framework: str, rows: list[tuple[str, str, Need]]) -> str:
    """Return a rule as TOML."""
    causes = dict.fromkeys(f"{need.kind} {need.what} in {need.where}" for _, _, need in rows)
    lines = [
        "",
        "[[rule]]",
        f'package = "{package}"',
        f'framework = "{framework}"',
        'declared = "no"',
        'sure = "verified"',
    ]
    lines.append(f'source = "CODE {"; ".join(causes)}"')
    lines.append('check = "code"')
    lines.append("rows = [")
    lines += [f'  {{ when = "{when}", constrain = "{bound}" }},' for when, bound, _ in rows]
    return "\n".join([*lines, "]", ""])
