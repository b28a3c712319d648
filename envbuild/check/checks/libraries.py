"""Whether shared libraries find those that they need, and how a missing one gets into the image."""

from __future__ import annotations

import fnmatch
import re
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from envbuild.check.answers import LibrarySurvey
from envbuild.check.checks.gpu.toolkit import toolkit_of
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed
from envbuild.data import lookup
from envbuild.data.tables import load_frameworks
from envbuild.names import Texts
from envbuild.runtime import DRIVER_LIBRARIES
from envbuild.store.units import count_noun, listing

FEW = 2
"""Families of CUDA libraries that are too few to be a toolkit from which one was lost."""


def shared_libraries(evidence: Evidence) -> Verdict:
    """Check whether every shared object below site-packages finds the libraries it needs."""
    found = given(evidence.libraries)
    if found.damaged:
        return _damaged(found)
    strange = [shorten_path(path, found.folders) for path in found.other_pythons]
    if strange:
        return _strange(evidence, strange)
    missing: dict[str, list[str]] = {}
    bridges = _bridges(evidence, found)
    for soname, paths in sorted(found.missing.items()):
        needy = [path for path in paths if path not in bridges]
        needy = [path for path in needy if _is_loaded(evidence, path, soname)]
        if needy and not lookup.from_driver(soname):
            missing[soname] = [shorten_path(path, found.folders) for path in needy]
    shown = {
        "objects": found.objects,
        "preloaded": sorted(found.preloaded),
        "idle": [shorten_path(path, found.folders) for path in found.idle],
    }
    if missing:
        soname, first = max(missing.items(), key=lambda item: len(item[1]))
        others = sorted(set(missing) - {soname})
        built = {lookup.toolkit_of_library(name) for name in missing} - {None}
        # what lacks libraries of one CUDA was built for that one
        only = str(*built) if len(built) == 1 else None
        hints = [_cure_of(evidence, name, missing[name], only) for name in [soname, *others]]
        also = f"; also missing: {listing(others)}" if others else ""
        return failed(
            f"{soname} is not in the image; needed by {listing(first, 2)}{also}",
            "\n".join(dict.fromkeys(hints)),
            missing={name: objects[:20] for name, objects in missing.items()},
            **shown,
        )
    counted = count_noun(found.objects, "shared object")
    fine = passed(f"{counted}: all libraries are found", **shown)
    return _outdated(evidence, shown) or _without_symbol(evidence, shown) or fine


def _bridges(evidence: Evidence, found: LibrarySurvey) -> set[str]:
    """Return objects that link a framework which is not in the image: nothing can load them there.

    A package that is nothing without that framework fails when it is imported.
    """
    bridges: set[str] = set()
    for framework in load_frameworks().framework:
        if evidence.installed.owners.get(framework.module):
            continue
        for soname, paths in found.missing.items():
            if lookup.matches(soname, framework.brings):
                bridges.update(paths)
    return bridges


def _damaged(found: LibrarySurvey) -> Verdict:
    path, why = found.damaged[0]
    count = "1 shared object"
    if found.damaged_count > 1:
        count = f"{found.damaged_count} shared objects"
    return failed(
        f"{count} cannot be read: {shorten_path(path, found.folders)} ({why})",
        "the file is damaged; build the image again from its lock: envbuild make",
        damaged=[path for path, _ in found.damaged],
    )


def _strange(evidence: Evidence, paths: list[str]) -> Verdict:
    """Tell of modules that the image's Python cannot import, by what their names say."""
    python = ".".join(evidence.installed.python.split(".")[:2])
    tag = re.escape(python.replace(".", ""))
    other = re.search(rf"\.cpython-{tag}-([\w-]+)\.so$", paths[0])
    built = f"another system ({other[1]})" if other else "another Python"
    return failed(
        f"{listing(paths, 2)}: built for {built}, and the image has {python}, which cannot import it",
        cure_of_strange(evidence, paths[0]),
        other_pythons=paths,
        distributions=sorted({canonicalize_name(path.partition("/")[0]) for path in paths}),
    )


def cure_of_strange(evidence: Evidence, path: str) -> str:
    """Say what mends a module that was made for another Python or system."""
    python = ".".join(evidence.installed.python.split(".")[:2])
    return (
        f"take the wheel for Python {python} of {path.partition('/')[0]}: lock again, or leave --python-version and "
        "--platform to envbuild"
    )


def _is_loaded(evidence: Evidence, path: str, soname: str) -> bool:
    """Tell whether anything loads an object: what only optional parts need may lack its libraries.

    What lacks one of CUDA's libraries may be opened by name at run time, as torch does with
    libcaffe2_nvrtc: it counts where another object has that name.  Each object is looked at once:
    ways from one to another may be endless.
    """
    found = given(evidence.libraries)
    seen: set[str] = set()
    left = [path]
    while left:
        one = left.pop()
        if _own_code(evidence, one):
            return True
        idle = found.idle
        if lookup.is_cuda_library(soname):
            idle = found.unnamed
        is_idle = one in idle
        if is_idle or one in seen or lookup.may_lack(one) is not None:
            continue
        seen.add(one)
        needers = found.needed_by.get(one, ())
        if not needers:
            return True
        left += needers
    return False


def _cure_of(evidence: Evidence, soname: str, needers: list[str], only: str | None) -> str:
    """Say how a missing library gets into the image, or that its package is for another CUDA.

    ``only`` is the one CUDA of all missing libraries.
    """
    built = lookup.toolkit_of_library(soname)
    toolkit = toolkit_of(evidence) or only
    major = lookup.numbers(toolkit)[0] if toolkit else built
    is_foreign = not any(_own_code(evidence, path) for path in needers)
    if built and built != major and is_foreign:
        package = needers[0].split("/")[0]
        return (
            f"{package} was built for CUDA {built}, {evidence.title} for CUDA {toolkit}: take the release of "
            f"{package} that goes with it, or its package for CUDA {major}"
        )
    apart = in_two_images(evidence, provider_wheel(soname))
    return apart or advise_provider(soname, toolkit)


def advise_on_library(evidence: Evidence, soname: str) -> str:
    """Say how a CUDA library that a program did not find is found: where it is, or who has it."""
    copies = given(evidence.libraries).all_copies if evidence.libraries else []
    names = {PurePosixPath(path).name for path in copies}
    provider = lookup.provider_of(soname)
    # a wheel's parts lie together, and of its libraries only the first is listed
    family = provider.soname if provider and provider.wheel else soname
    if fnmatch.filter(names, family):
        return set_library_path(evidence)
    apart = in_two_images(evidence, provider_wheel(soname))
    return apart or advise_provider(soname, toolkit_of(evidence))


def advise_on_extra(evidence: Evidence, patterns: Texts, absent: Texts = ()) -> str | None:
    """Say which extra of a distribution brings CUDA, where the image has next to nothing of it.

    Where CUDA's runtime is ``absent``, what there is is of another CUDA.
    """
    other_cuda = any(soname.startswith("libcudart.so") for soname in absent)
    if len(given(evidence.libraries).copies) > FEW and not other_cuda:
        return None
    for dist in evidence.installed.dists:
        # of JAX's extras one is enough, which its own check names
        if dist.shadowed or dist.name == "jax" or not lookup.matches(dist.name, patterns):
            continue
        row = lookup.cuda_source(dist.name)
        if row is not None and row.extras:
            old = lookup.numbers(dist.version) < lookup.numbers(row.since)
            since = f">={row.since}" if old else ""
            wish = f"{dist.name}[{','.join(row.extras)}]{since}"
            return f'ask for "{wish}", which brings the CUDA libraries that it opens'
    return None


def in_two_images(evidence: Evidence, wheel: str | None) -> str | None:
    """Return the advice for two frameworks that ask for different releases of one CUDA wheel."""
    stem = re.match(r"nvidia-[a-z-]+", wheel or "")
    if stem is None or len(evidence.frameworks) < 2:
        return None
    asked: dict[str, str] = {}
    for framework in evidence.frameworks:
        for owner in evidence.installed.owners.get(framework.module, ()):
            for line in evidence.installed.requires.get(owner.name, ()):
                if line.startswith(stem[0]):
                    asked[framework.name] = re.split(r"[;\s]", line.replace(" ", ""))[0]
    if len(set(asked.values())) < 2:
        return None
    wishes = ", ".join(f"{name} asks for {line}" for name, line in asked.items())
    return f"make one image for each framework: {wishes}, and one image can hold one of them"


def _own_code(evidence: Evidence, path: str) -> bool:
    """Tell whether a shared object is the framework's own GPU part, which may lack nothing."""
    if evidence.framework is None:
        return False
    short = shorten_path(path, given(evidence.libraries).folders)
    return lookup.matches(short, evidence.framework.code)


def _outdated(evidence: Evidence, shown: dict[str, Any]) -> Verdict | None:
    """Return a failure where a library is there and older than what an object was linked with."""
    found = given(evidence.libraries)
    lacking: list[tuple[str, str, str]] = []
    for soname, versions in found.outdated.items():
        if lookup.from_driver(soname):
            continue
        for version, paths in versions.items():
            objects = [path for path in paths if lookup.may_lack(path) is None]
            lacking += [(soname, version, shorten_path(path, found.folders)) for path in objects]
    if not lacking:
        return None
    lacking.sort(key=lambda item: lookup.numbers(item[1].rpartition("_")[2]), reverse=True)
    soname, version, path = lacking[0]
    glibc = f" (glibc {evidence.installed.glibc})" if version.startswith("GLIBC_") else ""
    return failed(
        f"{path} needs {version} of {soname}, and the image's{glibc} is older",
        "take a release of the package that was built for this system, or a base with a newer one",
        outdated=found.outdated,
        **shown,
    )


def _without_symbol(evidence: Evidence, shown: dict[str, Any]) -> Verdict | None:
    """Return a failure where an object takes a symbol from a package that does not have it."""
    found = given(evidence.libraries)
    cure = cure_of_symbol(evidence)
    if cure is None:
        return None
    path, symbol, other = found.lost_symbols[0]
    short = shorten_path(path, found.folders)
    return failed(
        f"{short} takes the symbol {symbol} from {other}, which has none of this name: "
        "undefined symbol",
        cure,
        lost_symbols=found.lost_symbols,
        **shown,
    )


def cure_of_symbol(evidence: Evidence) -> str | None:
    """Say what mends an object that takes a symbol from a package that does not have it."""
    found = given(evidence.libraries)
    if not found.lost_symbols:
        return None
    path, _, other = found.lost_symbols[0]
    if other.startswith("/"):
        return (
            f"take {other} out of LD_LIBRARY_PATH: what lies there is another release, and loaded "
            "first"
        )
    short = shorten_path(path, found.folders)
    if short.startswith((f"{other}/", f"{other}.libs/")):
        dists = [one for one in evidence.installed.dists if one.name.startswith(other.lower())]
        parts = listing([f"{one.name} {one.version}" for one in dists])
        return (
            f"its parts are of different releases ({parts}): put them into [python] dependencies "
            "in one"
        )
    held = _holder_of(evidence, short)
    owner = _holder_of(evidence, other)
    return (
        f"take a release of {held} that was built for this {owner}, or the {owner} that it was "
        "built for"
    )


def _holder_of(evidence: Evidence, path: str) -> str:
    """Return a distribution and its release by the folder of one of its files."""
    top = path.partition("/")[0]
    held = (name for name, modules in evidence.installed.imports.items() if top in modules)
    dist = evidence.installed.dist(next(held, top))
    if dist is None:
        return top
    return f"{dist.name} {dist.version}"


def advise_provider(soname: str, toolkit: str | None = None) -> str:
    """Say how a library gets into the image; ``toolkit`` is the CUDA its wheel should be for."""
    if lookup.from_rocm(soname):
        cure = "take a base with ROCm, or the framework's build for CUDA"
        return f"{soname} is a part of AMD's ROCm: {cure}"
    row = lookup.provider_of(soname)
    if soname.startswith("libc.musl"):
        return f"{soname}: it was built for Alpine (musl): take the wheel that is named manylinux"
    if row is None:
        return f"find the Debian package that has {soname} (apt-file search {soname}) and add it to [system] packages"
    ways = [f'add "{row.debian}" to [system] packages'] if row.debian else []
    if row.wheel:
        ways.append(f'add "{lookup.wheel_for(row.wheel, toolkit)}" to [python] dependencies')
    note = f"; {row.note}" if row.note else ""
    return f"{soname}: {' or '.join(ways)}{note}"


def provider_wheel(soname: str) -> str | None:
    """Return the wheel that brings a library, None where none is known."""
    row = lookup.provider_of(soname)
    return row.wheel if row else None


def shorten_path(path: str, folders: Texts) -> str:
    """Write a path relative to the site-packages folder it is in."""
    for folder in folders:
        if path.startswith(f"{folder}/"):
            return path[len(folder) + 1 :]
    return path


def set_library_path(evidence: Evidence) -> str:
    """Say how the loader finds CUDA's libraries in the folders where the image has them."""
    folders = ":".join(_cuda_folders(evidence))
    return f'write under [run]: environment = {{ LD_LIBRARY_PATH = "{folders}" }}'


def _cuda_folders(evidence: Evidence) -> list[str]:
    """Return every folder with CUDA's libraries, those of LD_LIBRARY_PATH first."""
    found = given(evidence.libraries)
    before = [folder for folder in found.library_path if folder != DRIVER_LIBRARIES]
    folders: set[str] = set()
    for name, paths in found.copies.items():
        if "libcuda.so" not in name:
            folders.update(str(PurePosixPath(path).parent) for path in paths)
    return [*before, *sorted(folders - set(before))]
