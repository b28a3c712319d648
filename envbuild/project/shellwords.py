"""Take shell lines of a definition apart: what apt, pip and conda install, and what is left."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass, field

from envbuild.project.model import Need
from envbuild.project.names import conda_name
from envbuild.project.requirements import NO_ADDRESS, need

PREFIXES = {"sudo", "command", "exec", "time", "env"}
APT = {"apt-get", "apt", "aptitude", "apt-fast"}
PIP = re.compile(r"(\S*/)?pip[0-9.]*$")
CONDA = {"conda", "mamba", "micromamba"}
WITH_VALUE = {
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target", "--trusted-host", "--timeout",
    "--default-timeout", "--root", "--prefix", "--cache-dir", "-c", "--constraint", "-n", "--name", "-p", "--channel",
    "--progress-bar", "--retries", "--global-option", "--install-option", "--config-settings", "-o",
}  # fmt: skip
HOUSEKEEPING = re.compile(
    r"(rm\s+-r?f?\S*\s+(/var/lib/apt|/var/cache|/root/\.cache|~/\.cache|/tmp)|export DEBIAN_FRONTEND|set -|true$|:$"
    r"|echo\b|(USER|SHELL|EXPOSE|HEALTHCHECK|STOPSIGNAL)\b|ldconfig$"
    r"|export (LC_ALL|LANG|PATH)|mkdir -p /(work|app|src|code)\S*$|exit 0$"
    r"|(source|\.)\s+\S*(conda\.sh|activate|bashrc)\b)"
)
"""Lines that prepare or tidy what the packages themselves do in a recipe."""
CHANGES_FOLDER = re.compile(r"(cd|pushd)\s|popd$")
"""Kept before a line that is kept, for that may be about files there."""
OURSELVES = re.compile(r"\./?(\[[^\]]*\])?")
"""The project itself, with extras or without: its folder is bound when it runs."""
DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")


@dataclass(slots=True)
class Installed:
    """What shell lines install; ``lists`` are requirement files, ``post`` the lines that do something else."""

    needs: list[Need] = field(default_factory=list)
    aside: list[tuple[str, str]] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    post: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    python: str | None = None


def read_lines(lines: list[str], where: str, *, apart: bool = False) -> Installed:
    """Read shell lines, joined and split at && and ;.  A block (if, for, here-document) is kept whole.

    ``apart`` tells that each line is a shell of its own, as in a Dockerfile: it starts in the same folder again.
    """
    found = Installed()
    depth, until, folder = 0, "", ""
    for line in joined(lines):
        if until:
            found.post.append(line)
            until = "" if line.strip() == until else until
            continue
        here = re.search(r"<<-?\s*['\"]?(\w+)", line)
        opens = len(re.findall(r"(?:^|[;&|]\s*)(?:if|for|while|case)\b", line))
        if depth or opens or here or re.search(r"\bfunction\b|\(\)\s*\{", line):
            depth = max(0, depth + opens - len(re.findall(r"\b(?:fi|done|esac)\b", line)))
            until = here[1] if here else ""
            found.post.append(line)
            continue
        kept = len(found.post)
        for command in _commands(line):
            if CHANGES_FOLDER.match(command):
                folder = command
                continue
            before = len(found.post)
            _command(command, found, where)
            if folder and len(found.post) > before:
                found.post.insert(before, folder)
                folder = ""
        if apart:
            here_too = any(CHANGES_FOLDER.match(line) for line in found.post[kept:])
            found.post[kept:] = [f"({' && '.join(found.post[kept:])})"] if here_too else found.post[kept:]
            folder = ""
    if until:
        found.notes.append(f"{where}: a here-document is not closed with {until}, so what follows it may be missing")
    return found


def joined(lines: list[str]) -> list[str]:
    """Return logical lines: continued ones in one, comments and empty ones left out."""
    found: list[str] = []
    pending = ""
    for raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            pending += " "
            continue
        found.append(" ".join(pending.split()) if "'" not in pending and '"' not in pending else pending.strip())
        pending = ""
    return [*found, pending.strip()] if pending.strip() else found


def _commands(line: str) -> list[str]:
    """Split at && and ; outside of quotes; a pipe or || stays in its command."""
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
    return [" ".join(words) for words in found if words]


def _command(command: str, found: Installed, where: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError:
        found.post.append(command)
        return
    while words and (words[0] in PREFIXES or re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0])):
        words = words[1:]
    if not words:
        return
    program, rest = _program(words)
    if {"|", "||", ">"} & set(words):
        found.post.append(command)
    elif program in APT:
        _apt(rest, found)
    elif program == "pip":
        _pip(rest, found, where)
    elif program in CONDA:
        _conda(rest, found, where)
    elif not HOUSEKEEPING.match(command):
        found.post.append(command)


def _program(words: list[str]) -> tuple[str, list[str]]:
    """Return the program and its words; every way to call pip is "pip"."""
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if re.fullmatch(r"python[0-9.]*", program) and rest[:2] == ["-m", "pip"]:
        return "pip", rest[2:]
    if program == "uv" and rest[:1] == ["pip"]:
        return "pip", rest[1:]
    return ("pip", rest) if PIP.match(program) else (program, rest)


def _apt(words: list[str], found: Installed) -> None:
    if "install" not in words:
        return  # update, clean, upgrade: the lock's packages are exact
    for word in words[words.index("install") + 1 :]:
        name = re.split(r"[=/:]", word)[0]
        if word.startswith("-"):
            continue
        if DEBIAN.fullmatch(name) and "$" not in word:
            found.system.append(name)
        else:
            found.notes.append(f"the Debian package {word} is not a plain name, so it is left out")


def _pip(words: list[str], found: Installed, where: str) -> None:
    index = words.index("install") + 1 if "install" in words else len(words)
    while index < len(words):
        word = words[index]
        index += 1
        if word in ("-r", "--requirement", "-e", "--editable") and index < len(words):
            if word.startswith(("-r", "--r")):
                found.lists.append(words[index])
            elif not OURSELVES.fullmatch(words[index]):
                found.aside.append((words[index][:200], f"{where}: {NO_ADDRESS}"))
            index += 1
        elif word in WITH_VALUE:
            index += 1
        elif word.startswith("--requirement=") or re.match(r"-r\S", word):
            found.lists.append(re.sub(r"^(--requirement=|-r)", "", word))
        elif not word.startswith("-") and not OURSELVES.fullmatch(word):
            one = need(word, where)
            if one is not None:
                found.needs.append(one)
            else:
                found.aside.append((re.sub(r"//[^/@\s]*@", "//", word)[:200], f"{where}: {NO_ADDRESS}"))


def _conda(words: list[str], found: Installed, where: str) -> None:
    if words[:2] == ["env", "create"] or words[:2] == ["env", "update"]:
        found.environments += [word for flag, word in itertools.pairwise(words) if flag in ("-f", "--file")]
        return
    verb = next((word for word in words if word in ("install", "create")), None)
    if verb is None:
        return
    rest = words[words.index(verb) + 1 :]
    index = 0
    while index < len(rest):
        word = rest[index]
        index += 1
        if word in ("-c", *WITH_VALUE):
            index += 1
        elif not word.startswith("-"):
            _conda_package(word, found, where)


def _conda_package(word: str, found: Installed, where: str) -> None:
    from envbuild.project.conda import conda_bounds

    match = re.match(r"(?:[\w-]+::)?([A-Za-z0-9_][\w.-]*)(.*)$", word)
    if not match:
        return
    known, bounds = conda_name(match[1].lower()), conda_bounds(match[2])
    if match[1] == "python":
        found.python = bounds or None
    elif known is None:
        found.aside.append((word, f"{where}: a conda package that nothing is known of outside of conda"))
    elif known.startswith("system:"):
        found.system.append(known.removeprefix("system:"))
    elif known and (one := need(f"{known}{bounds}", where)) is not None:
        found.needs.append(one)
