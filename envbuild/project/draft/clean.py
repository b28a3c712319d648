"""Clean requirements: one line a package, right names, without what the base brings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from packaging.requirements import Requirement as Pep508
from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.data.package_tables import load_aliases, load_names
from envbuild.names import Texts
from envbuild.project.cuda import cuda_of
from envbuild.project.model import Requirement
from envbuild.project.names import distribution_of, is_known_distribution, is_standard

BASE_BRINGS = (
    "nvidia-cublas*", "nvidia-cuda-*", "nvidia-cudnn*", "nvidia-cufft*", "nvidia-cufile*",
    "nvidia-curand*", "nvidia-cusolver*", "nvidia-cusparse*", "nvidia-nccl*", "nvidia-nvjitlink*",
    "nvidia-nvshmem*", "nvidia-nvtx*", "cuda-*", "triton", "pytorch-triton", "tensorflow-estimator",
    "tensorflow-io-gcs-filesystem", "jaxlib", "jax-cuda*", "tensorflow-intel",
    "tf-estimator-nightly", "cudatoolkit", "cudnn", "libclang",
)  # fmt: skip
"""Distributions that a framework's own wheels ask for, but for those of the next list."""
NOT_BROUGHT = ("cuda-python",)
COMPANIONS = {"torchvision", "torchaudio", "torchtext", "torchdata"}
"""Distributions with one release for each release of PyTorch."""

NAME = re.compile(r"[\w.-]+")
BACKPORTS = ("dataclasses", "contextvars")
"""Modules of Python that the oldest bases' Python has not yet."""
OTHER_RELEASES = {
    "sklearn", "umap", "pil", "pycrypto", "nvidia-ml-py3", "pynvml", "bs4", "opencv", "yaml",
    "whisper",
}  # fmt: skip
"""Wrong names whose bounds are about releases of something else."""


@dataclass(slots=True)
class Cleaned:
    """The requirements of a recipe; ``dropped`` and ``notes`` become comments.

    ``frameworks`` are those asked for, in order.  ``system`` are Debian packages that stand for
    requirements; ``cuda`` is the CUDA version that a framework's pin names.
    """

    requirements: list[Requirement] = field(default_factory=list)
    frameworks: list[Requirement] = field(default_factory=list)
    dropped: list[tuple[Requirement, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    cuda: str | None = None


def clean_requirements(requirements: Iterable[Requirement]) -> Cleaned:
    """Merge, rename and drop."""
    found = Cleaned()
    there = _with_true_markers(requirements, None, found)
    for requirement in _merge_requirements([_rename_wrong(one, found) for one in there], found):
        if framework_name(requirement.name, greater=True):
            found.frameworks.append(requirement)
        elif _matches_any(requirement.name, BASE_BRINGS) and not _matches_any(
            requirement.name, NOT_BROUGHT
        ):
            found.dropped.append((requirement, "the base's framework brings it"))
        elif requirement.name != "":
            found.requirements.append(_without_build(requirement, found))
    found.frameworks = [_without_build(requirement, found) for requirement in found.frameworks]
    _one_of_each(found)
    return found


def _matches_any(name: str, patterns: Texts) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rename_wrong(requirement: Requirement, found: Cleaned) -> Requirement:
    """Replace a wrong or dead name; one that stands for nothing gets no name."""
    wrong = load_names().wrong.get(requirement.name)
    aliases = load_aliases()
    if wrong is None and requirement.name in aliases.impostors.names:
        # what an index has by that name holds no module, or is another project's
        found.dropped.append((requirement, aliases.elsewhere[requirement.name]))
        return Requirement(text="", name="", where=requirement.where)
    if wrong is None:
        return _rename_module(requirement, found)
    if not wrong.use or wrong.use.startswith("system:"):
        found.dropped.append((requirement, wrong.why))
        found.system += [wrong.use.removeprefix("system:")] if wrong.use else []
        return Requirement(text="", name="", where=requirement.where)
    found.notes.append(
        f"{requirement.where}: {requirement.name} is written as {wrong.use}: {wrong.why}"
    )
    bounds = "" if requirement.name in OTHER_RELEASES else bounds_of(requirement)
    return Requirement(
        text=f"{wrong.use}{bounds}", name=canonicalize_name(wrong.use), where=requirement.where
    )


def _rename_module(requirement: Requirement, found: Cleaned) -> Requirement:
    """Replace a module's name in a list: json is Python's own, matplotlib.pyplot is matplotlib."""
    named = NAME.match(requirement.text)
    module = named[0] if named else ""
    first = module.partition(".")[0]
    if is_standard(first) and requirement.name not in BACKPORTS:
        found.dropped.append((requirement, "it is part of Python"))
        return Requirement(text="", name="", where=requirement.where)
    package = distribution_of(first)
    if first == module or not package or is_known_distribution(requirement.name):
        return requirement
    found.notes.append(f"{requirement.where}: {module} is a module of {package}")
    return Requirement(text=package, name=package, where=requirement.where)


def bounds_of(requirement: Requirement) -> str:
    """Return the version bounds of a need, without name, extras, address and marker."""
    match = re.match(r"[\w.-]+(?:\[[^]]*\])?([^;@]*)", requirement.text)
    return match[1].strip() if match else ""


def _merge_requirements(requirements: Iterable[Requirement], found: Cleaned) -> list[Requirement]:
    """Return one requirement a name: the pinned one, else the first with bounds, else the first.

    Lines of one name with different markers all stay.
    """
    by_name: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        if requirement.name:
            by_name.setdefault(requirement.name, []).append(requirement)
    kept: list[Requirement] = []
    for same in by_name.values():
        marked = [requirement for requirement in same if ";" in requirement.text]
        if len(marked) > 1 and len({requirement.text for requirement in marked}) > 1:
            kept += {requirement.text: requirement for requirement in marked}.values()
            continue
        best = max(
            same,
            key=lambda requirement: (
                " @ " in requirement.text,
                "==" in bounds_of(requirement),
                bool(bounds_of(requirement)),
                "[" in requirement.text,
            ),
        )
        others = sorted(
            {bounds_of(requirement) for requirement in same if bounds_of(requirement)}
            - {bounds_of(best)}
        )
        if others:
            found.notes.append(
                f"{best.name} is asked for twice; taken: {best.text} ({best.where}), left: "
                f"{', '.join(others)}"
            )
        kept.append(best)
    return kept


def _without_build(requirement: Requirement, found: Cleaned) -> Requirement:
    """Take the local part off a version (+cu117): such builds are on their makers' own servers."""
    text = re.sub(r"(==[\w.]+)\+[\w.*]+", r"\1", requirement.text)
    if text != requirement.text:
        cuda = cuda_of(requirement.text)
        if cuda and (framework_name(requirement.name) or found.cuda is None):
            found.cuda = cuda
        remark = f" (CUDA {cuda})" if cuda else ""
        found.notes.append(
            f"{requirement.where}: {requirement.text}{remark} is written as {text}: the index "
            "has no builds with a local part"
        )
    return Requirement(text=text, name=requirement.name, where=requirement.where)


def _one_of_each(found: Cleaned) -> None:
    """Keep one of several distributions that write the same files: two OpenCVs."""
    for module, group in load_aliases().exclusive.items():
        if any(framework.name in group for framework in found.frameworks):
            _drop_members(group, f"the framework writes the same files ({module})", found)
        there = [requirement for requirement in found.requirements if requirement.name in group]
        if len(there) < 2:
            continue
        kept = _preferred_one(module, there)
        for requirement in there:
            found.requirements.remove(requirement)
        found.requirements.append(kept)
        names = ", ".join(requirement.name for requirement in there)
        found.notes.append(
            f"{names} write the same files ({module}); only one may be installed: "
            f"{kept.name} is taken"
        )


def _drop_members(group: Texts, why: str, found: Cleaned) -> None:
    """Drop the members of a group that stand among the packages."""
    for requirement in tuple(found.requirements):
        if _matches_any(requirement.name, group):
            found.requirements.remove(requirement)
            found.dropped.append((requirement, why))


def _preferred_one(module: str, there: list[Requirement]) -> Requirement:
    if module == "cv2":
        contrib = any("contrib" in requirement.name for requirement in there)
        name = "opencv-contrib-python-headless" if contrib else "opencv-python-headless"
        bounds = next(filter(None, map(bounds_of, there)), "")
        return Requirement(text=f"{name}{bounds}", name=name, where=there[0].where)
    return next((one for one in there if re.search("gpu|cuda", one.name)), there[0])


def companion_unpinned(requirement: Requirement) -> Requirement:
    """Take the pin off a companion of PyTorch, for a base that holds another release."""
    if requirement.name not in COMPANIONS:
        return requirement
    return Requirement(
        text=re.sub(r"[=<>!~].*$", "", requirement.text).strip(),
        name=requirement.name,
        where=requirement.where,
    )


def without_others(
    requirements: Iterable[Requirement], python: str | None, found: Cleaned
) -> list[Requirement]:
    """Drop requirements whose marker does not hold on the base."""
    return _merge_requirements(_with_true_markers(requirements, python, found), found)


def _with_true_markers(
    requirements: Iterable[Requirement], python: str | None, found: Cleaned
) -> list[Requirement]:
    """Drop requirements for other systems, and for other Pythons where the Python is known."""
    series = python or "3.11"
    there = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "python_version": series,
        "python_full_version": f"{series}.9",
        "extra": "",
    }
    kept: list[Requirement] = []
    for requirement in requirements:
        marker = Pep508(requirement.text).marker
        about_python = marker is not None and (
            "python" in str(marker) or "implementation" in str(marker)
        )
        unknown = about_python and python is None
        if marker is None or unknown or marker.evaluate(there):
            kept.append(requirement)
        else:
            found.dropped.append((requirement, f"its marker does not hold on this base ({marker})"))
    return kept
