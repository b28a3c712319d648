"""A recipe that keeps a conda environment as conda: from environment.yml, or a locked list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envbuild.base.suggest import framework_name
from envbuild.data.package_tables import load_conda
from envbuild.errors import UsageError
from envbuild.names import Pairs, Texts
from envbuild.net.channels import VENDOR_NAMES, is_vendor_url
from envbuild.project.conda.environment import pip_section, title_of, unswapped, variables_of
from envbuild.project.conda.locked_lists import channel_name, is_conda_list, read_conda_list
from envbuild.project.conda.stand_ins import (
    BUILT,
    cut_dump,
    declared_needs,
    merge_wheels,
    put_stand_ins,
    without_build,
)
from envbuild.project.gather import recipe_name
from envbuild.project.lists.requirements import read_pip_lines
from envbuild.project.model import FileFindings, RecipeDraft
from envbuild.project.names import implied_framework
from envbuild.project.tree import read_text
from envbuild.recipe.conda import check_spec, spec_name
from envbuild.recipe.model import (
    AboutSection,
    BaseSection,
    CondaSection,
    PythonSection,
    Recipe,
    RunSection,
    TargetSection,
)
from envbuild.records import frozen_record, replace
from envbuild.yaml import parse_yaml

BASE = "debian:bookworm"
"""What conda's packages are put on: they bring all but the C library."""
LISTS = ("pixi.lock", "conda-lock.yml", "conda-lock.yaml", "environment.yml", "environment.yaml")
EXTRAS = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)\[[^=\]]*\]")
CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


@frozen_record
class _Environment:
    """What a file says: channels by name, match specs, wheels, variables, notes."""

    title: str | None = None
    channels: Texts = ()
    specs: Texts = ()
    wheels: Texts = ()
    variables: Pairs = ()
    notes: Texts = ()


def find_conda_file(place: Path) -> Path:
    """Return the file of a folder that lists a conda environment, the locked one first.

    Raises UsageError where there is none.
    """
    if place.is_file():
        return place
    found = [place / name for name in LISTS if (place / name).is_file()]
    if not found:
        raise UsageError(
            "has no conda environment", where=place, hint=f"looked for {', '.join(LISTS)}"
        )
    return found[0]


def find_conda_only(findings: Sequence[FileFindings]) -> FileFindings | None:
    """Return the file that only conda can serve: what it names Python and Debian do not have.

    None where another file says too what the project needs.
    """
    needs = [one for one in findings if one.requirements or one.system or one.conda_only]
    return needs[0] if len(needs) == 1 and needs[0].conda_only else None


def draft_conda_recipe(path: Path, site: str | None, conda_only: Texts = ()) -> RecipeDraft:
    """Return the recipe of an environment.yml, pixi.lock, conda-lock.yml or @EXPLICIT list.

    ``site`` is the cluster that it is for, SITE[:PARTITION]; ``conda_only`` are the packages that
    only conda has, where nobody asked to keep it as conda.  Raises UsageError.
    """
    found = _locked_environment(path) if is_conda_list(path) else _read_environment(path)
    if not found.specs:
        raise UsageError("lists no conda packages", where=path)
    # whether conda or pip is asked for a GPU framework, what requires one, or CUDA
    table = load_conda()
    names = {spec_name(line) for line in (*found.specs, *found.wheels)}
    of_gpu = table.frameworks | table.depends | table.libraries | set(table.through)
    named = any(framework_name(name) or implied_framework(name) for name in names)
    on_gpu = named or bool(names & of_gpu)
    below = {"conda": found.notes} if found.notes else {}
    if on_gpu and site is None:
        below["target"] = ('name the nodes that the image is for: gpu = ["A100"], driver = "550"',)
    recipe = Recipe(
        recipe=AboutSection(name=recipe_name(found.title or path.resolve().parent.name)),
        base=BaseSection(bootstrap=BASE, cpu=not on_gpu),
        python=PythonSection(dependencies=found.wheels),
        conda=CondaSection(channels=found.channels, dependencies=found.specs),
        target=TargetSection(sites=(site,)) if site else TargetSection(),
        run=RunSection(environment=dict(found.variables)),
    )
    reason = "envbuild init --conda"
    if conda_only:
        reason = f"only conda has {', '.join(conda_only[:5])}; --no-conda takes it apart"
    head = (f"From {path.name}, kept as conda ({reason}).",)
    return RecipeDraft(recipe=recipe, head=head, below=below, sources=(path.name,))


def _locked_environment(path: Path) -> _Environment:
    found = read_conda_list(path, "linux-64")
    used = [channel_name(archive.channel) for archive in found.archives]
    ranked = [name for name in found.channels if name in used]
    specs = tuple(f"{archive.name} =={archive.version}" for archive in found.roots)
    notes = [f"envbuild lock NAME --from {path.name} takes its very archives"]
    vendor = [archive.file for archive in found.archives if is_vendor_url(archive.channel)]
    if vendor:
        notes.append(f"of Anaconda Inc.'s channels, which lock refuses by itself: {vendor[0]}, …")
    channels = tuple(dict.fromkeys((*ranked, *used)))
    return _Environment(channels=channels, specs=specs, wheels=found.wheels, notes=tuple(notes))


def _read_environment(path: Path) -> _Environment:
    data = parse_yaml(read_text(path) or "", path)
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        raise UsageError("is not a conda environment: it has no dependencies", where=path)
    lines = [" ".join(line.split()) for line in data["dependencies"] if isinstance(line, str)]
    pip: list[str] = []
    for entry in data["dependencies"]:
        pip += pip_section(entry) if isinstance(entry, dict) else []
    wheels = read_pip_lines(pip, path, path.parent, path.name)
    left = tuple(f"not taken: {text} ({reason})" for text, reason in wheels.aside)
    lines, unread = _readable_specs(lines)
    channels = _channels_of(data.get("channels"), lines)
    cut: Texts = ()
    if channels.notes:
        lines, cut = cut_dump(lines, pip)
        if not re.search(r"conda-forge['\"/]", str(data.get("channels"))):
            lines = [*map(without_build, lines)]
    lines, foreign = _without_other_systems(lines)
    lines, instead = put_stand_ins(lines, channels.channels)
    needs = (*wheels.requirements, *declared_needs(pip, path.parent))
    lines, on_top, twice = merge_wheels(lines, needs)
    return replace(
        channels,
        title=title_of(data),
        specs=tuple(dict.fromkeys(lines)),
        wheels=on_top,
        variables=variables_of(data),
        notes=(*channels.notes, *cut, *unread, *foreign, *instead, *wheels.notes, *twice, *left),
    )


def _readable_specs(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return lines as match specs that can be solved for, and notes about those that are none."""
    specs, notes = [], []
    for line in lines:
        channel, _, text = unswapped(line).rpartition("::")
        with_extras = EXTRAS.fullmatch(text)
        if with_extras:
            notes.append(f"conda has no extras: {line} is taken as {with_extras['name']}")
            text = with_extras["name"]
        # the vendor's channels are replaced
        spec = f"{channel}::{text}" if channel and not VENDOR_NAMES.match(channel) else text
        try:
            check_spec(spec)
            specs.append(spec)
        except UsageError as error:
            notes.append(f"not taken: {error}")
    return specs, notes


def _without_other_systems(lines: list[str]) -> tuple[list[str], Texts]:
    """Return match specs without what only Windows or macOS has, and a note where there was any.

    Builds are then of that system too.
    """
    elsewhere = load_conda().elsewhere
    gone = [name for name in map(spec_name, lines) if name in elsewhere]
    if not gone:
        return lines, ()
    kept = [BUILT.sub(r"\g<spec>", line) for line in lines if spec_name(line) not in elsewhere]
    note = f"exported on Windows or macOS: without build strings, and without {', '.join(gone)}"
    return kept, (note,)


def _channels_of(listed: Any, lines: list[str]) -> _Environment:
    """Return the names of channels, last those that only a line names ("nvidia::cuda").

    conda's own defaults are the vendor's, and replaced.
    """
    names: list[str] = []
    vendor: list[str] = []
    entries = listed if isinstance(listed, list) else ["defaults"]
    named = [line.rpartition("::")[0] for line in lines if "::" in line]
    for text in map(str, (*entries, *named)):
        name = channel_name(text) if "://" in text else text
        if name == "nodefaults":
            continue
        if name == "default" or VENDOR_NAMES.match(name) or not CHANNEL.fullmatch(name):
            vendor.append(name)
            name = "conda-forge"
        names.append(name)
    note = f"Anaconda Inc.'s channels ({', '.join(dict.fromkeys(vendor))}): conda-forge is taken"
    return _Environment(channels=tuple(dict.fromkeys(names)), notes=(note,) if vendor else ())
