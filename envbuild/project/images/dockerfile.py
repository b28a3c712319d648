"""Take a Dockerfile apart: its stages, each with what it starts from, runs, copies and sets.

spython reads the instructions of a stage.  They are prepared for it, since it takes a file line by
line: continued lines are joined, here-documents taken out, and variables of ARG and ENV filled in
as Docker does it.  What is only known when it is built keeps its ``$``, and so does what is called
a secret.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from spython.logger import bot
from spython.main.parse.parsers import DockerParser

from envbuild.errors import UsageError
from envbuild.limits import KIB, Room, split_words
from envbuild.names import Pairs, Texts
from envbuild.project.private import is_secret_name
from envbuild.project.shell.installs import ShellFindings

INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(?:\s+(.*))?$", re.DOTALL)
HERE = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^{}]*))?\}|(\w+))")
OPTION = re.compile(r"(?<!\S)--[\w-]+(?:=(?:\"[^\"]*\"|'[^']*'|\S+))?\s+")
WITHOUT_VARIABLES = {"run", "cmd", "entrypoint", "shell", "healthcheck", "onbuild"}
"""Instructions whose variables a shell fills in, or nobody."""
FILLED = 256 * KIB
"""Characters of filled in variables of a file: one that names another twice doubles with each."""
MOST_STAGES = 200
"""Stages of a file: each takes the variables of the one that it starts from."""
PROJECT_FILES = "it works on the project's files, which are not in the image"


@dataclass(slots=True)
class DockerfileStage:
    """One stage: ``start`` is an image or an earlier stage, ``lines`` are shell lines in order.

    ``instructions`` are those for spython, one a line; ``copies`` are (source, destination);
    ``variables`` is what ENV sets, ``known`` also what ARG has as default.
    """

    start: str
    name: str = ""
    lines: list[str] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    entrypoint: Texts = ()
    command: Texts = ()


def read_dockerfile(text: str) -> list[DockerfileStage]:
    """Return the stages in order; none for a text without FROM.

    Raises UsageError and IntegrityError for one that takes hours.
    """
    stages: list[DockerfileStage] = []
    given: dict[str, str] = {}
    room = Room(FILLED, "the variables of a Dockerfile fill in")
    for word, rest, documents in _instructions(text):
        if word == "arg" and not stages:
            given |= _assigned(_filled(rest, given, room))
        elif word == "from":
            if len(stages) == MOST_STAGES:
                raise UsageError(f"a Dockerfile has more than {MOST_STAGES} stages")
            stages.append(_stage(_filled(OPTION.sub("", rest), given, room), stages))
        elif stages:
            filled = rest if word in WITHOUT_VARIABLES else _filled(rest, stages[-1].known, room)
            _read(word, filled, documents, stages[-1], given, room=room)
    for stage in stages:
        _take_apart(stage)
    return stages


def _take_apart(stage: DockerfileStage) -> None:
    """Let spython read what a stage copies and starts.

    It prints, raises anything, and ends the process where it cannot go on: such a stage copies
    and starts nothing.
    """
    level, bot.level = bot.level, 0
    parser = DockerParser(None, load=False)
    parser.lines = stage.instructions
    try:
        recipe = next(iter(parser.parse().values()))
    except (Exception, SystemExit):  # noqa: BLE001  (whatever spython raises)
        return
    finally:
        bot.level = level
    stage.copies = [(source, target) for source, target in recipe.files]
    stage.entrypoint, stage.command = _started(recipe.entrypoint), _started(recipe.cmd)


def _stage(text: str, before: list[DockerfileStage]) -> DockerfileStage:
    start, word, name = (*text.split(), "", "", "")[:3]
    if word.lower() != "as":
        name = ""
    named = {stage.name: stage for stage in reversed(before) if stage.name}
    parent = named.get(start.lower())
    known = dict(parent.variables) if parent else {}
    return DockerfileStage(start=start, name=name.lower(), known=known)


def _read(
    word: str,
    text: str,
    documents: list[str],
    stage: DockerfileStage,
    given: dict[str, str],
    *,
    room: Room,
) -> None:
    """Carry one instruction into its stage."""
    if word == "run":
        stage.lines += _run(text, documents, stage.known, room)
    elif word == "arg":
        name, equals, _ = text.partition("=")
        if equals:
            stage.known |= _assigned(text)
        elif name in given:
            stage.known[name] = given[name]
    elif word == "env":
        stage.variables |= _assigned(text)
        stage.known |= stage.variables
    elif word == "workdir":
        stage.lines.append(f"cd {shlex.quote(text.strip().strip(chr(34)))}")
    elif word in ("copy", "add"):
        stage.instructions += _copies(text)
    elif word == "entrypoint" and text:  # a new entry point drops the command before it
        kept = [line for line in stage.instructions if not line.startswith("CMD ")]
        stage.instructions = [*kept, f"ENTRYPOINT {text}"]
    elif word == "cmd" and text:
        stage.instructions.append(f"CMD {text}")


def refuse_project_steps(found: ShellFindings, copies: Pairs) -> None:
    """Take out what a Dockerfile runs in the folder that it copies the project to.

    A line that names a file which was copied there works on that file.
    """
    targets = {target for source, target in copies if source in (".", "./")}
    folders = {target.rstrip("/") for target in targets if target != "/"}
    files = {PurePosixPath(source).name for source, _ in copies} - {"", "."}
    for line in tuple(found.post):
        where = re.match(r"\((?:mkdir -p \S+ && )?cd [\"']?([^\s\"']+) && (.*)\)", line)
        if where is None:
            continue
        if folders & {".", where[1].rstrip("/")} or files.intersection(where[2].split()):
            found.post.remove(line)
            found.refused.append((where[2][:160], PROJECT_FILES))


def _run(text: str, documents: list[str], known: dict[str, str], room: Room) -> list[str]:
    """Return the shell lines of RUN; a here-document that a shell reads is its lines."""
    text = OPTION.sub("", text) if text.startswith("--") else text
    if text.lstrip().startswith("["):
        return [shlex.join(_words(text))]
    if documents and re.match(r"(\S{0,200}\b(ba|da|z|k)?sh\b[^<]*)?<<", text):
        lines = "\n".join(documents).splitlines()
        return [_filled(line, known, room) for line in lines]
    if documents:
        found = [text]
        for mark, document in zip(HERE.finditer(text), documents, strict=True):
            found += [*document.splitlines(), mark[2]]
        return found
    return [_filled(text, known, room)]


def _instructions(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (instruction in lower case, the rest of it in one line, its here-documents)."""
    mark = "`" if re.match(r"(\s*#.*\n)*\s*#\s*escape\s*=\s*`", text) else "\\"
    lines = iter(text.splitlines())
    for first in lines:
        if _is_empty(first):
            continue
        found = INSTRUCTION.match(_join_continued(first, lines, mark))
        if found is None:
            continue
        word, rest = found[1].lower(), (found[2] or "").strip()
        ends = HERE.finditer(rest) if word in ("run", "copy", "add") else ()
        yield word, rest, [_document(lines, match[2]) for match in ends]


def _join_continued(first: str, lines: Iterator[str], mark: str) -> str:
    """Return a line with those that continue it; between them may be comments and empty lines."""
    pieces = [first.rstrip()]
    while pieces[-1].endswith(mark):
        following = next(lines, None)
        if following is not None and _is_empty(following):
            continue
        pieces[-1] = pieces[-1][:-1]
        if following is not None:
            pieces.append(following.strip())
    return " ".join(pieces)


def _is_empty(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _document(lines: Iterator[str], until: str) -> str:
    found: list[str] = []
    for line in lines:
        if line.strip() == until:
            break
        found.append(line)
    return "\n".join(found)


def _filled(text: str, known: dict[str, str], room: Room) -> str:
    """Fill in variables with a known value: $NAME, ${NAME}, ${NAME:-else}, ${NAME:+then}."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[4]
        if name is None or is_secret_name(name):
            return match[0]
        there = known.get(name, "")
        room.take(len(there))
        if match[2] == "+":
            return match[3] if there else ""
        return there or match[3] or ("" if name in known else match[0])

    return VARIABLE.sub(value, text)


def _assigned(text: str) -> dict[str, str]:
    """Read NAME=value NAME="value" …, and ENV's old form NAME value."""
    if not re.match(r"\w+=", text):
        name, _, value = text.partition(" ")
        return {name: value.strip()} if value else {}
    try:
        words = split_words(text)
    except ValueError:
        words = text.split()
    return dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))


def _copies(text: str) -> list[str]:
    """Return COPY as spython reads it: words between single blanks, without Docker's options."""
    if "--from=" in text:
        return []  # from another stage or image, not the project's
    text = OPTION.sub("", text)
    words = _words(text) if text.startswith("[") else tuple(text.split())
    *sources, target = words or ("",)
    plain = [source for source in sources if not source.startswith("<<")]
    return [f"COPY {source} {target}" for source in plain if " " not in source + target]


def _started(found: object) -> Texts:
    """Return what spython made of CMD or ENTRYPOINT: a list, or a line of shell."""
    if isinstance(found, list):
        return tuple(map(str, found))
    return _words(found) if isinstance(found, str) else ()


def _words(text: str) -> Texts:
    """Read ["program", "word"], or words of a shell line."""
    if text.lstrip().startswith("["):
        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list):
            return tuple(map(str, words))
    try:
        return tuple(split_words(text.removeprefix("exec ")))
    except ValueError:
        return ()
