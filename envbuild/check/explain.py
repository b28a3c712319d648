"""Known messages in the log of a job: what they mean, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec
from msgspec import structs

from envbuild.check.checks.libraries import advise_provider
from envbuild.data.tables import LogRule, load_failures, load_log_rules
from envbuild.names import Texts

BLOCK = 1 << 20
LINE_LIMIT = 4000
"""Characters of one line that are looked at; progress bars and dumped arrays are longer."""
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
AFTER_ERROR = r"(?m:^)(?=(?P<head>.*?(?:FATAL|ERROR)))(?P=head).*?"
"""Behind the first such word of a line; not tried again behind each one, which a line may repeat."""
TROUBLE = re.compile(
    r"^.*(?:Error\b|Exception\b|FATAL|fatal|Segmentation fault|Aborted|Killed\b|Traceback|ERROR:|error:|"
    r"[Uu]nable to load|[Cc]ould not (?:load|connect|open)|cannot open shared object file|"
    r"[Ff]all(?:ing|s)? back to (?:the )?(?:CPU|cpu)|(?:only|run) on (?:the )?CPU|without GPU support).*$",
    re.MULTILINE,
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found: its first line (the log begins with 1) and how many there are."""

    name: str
    cause: str
    do: Texts
    source: str
    line: int
    text: str
    count: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says: known messages, causes first.

    ``trouble`` are the last lines that look like errors otherwise.
    """

    known: tuple[Known, ...]
    lines: int
    trouble: Texts = ()


@cache
def load_rules() -> tuple[LogRule, ...]:
    """Return the rules: those of explain.toml, then the container runtime's own failures."""
    runtime = tuple(
        LogRule(
            name=f"container-{number}",
            pattern=f"{AFTER_ERROR}(?:{known.pattern})",
            cause=known.what,
            do=known.hint,
            source="messages of Apptainer 1.4",
            example="",
        )
        for number, known in enumerate(load_failures().runtime, 1)
    )
    return load_log_rules().rule + runtime


def explain_log(pieces: Iterable[str]) -> Explanation:
    """Explain a log that comes in pieces of any size, of which one at a time is held in memory."""
    found: dict[str, Known] = {}
    trouble: list[str] = []
    lines = 0
    for block in _blocks(pieces):
        for rule in load_rules():
            _search(rule, block, lines, found)
        trouble = [*trouble, *(one[0].strip() for one in TROUBLE.finditer(block))][-5:]
        lines += block.count("\n")
    causes = [rule for rule in load_rules() if not any(name in found for name in rule.follows)]
    known = [found[rule.name] for rule in causes if rule.name in found]
    # what does no harm comes last, and does not hide messages that nobody knows
    known.sort(key=_is_harmless)
    if known and not _is_harmless(known[0]):
        trouble = []
    unknown = tuple(line[:300] for line in trouble)
    return Explanation(known=tuple(known), lines=lines, trouble=unknown)


def _is_harmless(known: Known) -> bool:
    """Tell whether a message is known to mean nothing (its cause in the table begins so)."""
    return known.cause.startswith("harmless")


def _search(rule: LogRule, block: str, before: int, found: dict[str, Known]) -> None:
    first = re.search(rule.pattern, block)
    if first is None:
        return
    lines = {block.rfind("\n", 0, one.start()) + 1 for one in re.finditer(rule.pattern, block)}
    seen = found.get(rule.name)
    if seen is not None:
        found[rule.name] = structs.replace(seen, count=seen.count + len(lines))
        return
    start = block.rfind("\n", 0, first.start()) + 1
    groups = {key: value or "something" for key, value in first.groupdict().items()}
    do = tuple(line.format(**groups) for line in rule.do)
    found[rule.name] = Known(
        name=rule.name,
        cause=rule.cause.format(**groups),
        do=(advise_provider(first["soname"]), *do) if first.groupdict().get("soname") else do,
        source=rule.source,
        line=before + block.count("\n", 0, start) + 1,
        text=block[start : block.find("\n", start)].strip()[:300],
        count=len(lines),
    )


def _blocks(pieces: Iterable[str]) -> Iterator[str]:
    """Join pieces into blocks of whole lines, without colours.

    Of a progress bar only what it showed last counts.
    """
    held: list[str] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BLOCK:
            whole, _, rest = "".join(held).rpartition("\n")
            if not whole and len(rest) < 8 * BLOCK:
                continue
            yield _plain(whole or rest)
            held, size = ([rest], len(rest)) if whole else ([], 0)
    if held and "".join(held):
        yield _plain("".join(held).removesuffix("\n"))


def _plain(text: str) -> str:
    """Return a text as a terminal shows it: no colours, of a bar that is redrawn the last state."""
    plain: list[str] = []
    for line in ANSI.sub("", text).replace("\r\n", "\n").split("\n"):
        last = line.rstrip("\r").rpartition("\r")[2]
        plain.append(f"{last[:LINE_LIMIT]}\n")
    return "".join(plain)
