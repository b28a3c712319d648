"""No pattern of the package takes more than a moment over a line that begins it again and again.

Of each pattern, texts are made from what it matches: up to each of its repeats, with that repeat's own text many times, and an end
that does not fit. Time that grows with the third power of a line's length, or faster, would be hours for what a stranger writes.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import envbuild
from envbuild.project.shell.readme import SCRIPT

parser = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
LENGTH = 1500
"""Characters: a search that takes their square takes milliseconds, their third power 1.5 s and more."""
SECONDS = 0.5
NAMES = (SCRIPT.pattern,)
"""Patterns of file names, which have 255 characters."""
FOLDER = Path(envbuild.__file__).parent
CALLS = {"compile", "search", "match", "fullmatch", "sub", "findall", "finditer", "split"}


def patterns_of_calls(path: Path) -> Iterator[str]:
    """Yield the patterns that a module writes where it calls ``re``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in CALLS:
            continue
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        owner = called.value
        if isinstance(first, ast.Constant) and isinstance(owner, ast.Name) and owner.id == "re":
            yield str(first.value)


def all_patterns() -> dict[str, re.Pattern[str]]:
    """Return the patterns of all modules by their text: as they are compiled, or as they are written."""
    written = [text for path in FOLDER.rglob("*.py") for text in patterns_of_calls(path)]
    found = {text: re.compile(text) for text in written}
    for module in pkgutil.walk_packages([str(FOLDER)], "envbuild."):
        if ".probes." in module.name or "script" in module.name or module.name.endswith("__main__"):
            continue  # programs that run elsewhere: their calls were read above
        for value in list(vars(importlib.import_module(module.name)).values()):
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                found[value.pattern] = value
    return found


def letter(choices: Any) -> str:
    """Return one character that a set in brackets takes."""
    negated = bool(choices) and str(choices[0][0]) == "NEGATE"
    taken = re.compile(f"[{''.join(spelled(*one) for one in choices)}]", re.DOTALL)
    tried = (
        chr(number) for number in (97, 49, 32, 45, *range(33, 127), 10, 9, *range(128, 0x3100))
    )
    return next((one for one in tried if taken.match(one)), "") if choices or negated else ""


def spelled(kind: Any, value: Any) -> str:
    name = str(kind)
    if name == "NEGATE":
        return "^"
    if name == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if name == "CATEGORY":
        word = str(value).removeprefix("CATEGORY_")
        small = {"SPACE": "s", "DIGIT": "d", "WORD": "w"}[word.removeprefix("NOT_")]
        return "\\" + (small.upper() if word.startswith("NOT_") else small)
    return re.escape(chr(value))


def single(name: str, value: Any) -> str:
    """Return a character for a part of a pattern that takes one, "" for what takes none."""
    if name == "LITERAL":
        return chr(value)
    if name == "NOT_LITERAL":
        return "a" if value != ord("a") else "b"
    if name == "IN":
        return letter(value)
    return {"ANY": "a"}.get(name, "")


def sample(tree: Any, pumps: list[tuple[str, str]], before: str = "") -> str:
    """Return a text that a pattern matches; note what stands before each repeat, and the repeat's own text."""
    made = ""
    for kind, value in tree:
        name, begun = str(kind), before + made
        if name.endswith("REPEAT"):
            low, high, inner = value
            once = sample(inner, pumps, begun)
            if high > 1:
                pumps.append((begun, once))
            made += once * max(low, 1)
        elif name == "SUBPATTERN":
            made += sample(value[-1], pumps, begun)
        elif name == "ATOMIC_GROUP":
            made += sample(value, pumps, begun)
        elif name == "BRANCH":
            first, *_ = [sample(branch, pumps, begun) for branch in value[1]]
            made += first
        elif name == "ASSERT":
            sample(value[1], pumps, begun)
        else:
            made += single(name, value)
    return made


def texts_of(pattern: re.Pattern[str]) -> set[str]:
    pumps: list[tuple[str, str]] = []
    whole = sample(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE), pumps)
    pieces = [(begun, once) for begun, once in pumps if once]
    long = {begun + once * (LENGTH // len(once)) + "\0" for begun, once in pieces}
    again = {begun + once for begun, once in pieces} | {whole}
    return long | {(text * LENGTH)[:LENGTH] + "\0" for text in again if text}


def slow_texts(pattern: re.Pattern[str]) -> list[str]:
    """Return the beginnings of what a pattern takes more than SECONDS of the processor to look through."""
    slow = []
    for text in sorted(texts_of(pattern)):
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            pattern.search(text)
        except TimeoutError:
            slow.append(text[:60])
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return slow


def end_search(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError


@pytest.fixture
def ended() -> Iterator[None]:
    """End what takes longer: a search looks for signals."""
    before = signal.signal(signal.SIGVTALRM, end_search)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    "text", [r"(a+)+b", r"x\s*\s*\s*y", r"(?:a|a)*b", r".*\d.*\d.*z", r"[^,]*,(.*),(.*);"]
)
def test_a_pattern_that_takes_hours_is_found(text: str) -> None:
    assert slow_texts(re.compile(text))


@pytest.mark.usefixtures("ended")
def test_every_pattern_reads_its_own_beginnings_in_a_moment() -> None:
    patterns = all_patterns()
    assert len(patterns) > 500
    slow = {text: slow_texts(pattern) for text, pattern in patterns.items() if text not in NAMES}
    assert not {text: attacks for text, attacks in slow.items() if attacks}
