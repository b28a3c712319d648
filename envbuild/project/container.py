"""Read an Apptainer definition or a Dockerfile (which spython takes apart)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.base.catalogue import entries
from envbuild.errors import UsageError
from envbuild.project.conda import read_conda
from envbuild.project.definition import read_stages
from envbuild.project.model import Saying
from envbuild.project.requirements import read_requirements
from envbuild.project.shellwords import Installed, read_lines
from envbuild.project.tree import LARGEST, read_text

PLAIN = re.compile(r"(docker\.io/)?(library/)?(ubuntu|debian|python|centos|rockylinux|almalinux|fedora|alpine)(:|$|@)")
"""Images that bring no framework: a bootstrap does the same."""
ASIDE = ("setup", "startscript", "test")
"""Sections that are named and not taken."""
NEEDLESS_SYSTEM = re.compile(
    r"(python3?(\.\d+)?(-(dev|pip|venv|distutils|setuptools|wheel|tk|minimal|apt))?|apt-utils|apt-transport-https|ca-certificates"
    r"|software-properties-common|gnupg2?|sudo|locales|tzdata|dialog|cuda-.*|lib(cu[a-z]+|npp|nvjpeg)(-dev)?-\d+-\d+|libcudnn\d.*|libnccl.*|nvidia-.*)"
)
"""Debian packages that a definition installs for its own building, or that the base brings."""
BUILD_SYSTEM = re.compile(r"(build-essential|gcc(-\d+)?|g\+\+(-\d+)?|cmake|make|ninja-build|pkg-config|.*-dev)")
"""Debian packages for building: not kept in the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """A definition taken apart: ``image`` is what it starts from, if that can be a base.

    ``apart`` tells that each line is a shell of its own.
    """

    lines: list[str]
    image: str | None
    command: tuple[str, ...]
    variables: list[str]
    copies: tuple[str, ...]
    notes: list[str]
    apart: bool = False


def read_container(path: Path, root: Path) -> Saying:
    """Read a definition.  Raises UsageError for a file that is none."""
    file = _shown(path, root)
    text = read_text(path)
    if text is None:
        raise UsageError(f"cannot be read, or is larger than {LARGEST // 1024 // 1024} MB", where=file)
    parts = _docker(path, file) if is_dockerfile(path, text) else _definition(text, path, file)
    found = read_lines(parts.lines, file, apart=parts.apart)
    saying = _with_lists(found, path, root, file)
    system = tuple(dict.fromkeys(found.system))
    copies = ", ".join(parts.copies[:3]) + (" …" if len(parts.copies) > 3 else "")
    copied = (f"{file} copies files into the image: {copies}; the project's folder is bound instead",) if copies else ()
    return Saying(
        file=file,
        needs=saying.needs,
        aside=saying.aside,
        system=tuple(name for name in system if not _is_needless(name) and not BUILD_SYSTEM.fullmatch(name)),
        build=tuple(name for name in system if BUILD_SYSTEM.fullmatch(name)),
        post=tuple(found.post),
        image=parts.image,
        python=found.python or saying.python,
        command=parts.command,
        environment=_environment(parts.variables),
        frozen=saying.frozen,
        notes=(*copied, *parts.notes, *found.notes, *saying.notes),
    )


def is_dockerfile(path: Path, text: str) -> bool:
    """Whether a definition is a Dockerfile: by its name, else by its first instruction."""
    if "ockerfile" in path.name or path.name == "Containerfile":
        return True
    return re.search(r"^\s*bootstrap\s*:", text, re.IGNORECASE | re.MULTILINE) is None and bool(
        re.search(r"^\s*FROM\s+\S+", text, re.MULTILINE)
    )


def _docker(path: Path, file: str) -> _Parts:
    """Let spython take a Dockerfile apart; its last stage counts.

    It prints, raises anything, and ends the process where it cannot go on: all become an error that names the file.
    """
    from spython.logger import bot
    from spython.main.parse.parsers import get_parser

    level, bot.level = bot.level, 0
    try:
        stages: dict[str, Any] = get_parser("docker")(str(path)).recipe
    except (Exception, SystemExit) as error:
        raise UsageError("is not a Dockerfile that can be read", where=file, hint="name another file") from error
    finally:
        bot.level = level
    chain = _chain(stages)
    notes = [f"{file} has {len(stages)} stages; the last one is taken"] if len(stages) > len(chain) else []
    start = _start(chain[0])
    if "$" in start:
        notes.append(f"{file} starts from {start}, which is only known when it is built")
    last = chain[-1]
    return _Parts(
        lines=_docker_lines([line for stage in chain for line in stage.install]),
        image=_image(start),
        command=_command((*_words(last.entrypoint), *_words(last.cmd))),
        variables=[str(line) for stage in chain for line in stage.environ or ()],
        copies=tuple(" ".join(map(str, one)) if isinstance(one, list) else str(one) for one in last.files),
        notes=notes,
        apart=True,
    )


def _chain(stages: Mapping[str, Any]) -> list[Any]:
    """Return the last stage after those that it starts from by their names (``FROM image AS name``)."""
    names = [name.lower() for name in stages]
    every = list(stages.values())
    index = len(every) - 1
    chain = [every[index]]
    while (start := _start(chain[0]).lower()) in names[:index]:
        index = names.index(start)
        chain.insert(0, every[index])
    return chain


def _start(stage: Any) -> str:
    """Return what a stage starts from, as written."""
    return re.sub(r"^--platform=\S+\s+", "", str(stage.fromHeader or "").strip()).split(" ")[0]


def _definition(text: str, path: Path, file: str) -> _Parts:
    stages = read_stages(text)
    stage = stages[-1]
    agent, start = stage.header.get("bootstrap", "").lower(), stage.header.get("from", "")
    if not agent or not (start or stage.sections):
        raise UsageError("is no Apptainer definition: it has no Bootstrap:", where=file)
    notes = [f"{file} has {len(stages)} stages; the last one is taken"] if len(stages) > 1 else []
    unread = [name for name in stage.sections if name.startswith("app") or name in ASIDE]
    if unread:
        notes.append(f"{file}: not taken: %{', %'.join(unread)}")
    image = _image(start) if agent == "docker" else None
    if agent == "localimage" and start:
        image, said = _local_image(start, path)
        notes.append(f"{file}: {said}")
    elif agent not in ("docker", "debootstrap", "localimage"):
        notes.append(f"{file} starts from {agent}: {start}, which is not taken as base")
    starts = [line for line in stage.lines("runscript") if line.strip() and not line.strip().startswith("#")]
    return _Parts(
        lines=stage.lines("post"),
        image=image,
        command=_command(_words(starts[0])) if len(starts) == 1 else (),
        variables=[line.strip().removeprefix("export ") for line in stage.lines("environment")],
        copies=tuple(
            line.strip() for line in stage.lines("files") if line.strip() and not line.strip().startswith("#")
        ),
        notes=notes,
    )


def _local_image(start: str, path: Path) -> tuple[str | None, str]:
    """Return the base of a definition that starts from a file: the file, or the image it was pulled from.

    apptainer pull calls docker://MAKER/NAME:TAG the file NAME_TAG.sif.
    """
    if (path.parent / start).is_file() and start.endswith(".sif"):
        return start, f"starts from the file {start}"
    pulled = {entry.reference.rpartition("/")[2].replace(":", "_") + ".sif": entry.reference for entry in entries()}
    image = pulled.get(Path(start).name)
    if image is None:
        return None, f"starts from the file {start}, which is not here"
    return image, f"starts from the file {start}, which is not here; apptainer pull calls {image} so"


def _docker_lines(lines: list[object]) -> list[str]:
    """Return the shell lines of RUN: without variables, Docker's own options and the marks of here-documents.

    spython puts ENV and ARG among them as NAME=value, and cuts continued lines apart.
    """
    found: list[str] = []
    until = ""
    for line in map(str, lines):
        text = re.sub(r"^(--(mount|network|security)=\S+\s+)+", "", line.strip())
        here = re.fullmatch(r"<<-?['\"]?(\w+)['\"]?", text)
        continued = bool(found) and found[-1].endswith("\\")
        if here or (until and text == until):
            until = here[1] if here else ""
        elif continued or not re.match(r"[A-Za-z_]\w*=(?!=)", text) or "&&" in text:
            found.append(_words_joined(text))
    return found


def _words_joined(text: str) -> str:
    """Return RUN ["program", "word"] as a line of shell."""
    if not text.startswith("["):
        return text
    try:
        words = json.loads(text)
    except ValueError:
        return text
    return shlex.join(map(str, words)) if isinstance(words, list) else text


def _with_lists(found: Installed, path: Path, root: Path, file: str) -> Saying:
    """Add the lists that a definition installs from, found by their names beside it or in the project."""
    needs, aside, notes = list(found.needs), list(found.aside), list[str]()
    python = None
    frozen = False
    for name in (*found.lists, *found.environments):
        tries = (path.parent / Path(name).name, root / name.lstrip("/"), root / Path(name).name)
        other = next((one for one in tries if one.is_file() and one.resolve().is_relative_to(root.resolve())), None)
        if other is None:
            notes.append(f"{file} installs from {name}, which is not in the project")
            continue
        saying = read_conda(other, root) if name in found.environments else read_requirements(other, root)
        if saying is not None:
            needs += saying.needs
            aside += saying.aside
            notes += saying.notes
            python = python or saying.python
            frozen = frozen or saying.frozen
    return Saying(file=file, needs=tuple(needs), aside=tuple(aside), notes=tuple(notes), python=python, frozen=frozen)


def _image(name: str) -> str | None:
    """Return an image of a registry as a base; None where it is a plain Linux, or known only when it is built."""
    name = name.removeprefix("docker://")
    if not name or PLAIN.match(name) or "$" in name or name == "scratch":
        return None
    return f"docker://{name}"


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the image starts, where that is a program and its words; what it hands on is left out."""
    words = tuple(word for word in words if word != "$@")
    shells = {"bash", "/bin/bash", "sh", "/bin/sh", "zsh"}
    return () if not words or words[0] in shells or any("$" in word or "\n" in word for word in words) else words


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(word) for word in value)
    if not isinstance(value, str) or not value.strip() or "\n" in value.strip():
        return ()
    try:
        return tuple(shlex.split(value.strip().removeprefix("exec ")))
    except ValueError:
        return ()


def _environment(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Return plain variables; those built from others and those of the image's own housekeeping are left out."""
    found: dict[str, str] = {}
    for line in lines or ():
        name, equals, value = str(line).partition("=")
        value = value.strip().strip("\"'")
        ours = re.fullmatch(r"[A-Za-z_]\w*", name) and name not in (
            "PATH",
            "LD_LIBRARY_PATH",
            "DEBIAN_FRONTEND",
            "LANG",
            "LC_ALL",
        )
        if equals and ours and "$" not in value and value.isprintable():
            found[name] = value
    return tuple(found.items())


def _is_needless(name: str) -> bool:
    return bool(NEEDLESS_SYSTEM.fullmatch(name))


def _shown(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name
