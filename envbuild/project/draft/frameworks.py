"""Choose the framework that a draft's base has to hold, and what becomes of others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from envbuild.base.suggest import framework_name
from envbuild.data.lookup import numbers
from envbuild.data.package_tables import load_companions
from envbuild.project.code.imports import file_written_for
from envbuild.project.draft.age import TORCH_CUDAS, keras_2_only, torch_bounds
from envbuild.project.draft.builder import DraftBuilder, name_few
from envbuild.project.draft.clean import COMPANIONS, Cleaned, bounds_of
from envbuild.project.draft.propose import is_held, is_known_image
from envbuild.project.lists.readme import first_framework
from envbuild.project.model import ImportedModule, Requirement
from envbuild.project.names import implied_framework, likely_distribution
from envbuild.project.tree import is_aside
from envbuild.recipe.model import BaseSection

FIRST_CUDA_WITHOUT = 11
"""The CUDA from which on no release of TensorFlow 1 was built; its last Python is 3.7."""
CUPY = re.compile(r"cupy(-cuda\d+x?)?")
MORE_FILES = 3
"""How many times as many files must import a framework that no list names."""
FEW_FILES = 0.1
"""Of the files of the first framework: what fewer import and no list names is for an export."""


def sort_frameworks(builder: DraftBuilder, cleaned: Cleaned) -> None:
    """Sort the frameworks; where none is asked for, take what code or packages need."""
    if not cleaned.frameworks:
        cleaned.frameworks += _implied_frameworks(builder, cleaned)
    else:
        cleaned.frameworks += _torch_of_companion(cleaned)
        cleaned.frameworks += _unlisted_framework(builder, cleaned)
    if not cleaned.frameworks:
        cleaned.frameworks += _cupy_alone(builder, cleaned)
    listed = any(not one.where.startswith("imported") for one in cleaned.frameworks)
    said = None if listed else _said_framework(builder)
    cleaned.frameworks.sort(
        key=lambda requirement: (
            not is_held(requirement),
            framework_name(requirement.name) != said,
            *_framework_weight(requirement, builder.gathered.imports),
        )
    )
    first = cleaned.frameworks[0] if cleaned.frameworks else None
    if first is None or re.search(r"==|~=", bounds_of(first)):
        return
    found = _upper_bound(builder, cleaned, first)
    bounds = ",".join(filter(None, (bounds_of(first), found[0])))
    for upper, why in (found, _bound_of_ended(cleaned, first, bounds)):
        if upper:
            first = cleaned.frameworks[0]
            bounds = ",".join(filter(None, (bounds_of(first), upper)))
            name = framework_name(first.name) or first.name
            cleaned.frameworks[0] = Requirement(
                text=f"{name}{bounds}", name=name, where=first.where
            )
            builder.note("base", why)


def _said_framework(builder: DraftBuilder) -> str | None:
    """Return the framework that the project is called after (jax-vit), else README's first."""
    words = re.split(r"[^a-z0-9]+", builder.gathered.name.lower())
    named = {framework_name(word) for word in words} - {None}
    if len(named) == 1:
        return named.pop()
    return first_framework(builder.gathered.tree.root)


def _cupy_alone(builder: DraftBuilder, cleaned: Cleaned) -> list[Requirement]:
    """Return CuPy, listed or imported, as the framework of a project that has no greater one.

    Its wheels are called by their CUDA (cupy-cuda113); with another framework it stays a package.
    """
    listed = [one for one in cleaned.requirements if CUPY.fullmatch(one.name)]
    cleaned.requirements = [one for one in cleaned.requirements if one not in listed]
    imported = (
        one for one in builder.gathered.imports if one.module == "cupy" and _is_own_import(one)
    )
    places = [one.where for one in listed]
    places += [f"imported in {one.where}" for one in imported]
    text = "cupy" + (bounds_of(listed[0]) if listed else "")
    return [Requirement(text=text, name="cupy", where=where) for where in places[:1]]


def _torch_of_companion(cleaned: Cleaned) -> list[Requirement]:
    """Return the PyTorch that a listed companion (torchvision) stands for."""
    if any(framework_name(one.name) == "torch" for one in cleaned.frameworks):
        return []
    listed = (one for one in cleaned.requirements if one.name in COMPANIONS)
    first = next((one for one in listed if not one.where.startswith("imported")), None)
    return [Requirement(text="torch", name="torch", where=first.where)] if first else []


def _unlisted_framework(builder: DraftBuilder, cleaned: Cleaned) -> list[Requirement]:
    """Return the framework that no list names, where the code has little of those that are listed.

    A README says "install PyTorch" and the list names TensorFlow, for its logs.
    """
    listed = {framework_name(one.name) for one in cleaned.frameworks}
    files = {one.module: one.files for one in builder.gathered.imports}
    enough = MORE_FILES * max(files.get(name or "", 0) for name in listed)
    found = (
        one
        for one in builder.gathered.imports
        if one.certain
        and framework_name(one.module, greater=True) not in {None, *listed}
        and one.files > enough
    )
    most = max(found, key=lambda one: one.files, default=None)
    if most is None:
        return []
    name = framework_name(most.module) or most.module
    return [Requirement(text=name, name=name, where=f"imported in {most.where}")]


def _upper_bound(
    builder: DraftBuilder, cleaned: Cleaned, framework: Requirement
) -> tuple[str, str]:
    """Return bounds that no list has but that hold all the same, and why."""
    name = framework_name(framework.name)
    if "<" in bounds_of(framework):
        return _companion_bound(cleaned) if name == "torch" else ("", "")
    for said in builder.gathered.releases:
        if said.name == name and not bounds_of(framework):
            return bounds_of(said), f"{said.where}: {said.text} is taken"
    if name == "tensorflow":
        return _bound_of_tensorflow(builder, cleaned)
    if name != "torch":
        return _bound_of_old_use(builder, name)
    for bounds, why in (
        _companion_bound(cleaned),
        _bound_of_old_use(builder, name),
        _bound_of_cuda(builder),
        _bound_of_said_cuda(builder) if not bounds_of(framework) else ("", ""),
    ):
        if bounds:
            return bounds, why
    return "", ""


def _bound_of_cuda(builder: DraftBuilder) -> tuple[str, str]:
    """Return the bounds of the PyTorch that a list installs from the index of one CUDA."""
    for findings in builder.gathered.all_findings:
        bounds = TORCH_CUDAS.get(findings.cuda or "", "") if not findings.image else ""
        if bounds:
            return bounds, f"{findings.file}: CUDA {findings.cuda} is that of torch{bounds}"
    return "", ""


def _bound_of_said_cuda(builder: DraftBuilder) -> tuple[str, str]:
    """Return the bounds of the PyTorch that was built for the CUDA that a README names."""
    said = builder.gathered.said.get("cuda", "")
    bounds = TORCH_CUDAS.get(said, "")
    return bounds, f"the README names CUDA {said}, which is that of torch{bounds}"


def _companion_bound(cleaned: Cleaned) -> tuple[str, str]:
    """Return the bounds of the PyTorch that a bounded companion (torchvision) goes with."""
    found = []
    for one in cleaned.requirements:
        bounds = torch_bounds(one)
        if bounds:
            found.append((bounds, f"{one.text} ({one.where}) goes with torch{bounds}"))
    # of several the one with the oldest last release
    return min(found, key=lambda one: numbers(one[0].rpartition("<")[2]) or (), default=("", ""))


def _bound_of_ended(cleaned: Cleaned, framework: Requirement, known: str) -> tuple[str, str]:
    """Return the bound of a framework up to which a package (torchtext) has releases at all."""
    lowest = re.search(r"[>~]=?\s*(\d+(?:\.\d+)*)", known)
    for bounds, why in _bounds_of_ended(cleaned, framework_name(framework.name) or ""):
        until = numbers(bounds.rpartition("<")[2]) or ()
        if lowest is None or (numbers(lowest[1]) or ()) < until:
            return bounds, why
    return "", ""


def _bounds_of_ended(cleaned: Cleaned, name: str) -> Iterator[tuple[str, str]]:
    """Yield the bounds of a framework for which a package has releases at all, and why.

    Those of torchvision are told as PyTorch's.
    """
    named = {one.name for one in cleaned.requirements}
    for rule in load_companions().rule:
        known = rule.sure == "verified" and rule.package in named
        for row in rule.rows if known else ():
            until = re.fullmatch(r"([\w-]+)>=(\d+(?:\.\d+)*)", row.when)
            if until is None or row.constrain != f"{rule.package}<0":
                continue
            limit = Requirement(text=f"{until[1]}<{until[2]}", name=until[1], where="")
            bounds = ""
            if until[1] == name:
                bounds = f"<{until[2]}"
            elif name == "torch":
                bounds = torch_bounds(limit)
            if bounds:
                yield bounds, f"{rule.package} has no release for {until[0]}"


def _bound_of_old_use(builder: DraftBuilder, name: str | None) -> tuple[str, str]:
    rows = [row for row in builder.old if row.package == name]
    if not rows:
        return "", ""
    oldest = min(rows, key=lambda row: numbers(row.bounds[1:]) or ())
    return oldest.bounds, f"{builder.old[oldest]}: {oldest.what}"


def _bound_of_tensorflow(builder: DraftBuilder, cleaned: Cleaned) -> tuple[str, str]:
    where = file_written_for(builder.gathered.tree, "tensorflow-1")
    if where is not None and not _is_newer_than_tensorflow_1(builder):
        return "<2", f"{where} is written for TensorFlow 1: a release before 2 is taken"
    if _is_for_python_2(builder):
        return "<2", "Python 2 is of the time of TensorFlow 1: a release before 2 is taken"
    bounds, why = _bound_of_old_use(builder, "tensorflow")
    if bounds:
        return bounds, why
    file = file_written_for(builder.gathered.tree, "keras-2")
    old = keras_2_only(cleaned.requirements, builder.releases) or ([file] if file else [])
    if not old:
        return "", ""
    return "<2.16", f"{name_few(old)}: made for Keras 2, which TensorFlow has before 2.16"


def _is_newer_than_tensorflow_1(builder: DraftBuilder) -> bool:
    """Whether code is for TensorFlow 2, or a Python or a CUDA that 1 has no wheels for is asked."""
    if file_written_for(builder.gathered.tree, "tensorflow-2"):
        return True
    for findings in builder.gathered.all_findings:
        bounds = findings.python or ""
        if re.search(r"\d", bounds) and not SpecifierSet(bounds).contains("3.7.17"):
            return any(SpecifierSet(bounds).contains(f"3.{minor}.9") for minor in range(8, 16))
        if findings.cuda and int(findings.cuda.split(".")[0]) >= FIRST_CUDA_WITHOUT:
            return True
    return False


def _is_for_python_2(builder: DraftBuilder) -> bool:
    named = (findings.python for findings in builder.gathered.all_findings if findings.python)
    return any(re.fullmatch(r"==\s*2(\.\S+)?", python) for python in named)


def _implied_frameworks(builder: DraftBuilder, cleaned: Cleaned) -> list[Requirement]:
    """Return the framework that files import, else the one that most packages need."""
    imported = [
        one
        for one in builder.gathered.imports
        if framework_name(one.module, greater=True) and _is_own_import(one)
    ]
    if imported:
        most = max(imported, key=lambda one: (one.certain, one.files))
        return [Requirement(text=most.module, name=most.module, where=f"imported in {most.where}")]
    if any(requirement.name == "keras" for requirement in cleaned.requirements):
        # Keras computes nothing by itself; TensorFlow is its backend where nobody names another
        return [
            Requirement(
                text="tensorflow", name="tensorflow", where="imported by keras as its backend"
            )
        ]
    votes: dict[str, list[str]] = {}
    for requirement in cleaned.requirements:
        framework = implied_framework(requirement.name)
        if framework is not None:
            votes.setdefault(framework, []).append(requirement.name)
    if not votes:
        return []
    best = max(votes, key=lambda name: len(votes[name]))
    verb = "needs" if len(votes[best]) == 1 else "need"
    where = f"no list names it, but {name_few(votes[best])} {verb} it"
    return [Requirement(text=best, name=best, where=where)]


def _is_own_import(one: ImportedModule) -> bool:
    """Whether an import tells the framework: not one of a notebook or a test."""
    path = Path(one.where)
    return one.certain or (path.suffix == ".py" and not is_aside(path))


def _framework_weight(
    requirement: Requirement, imports: Sequence[ImportedModule]
) -> tuple[int, bool]:
    """Sort frameworks: that of most files first, those with an exact version first."""
    module = framework_name(requirement.name)
    files = 0
    for one in imports:
        family = implied_framework(likely_distribution(one.module))
        if module in (one.module, family):
            files += one.files
    return -files, "==" not in requirement.text


def add_other_frameworks(builder: DraftBuilder, cleaned: Cleaned, base: BaseSection) -> None:
    """Keep further frameworks as packages; the base's own has to go.

    Of an image that nothing is known of, nobody can tell whether it holds the framework.
    """
    image = base.image or ""
    known = _framework_in(image) or not image or is_known_image(image)
    first = _framework_in(image) or (
        framework_name(cleaned.frameworks[0].name) if cleaned.frameworks else None
    )
    if not known and cleaned.frameworks:
        builder.requirements.append(cleaned.frameworks[0])
    seen = {first}
    files = {framework_name(one.module): one.files for one in builder.gathered.imports}
    for requirement in cleaned.frameworks:
        name = framework_name(requirement.name)
        if name in seen:
            continue
        seen.add(name)
        unlisted = requirement.where.startswith("imported")
        what = None
        if unlisted and files.get(name, 0) < FEW_FILES * files.get(first, 0):
            what = "a second framework that few files import"
        elif ", group " in requirement.where:
            what = "another backend of an optional group"
        if what:
            builder.note("python", f"not taken: {requirement.name} ({requirement.where}): {what}")
            continue
        builder.requirements.append(requirement)
        builder.note(
            "python",
            f"{requirement.name} is a second framework: it brings its own CUDA libraries "
            "beside the base's",
        )


def holds_another(builder: DraftBuilder, cleaned: Cleaned, image: str) -> bool:
    """Whether an image is of a framework that fewer files import than the project's own one.

    A definition starts from PyTorch's image and installs TensorFlow, which the code imports.
    """
    held = _framework_in(image)
    first = framework_name(cleaned.frameworks[0].name) if cleaned.frameworks else None
    if held is None or first in (None, held):
        return False
    files = {one.module: one.files for one in builder.gathered.imports}
    return files.get(first or "", 0) > files.get(held, 0)


def _framework_in(image: str) -> str | None:
    """Return the framework in an image's name: nvcr.io/nvidia/tensorflow."""
    words = re.split(r"[^a-z0-9]+", image.lower())
    return next((name for word in words if (name := framework_name(word))), None)
