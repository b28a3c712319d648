"""From what files ask for to what a recipe says: one line a package, right names, without what the base brings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from envbuild.base.suggest import framework_name
from envbuild.project.cuda import cuda_of
from envbuild.project.model import Need
from envbuild.project.names import canonical, load_names
from envbuild.resolve.couplings import load_aliases

BASE_BRINGS = (
    "nvidia-*", "cuda-*", "triton", "pytorch-triton", "tensorflow-estimator", "tensorflow-io-gcs-filesystem", "jaxlib",
    "jax-cuda*", "tensorflow-intel", "tf-estimator-nightly", "cudatoolkit", "cudnn", "libclang",
)  # fmt: skip
"""Distributions that a framework's own wheels ask for; NVIDIA's tools of the list below are no part of it."""
NOT_BROUGHT = ("nvidia-ml-py*", "nvidia-dali*", "nvidia-pyindex", "nvidia-modelopt*", "cuda-python")
COMPANIONS = {"torchvision", "torchaudio", "torchtext", "torchdata"}
"""Distributions with one release for each release of PyTorch: another pin than the framework's has no solution."""


@dataclass(slots=True)
class Cleaned:
    """The needs of a recipe; ``frameworks`` are those asked for, in order; ``dropped`` and ``notes`` are told.

    ``system`` are Debian packages that stand for needs; ``cuda`` is the CUDA version that a framework's pin names.
    """

    needs: list[Need] = field(default_factory=list)
    frameworks: list[Need] = field(default_factory=list)
    dropped: list[tuple[Need, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    cuda: str | None = None


def clean(needs: Iterable[Need]) -> Cleaned:
    """Merge, rename and drop."""
    found = Cleaned()
    for need in merged([_named(one, found) for one in needs], found):
        if framework_name(need.name):
            found.frameworks.append(need)
        elif _matches(need.name, BASE_BRINGS) and not _matches(need.name, NOT_BROUGHT):
            found.dropped.append((need, "the base's framework brings it"))
        elif need.name != "":
            found.needs.append(_without_build(need, found))
    found.frameworks = [_without_build(need, found) for need in found.frameworks]
    _one_of_each(found)
    return found


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _named(need: Need, found: Cleaned) -> Need:
    """Replace a wrong or dead name; one that stands for nothing gets no name."""
    wrong = load_names().wrong.get(need.name)
    if wrong is None:
        return need
    if not wrong.use or wrong.use.startswith("system:"):
        found.dropped.append((need, wrong.why))
        found.system += [wrong.use.removeprefix("system:")] if wrong.use else []
        return Need(text="", name="", where=need.where)
    found.notes.append(f"{need.where}: {need.name} is written as {wrong.use}: {wrong.why}")
    # the bounds are about the wrong one's releases, unless only the spelling was wrong
    bounds = (
        ""
        if need.name
        in ("sklearn", "umap", "pil", "pycrypto", "nvidia-ml-py3", "pynvml", "bs4", "opencv")
        else bounds_of(need)
    )
    return Need(text=f"{wrong.use}{bounds}", name=canonical(wrong.use), where=need.where)


def bounds_of(need: Need) -> str:
    """Return the version bounds of a need, without name, extras and marker."""
    match = re.match(r"[\w.-]+(?:\[[^]]*\])?([^;]*)", need.text)
    return match[1].strip() if match else ""


def merged(needs: Iterable[Need], found: Cleaned) -> list[Need]:
    """Return one need for each name: the one with an exact version, else the first with bounds, else the first.

    Lines of one name with different markers all stay.
    """
    by_name: dict[str, list[Need]] = {}
    for need in needs:
        if need.name:
            by_name.setdefault(need.name, []).append(need)
    kept: list[Need] = []
    for same in by_name.values():
        marked = [need for need in same if ";" in need.text]
        if len(marked) > 1 and len({need.text for need in marked}) > 1:
            kept += {need.text: need for need in marked}.values()
            continue
        best = max(
            same,
            key=lambda need: ("==" in bounds_of(need), bool(bounds_of(need)), "[" in need.text),
        )
        others = sorted({bounds_of(need) for need in same if bounds_of(need)} - {bounds_of(best)})
        if others:
            found.notes.append(
                f"{best.name} is asked for twice; taken: {best.text} ({best.where}), left: {', '.join(others)}"
            )
        kept.append(best)
    return kept


def _without_build(need: Need, found: Cleaned) -> Need:
    """Take the local part off a version (+cu117): such builds are on their makers' own servers."""
    text = re.sub(r"(==[\w.]+)\+[\w.*]+", r"\1", need.text)
    if text != need.text:
        cuda = cuda_of(need.text)
        if cuda and (framework_name(need.name) or found.cuda is None):
            found.cuda = cuda
        said = f" (CUDA {cuda})" if cuda else ""
        found.notes.append(
            f"{need.where}: {need.text}{said} is written as {text}: the index has no builds with a local part"
        )
    return Need(text=text, name=need.name, where=need.where)


def _one_of_each(found: Cleaned) -> None:
    """Keep one of several distributions that write the same files: two opencv's, two onnxruntimes."""
    for module, group in load_aliases().exclusive.items():
        there = [need for need in found.needs if need.name in group]
        if len(there) < 2:
            continue
        kept = _preferred(module, there)
        for need in there:
            found.needs.remove(need)
        found.needs.append(kept)
        names = ", ".join(need.name for need in there)
        found.notes.append(
            f"{names} write the same files ({module}); only one may be installed: {kept.name} is taken"
        )


def _preferred(module: str, there: list[Need]) -> Need:
    if module == "cv2":
        contrib = any("contrib" in need.name for need in there)
        name = "opencv-contrib-python-headless" if contrib else "opencv-python-headless"
        same = next((need for need in there if need.name == name), None)
        bounds = next((bounds_of(need) for need in there if bounds_of(need)), "")
        return same or Need(text=f"{name}{bounds}", name=name, where=there[0].where)
    return next((need for need in there if "gpu" in need.name or "cuda" in need.name), there[0])


def companion_unpinned(need: Need) -> Need:
    """Take the pin off a companion of PyTorch, for a base that holds another release."""
    if need.name not in COMPANIONS:
        return need
    return Need(text=re.sub(r"[=<>!~].*$", "", need.text).strip(), name=need.name, where=need.where)


def without_others(needs: Iterable[Need], python: str | None, found: Cleaned) -> list[Need]:
    """Drop needs whose marker does not hold on the base: Linux on x86_64, a Python series where it is known."""
    from packaging.requirements import Requirement

    there = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
    }
    kept: list[Need] = []
    for need in needs:
        marker = Requirement(need.text).marker
        about_python = marker is not None and (
            "python" in str(marker) or "implementation" in str(marker)
        )
        if marker is None or (about_python and python is None):
            kept.append(need)
            continue
        series = {
            "python_version": python or "3.11",
            "python_full_version": f"{python or '3.11'}.9",
            "extra": "",
        }
        if marker.evaluate({**there, **series}):
            kept.append(need)
        else:
            found.dropped.append((need, f"its marker does not hold on this base ({marker})"))
    return merged(kept, found)
