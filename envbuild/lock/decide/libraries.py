"""Refuse a framework without its CUDA libraries: it installs, imports, and computes on the CPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import filter as matching

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base.catalogue import CatalogueEntry
from envbuild.base.model import BaseFacts
from envbuild.base.suggest import USUAL_CUDA, BaseQuery, framework_name, suggest_bases
from envbuild.data.lookup import build_of, cuda_source, framework_of, numbers
from envbuild.data.tables import CudaSource
from envbuild.errors import NoSolutionError, UsageError
from envbuild.names import Numbers, Texts
from envbuild.project.shell.installs import removes_framework
from envbuild.recipe.model import Recipe
from envbuild.records import frozen_record
from envbuild.resolve.model import Found
from envbuild.resolve.platform import python_minor
from envbuild.resolve.stubs import extras_named
from envbuild.store.units import join_numbers, minor_version

MOST_IMAGES = 2
UNNAMED_CUDA = 13
SPOKEN = {
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cuda-nvrtc": "NVRTC",
    "cuda-runtime": "the CUDA runtime",
}


@frozen_record
class Lack:
    """A framework of the lock that would compute on the CPU: what it misses, in words."""

    found: Found
    source: CudaSource
    missing: str

    def __str__(self) -> str:
        """Say it for people."""
        return f"{self.found.name} {self.found.version} would compute on the CPU: {self.missing}"


def require_cuda(recipe: Recipe, facts: BaseFacts, packages: Collection[Found]) -> Texts:
    """Return notes about frameworks without CUDA that nobody asked for by name.

    ``facts`` are those of the base without what the lock brings, ``packages`` all that it brings.
    Raises NoSolutionError for one that is asked for, unless the recipe means the CPU or the base
    has a GPU framework.
    """
    if recipe.base.cpu:
        return ()
    held: dict[str, str] = {canonicalize_name(dist.name): dist.version for dist in facts.dists}
    held |= {found.name: found.version for found in packages}
    judged = [_lack_of(found, held, facts) for found in packages]
    lacks = [lack for lack in judged if lack is not None]
    lacking = [lack.found for lack in lacks]
    others = [found for found in packages if cuda_source(found.name) and found not in lacking]
    base_has_one = facts.framework is not None or any(
        cuda_source(canonicalize_name(dist.name)) for dist in facts.dists
    )
    # an image with CUDA and no framework is taken for the GPU: nothing else there would use it
    alone = not others and not base_has_one
    for lack in lacks:
        must = alone or lack.source.only or _is_of_base(recipe, lack)
        if must and lack.found.is_direct:
            raise NoSolutionError(
                str(lack),
                where=_where_asked(recipe, lack),
                hint="\nor ".join(_list_hints(lack, facts)),
            )
    refusals = [_refusal_of_cudnn(found, held, facts) for found in packages]
    return (*map(str, lacks), *filter(None, refusals))


def refuse_removal(recipe: Recipe) -> None:
    """Raise UsageError for a line of [system] post that takes the framework out of the image."""
    for number, line in enumerate(recipe.system.post, 1):
        if removes_framework(line):
            raise UsageError(
                "it removes a GPU framework from the image",
                where=f"{recipe.name}: [system] post, line {number}: {line}",
                hint=(
                    "take the line out; another framework, or another version of it, is a line of "
                    "[base]"
                ),
            )


def _lack_of(found: Found, held: Mapping[str, str], facts: BaseFacts) -> Lack | None:
    """Return what a framework of the lock misses for a GPU; None where nothing is missing."""
    source = cuda_source(found.name)
    if source is None:
        return None
    missing = _missing_libraries(found, source, held, facts)
    missing = missing or _missing_cudnn(found, held, facts)
    return Lack(found=found, source=source, missing=missing) if missing else None


def _missing_libraries(
    found: Found, source: CudaSource, names: Collection[str], facts: BaseFacts
) -> str | None:
    local = Version(found.version).local or ""
    if source.never:
        return "its wheels are for the CPU alone"
    if local.split(".")[0] == "cpu":
        return f"+{local} is a build for the CPU"
    if re.match(r"cu(da)?\d", local) or _holds_cuda(found, source, facts):
        return None
    if source.plugin and not matching(names, source.plugin):
        return f"there is no {source.plugin} with it"
    major = _cuda_major(found, source)
    # from CUDA 13 on, the wheels' names tell no CUDA
    ending = f"-cu{major}" if major and int(major) < UNNAMED_CUDA else "*"
    gone = [one for one in source.libraries if not matching(names, f"nvidia-{one}{ending}")]
    of_base = facts.cuda is not None and (not major or facts.cuda.split(".")[0] == major)
    if not gone or of_base:
        return None
    spoken = ", ".join(SPOKEN.get(library, library) for library in gone)
    has_other = facts.cuda is not None or matching(names, f"nvidia-{gone[0]}*")
    which = f"CUDA {major}" if has_other else "CUDA"
    return f"its wheel holds no {which} libraries ({spoken}), nor does the base"


def _holds_cuda(found: Found, source: CudaSource, facts: BaseFacts) -> bool:
    """Tell whether CUDA lies inside the framework's own wheel, as before NVIDIA had wheels."""
    if source.within is None or facts.machine != "x86_64":
        return False
    return Version(found.version) in SpecifierSet(source.within)


def _missing_cudnn(found: Found, held: Mapping[str, str], facts: BaseFacts) -> str | None:
    """Say that the cuDNN of another framework is of another major: its file has another name."""
    needed, there = _cudnn_of(found, held, facts)
    if not there or needed[:1] == there[:1]:
        return None
    return f"it opens cuDNN {needed[0]}, and cuDNN {join_numbers(there)} is here"


def _refusal_of_cudnn(found: Found, held: Mapping[str, str], facts: BaseFacts) -> str | None:
    """Say that a framework refuses a cuDNN older than the one that it was compiled with.

    "CuDNN library needs to have matching major version and equal or higher minor version"
    (TensorFlow's log).
    """
    needed, there = _cudnn_of(found, held, facts)
    if needed[:1] != there[:1] or needed <= there:
        return None
    own, other = join_numbers(needed), join_numbers(there)
    return f"{found.name} {found.version} needs cuDNN {own} or newer, and cuDNN {other} is here"


def _cudnn_of(found: Found, held: Mapping[str, str], facts: BaseFacts) -> tuple[Numbers, Numbers]:
    """Return the cuDNN that a framework was compiled with, and the one it gets.

    Both are () where one is unknown, and where the framework's own metadata pins its cuDNN.
    """
    framework, source = framework_of(found.name), cuda_source(found.name)
    if framework is None or source is None or not source.extras:
        return (), ()
    build = build_of(framework.name, found.version)
    there = next((held[name] for name in matching(held, "nvidia-cudnn-cu*")), facts.cudnn)
    if build is None or build.cudnn is None or there is None:
        return (), ()
    return numbers(build.cudnn)[:2], numbers(there)[:2]


def _is_of_base(recipe: Recipe, lack: Lack) -> bool:
    """Whether it is the framework of [base]: another one that came along does not stand for it."""
    own = recipe.base.framework
    return own is not None and canonicalize_name(re.split(r"[^\w.-]", own)[0]) == lack.found.name


def _where_asked(recipe: Recipe, lack: Lack) -> str:
    named = _is_of_base(recipe, lack)
    return f'[base] framework = "{recipe.base.framework}"' if named else "[python] dependencies"


def _list_hints(lack: Lack, facts: BaseFacts) -> Iterable[str]:
    """Yield what would bring the libraries, the nearest first: only what is known to be there."""
    found, source = lack.found, lack.source
    declared = extras_named(found.requires)
    extras = [extra for extra in source.extras if extra in declared]
    if extras:
        asked = extras if found.name.startswith("onnxruntime") else extras[:1]
        yield f"write {found.name}[{','.join(asked)}], which brings them"
    if source.instead:
        yield f"take {source.instead} with CUDA libraries, or another framework"
    bases = _fitting_bases(found, facts)
    if bases:
        yield f"take a base that has them: {bases}"
    if source.wheels and not extras:
        wheels = f"nvidia-*-cu{_cuda_major(found, source) or USUAL_CUDA}"
        example = "as the recipe chainer-mnist does (envbuild show chainer-mnist)"
        where = "under [python] dependencies, and their folders in LD_LIBRARY_PATH"
        yield f"name the wheels {wheels} {where}, {example}"
    yield "write cpu = true under [base], if the image is for the CPU"


def _fitting_bases(found: Found, facts: BaseFacts) -> str:
    """Return bases with this release line and its CUDA, else the nearest newer ones."""
    name = framework_name(found.name)
    if name is None:
        return ""
    line = minor_version(found.version.split("+")[0])
    own = join_numbers(python_minor(facts))
    for bounds, python in ((f"=={line}.*", own), (f"=={line}.*", None), (f">={line}", own)):
        choices, _ = suggest_bases(BaseQuery(framework=f"{name}{bounds}", python=python))
        fitting = [choice.entry for choice in choices if choice.entry.defect is None]
        if fitting:
            return " or ".join(map(_describe_base, fitting[:MOST_IMAGES]))
    return ""


def _describe_base(entry: CatalogueEntry) -> str:
    if entry.is_bootstrap:
        return f'bootstrap = "{entry.reference}" with framework = "{entry.requirement}"'
    return f"{entry.reference} ({entry.holds}, Python {entry.python})"


def _cuda_major(found: Found, source: CudaSource) -> str:
    """Return the CUDA major of a distribution's name (mxnet-cu112), else the table's, or nothing."""
    number = re.search(r"-cu(?:da)?(1\d|\d)", found.name)
    return number[1] if number else source.cuda
