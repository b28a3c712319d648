"""Read an Apptainer definition or a Dockerfile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from envbuild.base.catalogue import catalogue_entries
from envbuild.errors import UsageError
from envbuild.limits import split_words
from envbuild.names import Pairs, Texts
from envbuild.project.conda.environment import read_conda
from envbuild.project.cuda import cuda_of
from envbuild.project.images.copies import copied_folders, find_copied, read_copies
from envbuild.project.images.definition import read_stages
from envbuild.project.images.dockerfile import (
    DockerfileStage,
    read_dockerfile,
    refuse_project_steps,
)
from envbuild.project.lists.requirements import read_requirements
from envbuild.project.model import FileFindings
from envbuild.project.private import has_secret, is_loader, is_secret_name
from envbuild.project.shell.installs import ShellFindings, read_lines
from envbuild.project.tree import LARGEST, is_file, read_text, shown_path
from envbuild.records import field, frozen_record
from envbuild.store.units import as_printable

PLAIN = re.compile(
    r"(docker\.io/)?((library/)?(ubuntu|debian|python|pypy|centos|rockylinux|almalinux|fedora"
    r"|alpine|busybox)|continuumio/\w+"
    r"|condaforge/\w+|mambaorg/\w+|mcr\.microsoft\.com/devcontainers/\S+|(quay\.io/)?jupyter/"
    r"(base|minimal|scipy|datascience|tensorflow|pytorch)-notebook(?!:cuda)"
    r"|ghcr\.io/astral-sh/uv|gcr\.io/google-appengine/\w+)(:|$|@)"
)
"""Images that bring no framework for a GPU, or conda alone: a bootstrap does the same."""
ASIDE = ("setup", "startscript", "test")
"""Sections that are named and not taken."""
NEEDLESS_SYSTEM = re.compile(
    r"(python[23]?(\.\d+)?(-(pip|venv|distutils|setuptools|wheel|minimal|apt|virtualenv))?"
    r"|python3?\.\d+-(dev|tk)|apt-utils|apt-transport-https|ca-certificates"
    r"|software-properties-common|gnupg2?|sudo|locales|tzdata|dialog|cuda-.*|lib(cu[a-z]+|npp"
    r"|nvjpeg)(-dev)?-\d+-\d+|libcudnn\d.*|libnccl.*|nvidia-.*)"
)
"""Debian packages that a definition installs for its own building, or that the base brings."""
BUILD_SYSTEM = re.compile(
    r"(build-essential|gcc(-\d+)?|g\+\+(-\d+)?|cmake|make|ninja-build|pkg-config|.*-dev)"
)
"""Debian packages for building: not kept in the image."""


@frozen_record
class _Parts:
    """A definition in parts: ``start`` is its base, ``image`` the same if envbuild can use it.

    ``apart`` says that each line is a shell of its own; ``copies`` are (source, destination).
    """

    lines: list[str]
    start: str
    image: str | None
    command: Texts
    variables: Pairs
    copies: Pairs
    notes: list[str] = field(default_factory=list)
    apart: bool = False


def read_container(path: Path, root: Path) -> FileFindings:
    """Read a definition.  Raises UsageError for a file that is none."""
    file = shown_path(path, root)
    text = read_text(path)
    if text is None:
        raise UsageError(
            f"cannot be read as text, or is larger than {LARGEST // 1024 // 1024} MB", where=file
        )
    parts = (
        _read_docker(text, file)
        if is_dockerfile(path, text)
        else _read_definition(text, path, file)
    )
    folders = copied_folders(parts.copies, path, root)
    found = read_lines(parts.lines, file, apart=parts.apart, folders=folders)
    refuse_project_steps(found, parts.copies)
    found.system += _listed_packages(found, parts, path, root)
    findings = _with_lists(found, parts, path, root)
    system = [name for name in dict.fromkeys(found.system) if not NEEDLESS_SYSTEM.fullmatch(name)]
    for_building = [name for name in system if BUILD_SYSTEM.fullmatch(name)]
    python = found.python or findings.python or _python_of(parts.start)
    cuda = found.cuda or findings.cuda or cuda_of(parts.start)
    environment, left = _plain_environment(parts.variables)
    sources = [" ".join(one) for one in parts.copies]
    copies = ", ".join(sources[:3]) + (" …" if len(sources) > 3 else "")
    copied = (
        (f"{file} copies files into the image: {copies}; the project's folder is bound instead",)
        if copies
        else ()
    )
    return FileFindings(
        file=file,
        requirements=findings.requirements,
        aside=findings.aside,
        system=tuple(name for name in system if name not in for_building),
        build=tuple(for_building),
        post=tuple(found.post),
        image=parts.image,
        python=python,
        command=tuple(_bound_word(word, parts, path, root) for word in parts.command),
        environment=environment,
        frozen=findings.frozen,
        notes=(*copied, *parts.notes, *found.notes, *findings.notes),
        cuda=cuda,
        refused=(*left, *found.refused),
    )


def is_dockerfile(path: Path, text: str) -> bool:
    """Whether a definition is a Dockerfile: by its name, else by its first instruction."""
    if "ockerfile" in path.name or path.name == "Containerfile":
        return True
    if re.search(r"^[ \t]*bootstrap[ \t]*:", text, re.IGNORECASE | re.MULTILINE):
        return False
    return re.search(r"^[ \t]*FROM\s+\S+", text, re.MULTILINE) is not None


def _read_docker(text: str, file: str) -> _Parts:
    """Take a Dockerfile apart; its last stage counts, with those that it starts from."""
    stages = read_dockerfile(text)
    if not stages or not stages[-1].start:
        raise UsageError(
            "is not a Dockerfile that can be read", where=file, hint="name another file"
        )
    chain = _stage_chain(stages)
    start, last = chain[0].start, chain[-1]
    notes = (
        [f"{file} has {len(stages)} stages; the last one is taken"]
        if len(stages) > len(chain)
        else []
    )
    if "$" in start:
        notes.append(
            f"{file} starts from {as_printable(start)}, which is only known when it is built"
        )
    variables = itertools.chain.from_iterable(stage.variables.items() for stage in chain)
    copies = itertools.chain.from_iterable(stage.copies for stage in chain)
    return _Parts(
        lines=list(itertools.chain.from_iterable(stage.lines for stage in chain)),
        start=start,
        image=_base_image(start),
        command=_start_command((*last.entrypoint, *last.command)),
        variables=tuple(variables),
        copies=tuple(copies),
        notes=notes,
        apart=True,
    )


def _stage_chain(stages: list[DockerfileStage]) -> list[DockerfileStage]:
    """Return the last stage after those that it starts from (``FROM image AS name``)."""
    chain = [stages[-1]]
    index = len(stages) - 1
    while (before := _parent_stage(stages[:index], chain[0].start)) is not None:
        index = before
        chain.insert(0, stages[index])
    return chain


def _parent_stage(stages: list[DockerfileStage], start: str) -> int | None:
    return next(
        (
            number
            for number, stage in enumerate(stages)
            if stage.name and stage.name == start.lower()
        ),
        None,
    )


def _read_definition(text: str, path: Path, file: str) -> _Parts:
    stages = read_stages(text)
    stage = stages[-1]
    agent = stage.header.get("bootstrap", "").lower()
    start = re.sub(r"(?<!\s)\s+#.*$", "", stage.header.get("from", ""))
    if not agent or not (start or stage.sections):
        raise UsageError("is not an Apptainer definition: it has no Bootstrap:", where=file)
    notes = [f"{file} has {len(stages)} stages; the last one is taken"] if len(stages) > 1 else []
    unread = [name for name in stage.sections if name.startswith("app") or name in ASIDE]
    if unread:
        notes.append(f"{file}: not taken: %{', %'.join(unread)}")
    image = _base_image(start) if agent == "docker" else None
    if agent == "localimage" and start:
        image, image_notes = _local_image(start, path)
        notes.append(f"{file}: {image_notes}")
    elif agent not in ("docker", "debootstrap", "localimage"):
        notes.append(f"{file} starts from {agent}: {start}, which is not taken as base")
    plain = [line.strip() for line in stage.lines("runscript")]
    starts = [line for line in plain if line and not line.startswith("#")]
    return _Parts(
        lines=stage.lines("post"),
        start=start,
        image=image,
        command=_start_command(_split_words(starts[0])) if len(starts) == 1 else (),
        variables=tuple(_assignments(stage.lines("environment"))),
        copies=tuple(read_copies(stage.lines("files"))),
        notes=notes,
    )


def _assignments(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Read the lines of %environment: export NAME=value, several on one line, joined by ; or &&."""
    for line in re.split(r"\n|;|&&", "\n".join(lines)):
        try:
            words = split_words(line, comments=True)
        except ValueError:
            continue
        for word in words:
            name, equals, value = word.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                yield name, value


def _local_image(start: str, path: Path) -> tuple[str | None, str]:
    """Return the base of a definition that starts from a file.

    apptainer pull calls docker://MAKER/NAME:TAG the file NAME_TAG.sif.
    """
    if start.endswith(".sif") and is_file(path.parent / start):
        return start, f"starts from the file {start}"
    pulled = {
        entry.reference.rpartition("/")[2].replace(":", "_") + ".sif": entry.reference
        for entry in catalogue_entries()
    }
    image = pulled.get(Path(start).name)
    if image is None:
        return None, f"starts from the file {start}, which is not here"
    return (
        image,
        f"starts from the file {start}, which is not here; apptainer pull calls {image} so",
    )


def _listed_packages(found: ShellFindings, parts: _Parts, path: Path, root: Path) -> list[str]:
    """Return the names in the files that apt installs from ($(cat packages.txt))."""
    names: list[str] = []
    for name in found.debian_lists:
        other = find_copied(name, parts.copies, path, root)
        text = read_text(other) if other is not None else None
        if text is None:
            found.notes.append(
                f"{shown_path(path, root)} installs Debian packages from {name}, which is "
                "not in the project"
            )
        else:
            words = re.sub(r"#.*", "", text).split()
            names += [word for word in words if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", word)]
    return names


def _bound_word(word: str, parts: _Parts, path: Path, root: Path) -> str:
    """Return a word of a command; the path of a copied file becomes its path in the project."""
    found = find_copied(word, parts.copies, path, root) if word.startswith("/") else None
    return word if found is None else shown_path(found, root)


def _with_lists(found: ShellFindings, parts: _Parts, path: Path, root: Path) -> FileFindings:
    """Add the lists that a definition installs from."""
    file = shown_path(path, root)
    requirements, aside, notes = list(found.requirements), list(found.aside), list[str]()
    python = cuda = None
    frozen = False
    for name in dict.fromkeys((*found.lists, *found.environments)):
        other = find_copied(name, parts.copies, path, root)
        if other is None:
            notes.append(f"{file} installs from {as_printable(name)}, which is not in the project")
            continue
        findings = (
            read_conda(other, root)
            if name in found.environments
            else read_requirements(other, root)
        )
        if findings is not None:
            requirements += findings.requirements
            aside += findings.aside
            notes += findings.notes
            found.system += findings.system
            python, cuda = python or findings.python, cuda or findings.cuda
            frozen = frozen or findings.frozen
    return FileFindings(
        file=file,
        requirements=tuple(requirements),
        aside=tuple(aside),
        notes=tuple(notes),
        python=python,
        frozen=frozen,
        cuda=cuda,
    )


def _python_of(start: str) -> str | None:
    """Return the Python of an image that is nothing but a Python."""
    plain = re.match(r"(docker\.io/)?(library/)?python:(3\.\d+)", start)
    return f"=={plain[3]}.*" if plain else None


def _base_image(name: str) -> str | None:
    """Return a registry's image as a base; None for a plain Linux or a variable."""
    name = name.removeprefix("docker://")
    if not name or PLAIN.match(name) or "$" in name or name == "scratch":
        return None
    return f"docker://{name}"


def _start_command(words: Texts) -> Texts:
    """Return the program that the image starts, with its words; no shell, no variables."""
    words = tuple(word for word in words if word != "$@")
    shells = {"bash", "/bin/bash", "sh", "/bin/sh", "zsh"}
    if not words or words[0] in shells or re.search(r"[$\n]", "".join(words)):
        return ()
    return words


def _split_words(value: object) -> Texts:
    if isinstance(value, list):
        return tuple(str(word) for word in value)
    if not isinstance(value, str) or not value.strip() or "\n" in value.strip():
        return ()
    try:
        return tuple(split_words(value.strip().removeprefix("exec ")))
    except ValueError:
        return ()


HOUSE = {
    "PATH", "LD_LIBRARY_PATH", "DEBIAN_FRONTEND", "LANG", "LC_ALL", "LANGUAGE", "CONDA_PREFIX",
    "VIRTUAL_ENV",
}  # fmt: skip
"""Variables of the image's own housekeeping."""


def _plain_environment(
    pairs: Iterable[tuple[str, str]],
) -> tuple[Pairs, Pairs]:
    """Return plain variables, and those left out with the reason.

    Those built from others and those of the image's own housekeeping are left out without a word.
    """
    found: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, given in pairs:
        value = given.strip().strip("\"'")
        if is_secret_name(name) or has_secret(value):
            left[name] = "its name or value is a secret's; hand it on from your own environment"
        elif is_loader(name):
            left[name] = "it loads a library into every program"
        elif (
            re.fullmatch(r"[A-Za-z_]\w*", name)
            and name not in HOUSE
            and "$" not in value
            and value.isprintable()
        ):
            found[name] = value
    reasons = tuple((f"variable {name}", why) for name, why in left.items())
    return tuple(found.items()), reasons
