"""Join and split shell lines, and find the program that a command runs."""

from __future__ import annotations

import itertools
import re
import shlex

from envbuild.limits import SHELL_LINE

PIP = re.compile(r"(\S*/)?pip[0-9.]*$")
CONDA = {"conda", "mamba", "micromamba"}


def join_lines(lines: list[str]) -> list[str]:
    """Return logical lines: continued ones in one, comments and empty ones left out."""
    found: list[str] = []
    pending = ""
    for raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        pending += line.removesuffix("\\")
        if line.endswith(("\\", "&&", "||")):
            pending += " "
            continue
        # inside quotes a # begins no comment, and blanks count
        if "'" not in pending and '"' not in pending:
            pending = " ".join(re.sub(r"\s#\s.*$", "", pending).split())
        found.append(pending.strip())
        pending = ""
    return [*found, pending.strip()] if pending.strip() else found


def split_commands(line: str) -> list[str]:
    """Split at && and ; outside of quotes; a pipe or || stays in its command, but for "|| true"."""
    if len(line) > SHELL_LINE:
        return [line]
    try:
        lexer = shlex.shlex(line, posix=False, punctuation_chars=";&")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        return [line]
    found: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";"):
            found.append([])
        else:
            found[-1].append(word)
    commands = [" ".join(words) for words in found if words]
    plain = [re.sub(r" ?\|\|\s*(true|:|exit 0)$", "", command) for command in commands]
    return [_without_brackets(command) for command in plain if command.strip("() ")]


def _without_brackets(command: str) -> str:
    """Take off the bracket of a subshell that is split."""
    if command.startswith("("):
        command = command[1:].strip()
    if command.endswith(")") and command.count("(") < command.count(")"):
        return command[:-1].strip()
    return command


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the program and its words; every way to call pip is "pip"."""
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if program in CONDA and rest[:1] == ["run"]:
        inner = _after_options(rest[1:])
        return program_of(inner) if inner else (program, rest)
    if re.fullmatch(r"python[0-9.]*", program) and rest[:2] == ["-m", "pip"]:
        return "pip", rest[2:]
    if program == "uv" and rest[:1] == ["pip"]:
        return "pip", rest[1:]
    return ("pip", rest) if PIP.match(program) else (program, rest)


def _after_options(words: list[str]) -> list[str]:
    """Return a command without the options before it ("-n NAME", "--no-capture-output")."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in ("-n", "--name", "-p", "--prefix") else 1
    return words[index:]


def named_files(command: str) -> set[str]:
    """Return the names in a command that may be files; of a.zip also a."""
    words = set(re.split(r"[\s/=\"'{}]+", command))
    return words | {word.rpartition(".")[0] for word in words}


def fetched_names(command: str) -> set[str]:
    """Return the names of files and folders that a line downloads."""
    words = [word.strip("\"'") for word in command.split()]
    addresses = [word.rstrip("/") for word in words if "://" in word or word.endswith(".git")]
    options = ("-O", "-o", "-d", "--output")
    targets = [after for option, after in itertools.pairwise(words) if option in options]
    if re.match(r"git\s", command) and words and "://" not in words[-1]:
        targets.append(words[-1])
    files = {name.rsplit("/", 1)[-1] for name in (*addresses, *targets)}
    stems = {re.sub(r"(\.git|\.tar\.\w+|\.tgz|\.zip)$", "", name) for name in files}
    return {name for name in files if "." in name} | {name for name in stems if len(name) > 2}
