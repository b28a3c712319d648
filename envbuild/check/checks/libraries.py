"""Checks of shared libraries: those that are needed, and those that the framework was built for."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from envbuild.check.answers import Place
from envbuild.check.evidence import Evidence, Verdict, failed, given, listing, passed, skipped
from envbuild.data import lookup


def shared_libraries(evidence: Evidence) -> Verdict:
    """Check whether every shared object below site-packages finds the libraries it needs."""
    found = given(evidence.libraries)
    if found.damaged_count:
        path, why = found.damaged[0]
        objects = (
            "1 shared object"
            if found.damaged_count == 1
            else f"{found.damaged_count} shared objects"
        )
        return failed(
            f"{objects} cannot be read: {shorten_path(path, found.folders)} ({why})",
            "the file is damaged; build the image again from its lock: envbuild make",
            damaged=[path for path, _ in found.damaged],
        )
    missing: dict[str, list[str]] = {}
    for soname, paths in sorted(found.missing.items()):
        needy = [path for path in paths if _is_loaded(evidence, path, soname)]
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
        hints = [_cure_of(evidence, name, missing[name]) for name in [soname, *others]]
        return failed(
            f"{soname} is not in the image; needed by {listing(first, 2)}"
            + (f"; also missing: {listing(others)}" if others else ""),
            "\n".join(dict.fromkeys(hints)),
            missing={name: objects[:20] for name, objects in missing.items()},
            **shown,
        )
    strange = [shorten_path(path, found.folders) for path in found.other_pythons]
    if strange:
        python = ".".join(evidence.installed.python.split(".")[:2])
        return failed(
            f"{listing(strange, 2)}: built for another Python, and the image has {python}, which cannot import it",
            f"take the wheel for Python {python} of it: lock again, or leave --python-version and --platform to envbuild",
            other_pythons=strange,
            **shown,
        )
    return _outdated(evidence, shown) or passed(
        f"{found.objects} shared objects find their libraries", **shown
    )


def _is_loaded(evidence: Evidence, path: str, soname: str, below: tuple[str, ...] = ()) -> bool:
    """Tell whether anything loads an object: what only optional parts need may lack its libraries.

    What lacks one of CUDA's libraries is opened by name at run time, as torch does with
    libcaffe2_nvrtc.
    """
    found = given(evidence.libraries)
    if _own_code(evidence, path):
        return True
    is_idle = path in found.idle and not lookup.is_cuda_library(soname)
    if is_idle or path in below or lookup.may_lack(path) is not None:
        return False
    needers = found.needed_by.get(path, ())
    return not needers or any(_is_loaded(evidence, one, soname, (*below, path)) for one in needers)


def _cure_of(evidence: Evidence, soname: str, needers: list[str]) -> str:
    """Say how a missing library gets into the image, or that its package is for another CUDA."""
    built, toolkit = lookup.toolkit_of_library(soname), toolkit_of(evidence)
    row = lookup.provider_of(soname)
    is_foreign = not any(_own_code(evidence, path) for path in needers)
    if built and toolkit and built != lookup.numbers(toolkit)[0] and is_foreign:
        package = needers[0].split("/")[0]
        return (
            f"{package} was built for CUDA {built}, {_name(evidence)} for CUDA {toolkit}: take the release of "
            f"{package} that goes with it, or its package for CUDA {lookup.numbers(toolkit)[0]}"
        )
    apart = _in_two_images(evidence, row.wheel if row else None)
    return apart or advise_provider(soname, toolkit)


def advise_on_library(evidence: Evidence, soname: str) -> str:
    """Say how a CUDA library that a program did not find is found: where it is, or who has it."""
    copies = given(evidence.libraries).copies if evidence.libraries else {}
    if any(path.endswith(f"/{soname}") for path in chain.from_iterable(copies.values())):
        folders = ":".join(_cuda_folders(evidence))
        return f'write under [run]: environment = {{ LD_LIBRARY_PATH = "{folders}" }}'
    row = lookup.provider_of(soname)
    apart = _in_two_images(evidence, row.wheel if row else None)
    return apart or advise_provider(soname, toolkit_of(evidence))


def _in_two_images(evidence: Evidence, wheel: str | None) -> str | None:
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
    folders = given(evidence.libraries).folders
    return evidence.framework is not None and lookup.matches(
        shorten_path(path, folders), evidence.framework.code
    )


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
    soname, version, path = max(
        lacking, key=lambda item: lookup.numbers(item[1].rpartition("_")[2])
    )
    glibc = f" (glibc {evidence.installed.glibc})" if version.startswith("GLIBC_") else ""
    return failed(
        f"{path} needs {version} of {soname}, and the image's{glibc} is older",
        "take a release of the package that was built for this system, or a base with a newer one",
        outdated=found.outdated,
        **shown,
    )


def advise_provider(soname: str, toolkit: str | None = None) -> str:
    """Say how a library gets into the image; ``toolkit`` is the CUDA its wheel should be for."""
    row = lookup.provider_of(soname)
    if row is None:
        return f"find the Debian package that has {soname} (apt-file search {soname}) and add it to [system] packages"
    ways = [f'add "{row.debian}" to [system] packages'] if row.debian else []
    if row.wheel:
        ways.append(f'add "{lookup.wheel_for(row.wheel, toolkit)}" to [python] dependencies')
    return f"{soname}: {' or '.join(ways)}" + (f"; {row.note}" if row.note else "")


def shorten_path(path: str, folders: tuple[str, ...]) -> str:
    """Write a path relative to the site-packages folder it is in."""
    for folder in folders:
        if path.startswith(f"{folder}/"):
            return path[len(folder) + 1 :]
    return path


def cuda_match(evidence: Evidence) -> Verdict:
    """Check whether the framework will load the CUDA and cuDNN that it was built for."""
    framework, built = evidence.framework, evidence.built_for
    if framework is None or framework.name == "chainer":
        return _chainer_alone(evidence) or skipped(
            "no known GPU framework is installed, and none was asked for"
        )
    name = f"{framework.name} {evidence.release or ''}".strip()
    if built.is_cuda is False or is_cpu_build(evidence):
        return _without_cuda(evidence, name)
    if framework.name == "jax":
        return _jax_plugin(evidence, name)
    toolkit = toolkit_of(evidence)
    if toolkit is None:
        return skipped(f"what {name} was built for could not be read")
    return _opened(evidence, name, toolkit)


def _chainer_alone(evidence: Evidence) -> Verdict | None:
    """Return a failure for Chainer without CuPy: it does not ask for it, and goes on with NumPy."""
    chainer = evidence.installed.dist("chainer")
    others = [name for name, owners in evidence.installed.owners.items() if owners]
    if chainer is None or set(others) - {"chainer"}:
        return None
    return failed(
        f"chainer {chainer.version} is installed without CuPy and computes on the CPU only",
        'add the CuPy for the CUDA of the image to [python] dependencies, for example "cupy-cuda12x"',
    )


def _opened(evidence: Evidence, name: str, toolkit: str) -> Verdict:
    """Check the libraries that a framework opens itself; without one it goes on without the GPU."""
    copies, opened = given(evidence.libraries).copies, _places(evidence, toolkit)
    shown = {
        "built_for": {"cuda": toolkit, "cudnn": cudnn_of(evidence)},
        "found": {soname: place.path for soname, place in opened.items()},
        "copies": copies,
    }
    lost = [soname for soname, place in opened.items() if not place.loads]
    absent: list[str] = []
    for soname in lost:
        # what an opened library needs in turn is told by its own name
        absent += [name for name, _ in opened[soname].lost] or [soname]
    absent = list(dict.fromkeys(absent))
    places = {PurePosixPath(path).name: path for path in chain.from_iterable(copies.values())}
    unreached = [soname for soname in absent if soname in places]
    if unreached and unreached == absent:
        folder = shorten_path(
            str(PurePosixPath(places[unreached[0]]).parent), given(evidence.libraries).folders
        )
        return failed(
            f"{name} was built for CUDA {toolkit}{_and_cudnn(evidence)}, and opens {listing(unreached)}, which is in "
            f"{folder}, where its loader does not look; it would go on without the GPU",
            f'write under [run]: environment = {{ LD_LIBRARY_PATH = "{":".join(_cuda_folders(evidence))}" }}',
            missing=lost,
            **shown,
        )
    if lost:
        others = _other_majors(absent[0], copies)
        beside = f" (there is {listing(others)})" if others else ""
        return failed(
            f"{name} was built for CUDA {toolkit}{_and_cudnn(evidence)}, and opens {listing(absent)}, which is not in "
            f"the image{beside}; it would go on without the GPU",
            _bring_libraries(evidence, [one for one in absent if one not in places], toolkit),
            missing=lost,
            **shown,
        )
    linked_libraries = _linked_places(evidence)
    if not opened:
        too_old = _cudnn_new_enough(evidence, name, linked_libraries)
        if too_old:
            return too_old
        linked = "its CUDA libraries are linked, so the shared libraries above tell whether they are there"
        return passed(f"{name} is a build for CUDA {toolkit}; {linked}", **shown)
    return _cudnn_new_enough(evidence, name, opened) or passed(
        f"{name} finds CUDA {toolkit}{_and_cudnn(evidence)}", **shown
    )


def _cuda_folders(evidence: Evidence) -> list[str]:
    """Return every folder with CUDA's libraries, those of LD_LIBRARY_PATH first."""
    found = given(evidence.libraries)
    before = [folder for folder in found.library_path if folder != "/.singularity.d/libs"]
    folders: set[str] = set()
    for name, paths in found.copies.items():
        if "libcuda.so" not in name:
            folders.update(str(PurePosixPath(path).parent) for path in paths)
    return [*before, *sorted(folders - set(before))]


def _bring_libraries(evidence: Evidence, absent: list[str], toolkit: str) -> str:
    """Say how the libraries that a framework opens come into the image."""
    framework = evidence.framework
    assert framework is not None  # noqa: S101  (its check asks for one)
    for soname in absent:
        row = lookup.provider_of(soname)
        apart = _in_two_images(evidence, row.wheel if row else None)
        if apart:
            return apart
    cures = [advise_provider(soname, toolkit) for soname in absent]
    if any(framework.module in path for path in _loaders(evidence)):
        return "\n".join(dict.fromkeys(cures))
    # without a path of its own to NVIDIA's wheels the framework finds them by LD_LIBRARY_PATH only
    cures.append(
        "and write their folders (nvidia/*/lib) into LD_LIBRARY_PATH under [run] environment"
    )
    return "\n".join(dict.fromkeys(cures))


def _places(evidence: Evidence, toolkit: str) -> dict[str, Place]:
    """Return where the libraries are that this build of the framework opens itself."""
    framework, cudnn = evidence.framework, cudnn_of(evidence)
    assert framework is not None  # noqa: S101  (cuda_match asks for one)
    names = (
        *lookup.cuda_libraries(toolkit),
        *([f"libcudnn.so.{lookup.numbers(cudnn)[0]}"] if cudnn else []),
    )
    release, end = lookup.numbers(evidence.release or ""), framework.opens_before
    if end is not None and release >= lookup.numbers(end):
        return {}
    found = given(evidence.libraries).wanted.get(framework.module, {})
    return {
        name: found.get(name, Place()) for name in names if lookup.matches(name, framework.opens)
    }


def _name(evidence: Evidence) -> str:
    assert evidence.framework is not None  # noqa: S101  (its callers know one)
    return f"{evidence.framework.name} {evidence.release or ''}".strip()


def _linked_places(evidence: Evidence) -> dict[str, Place]:
    """Return where the libraries are that a framework is linked with and whose version counts."""
    framework, cudnn = evidence.framework, cudnn_of(evidence)
    assert framework is not None  # noqa: S101  (cuda_match asks for one)
    found = given(evidence.libraries).wanted.get(framework.module, {})
    name = f"libcudnn.so.{lookup.numbers(cudnn)[0]}" if cudnn else ""
    return {name: found[name]} if name in found else {}


def toolkit_of(evidence: Evidence) -> str | None:
    """Return the CUDA that the installed framework was built for.

    Its files say so, else its name or release.
    """
    if evidence.framework is None:
        return None
    if evidence.framework.name == "jax":
        return _toolkit_of_plugin(evidence)
    row = evidence.build
    seen = evidence.built_for.cuda
    if row is not None and (seen is None or len(lookup.numbers(seen)) < 2):
        return row.cuda  # wheels of TensorFlow 2.2 say "10" and mean 10.1
    return seen or _toolkit_in_name(evidence)


def _toolkit_of_plugin(evidence: Evidence) -> str | None:
    """Return the CUDA family that JAX's plug-in is for, which its name tells."""
    names = [dist.name for dist in evidence.installed.dists if not dist.shadowed]
    found = [match for name in names if (match := re.fullmatch(r"jax-cuda(\d+)-plugin", name))]
    return found[0][1] if found else None


def cudnn_of(evidence: Evidence) -> str | None:
    """Return the cuDNN that the installed framework was built for.

    Its release's row knows the minor version.
    """
    row = evidence.build
    return row.cudnn if row is not None and row.cudnn else evidence.built_for.cudnn


def _loaders(evidence: Evidence) -> tuple[str, ...]:
    """Return import names that open libraries of NVIDIA's wheels by a path of their own."""
    loaders: list[str] = []
    for name, places in given(evidence.libraries).wanted.items():
        if any(place.path and "/nvidia/" in place.path for place in places.values()):
            loaders.append(name)
    return tuple(loaders)


def is_cpu_build(evidence: Evidence) -> bool:
    """Tell whether a framework is a distribution that never computes on the GPU."""
    framework = evidence.framework
    if framework is None:
        return False
    owners = evidence.installed.owners.get(framework.module, ())
    return bool(owners) and all(lookup.matches(owner.name, framework.cpu) for owner in owners)


def _without_cuda(evidence: Evidence, name: str) -> Verdict:
    if evidence.built_for.is_rocm:
        return skipped(f"{name} is built for AMD GPUs (ROCm), which envbuild does not check")
    if evidence.expected.wants_cpu:
        return skipped(f"{name} is a build without CUDA, as the recipe asks for")
    return failed(
        f"{name} is a build without CUDA: it computes on the CPU only",
        "ask for its CUDA build: tensorflow[and-cuda], torch from an index with CUDA, jax[cuda12]",
    )


def _jax_plugin(evidence: Evidence, name: str) -> Verdict:
    plugins = {
        dist.name: dist.version
        for dist in evidence.installed.dists
        if not dist.shadowed and re.fullmatch(r"jax-cuda\d+-(plugin|pjrt)", dist.name)
    }
    jaxlib = evidence.installed.dist("jaxlib")
    if not plugins and jaxlib and "+cuda" in jaxlib.version:
        return passed(f"{name} with jaxlib {jaxlib.version}")
    if not plugins:
        return failed(
            f"{name} is installed without its CUDA plug-in and computes on the CPU only",
            "ask for jax[cuda12] (or jax[cuda13]) instead of jax",
        )
    if len(set(plugins.values())) > 1 or len(plugins) < 2:
        seen = ", ".join(f"{one} {version}" for one, version in sorted(plugins.items()))
        return failed(
            f"the parts of JAX's CUDA plug-in do not belong together: {seen}",
            "ask for jax[cuda12] (or jax[cuda13]), which brings both parts in one version",
            plugins=plugins,
        )
    return passed(
        f"{name} with {listing(sorted(plugins))} {next(iter(plugins.values()))}", plugins=plugins
    )


def _toolkit_in_name(evidence: Evidence) -> str | None:
    """Read CUDA out of a distribution's name: cupy-cuda12x, cupy-cuda117, cupy-cuda101."""
    owners = (
        evidence.installed.owners.get(evidence.framework.module, ()) if evidence.framework else ()
    )
    found = next(
        (
            match
            for owner in owners
            if (match := re.search(r"-cuda(\d{2})(x|\d)$|-cuda(\d)(\d)$", owner.name))
        ),
        None,
    )
    if found is None:
        return None
    if found[3]:
        return f"{found[3]}.{found[4]}"
    return found[1] if found[2] == "x" else f"{found[1]}.{found[2]}"


def _and_cudnn(evidence: Evidence) -> str:
    cudnn = cudnn_of(evidence)
    return f" and cuDNN {cudnn}" if cudnn else ""


def _other_majors(soname: str, copies: dict[str, tuple[str, ...]]) -> list[str]:
    stem = soname.split(".so", maxsplit=1)[0]
    paths = [path for path in chain.from_iterable(copies.values()) if f"/{stem}.so." in path]
    return sorted({PurePosixPath(path).name for path in paths})


def _cudnn_new_enough(evidence: Evidence, name: str, opened: dict[str, Place]) -> Verdict | None:
    """Return a failure where cuDNN is of the right major version and too old.

    "CuDNN library needs to have matching major version and equal or higher minor version"
    (TensorFlow's log); "cuDNN version incompatibility" (PyTorch, torch/backends/cudnn).
    """
    needed = cudnn_of(evidence)
    place = next((opened[soname] for soname in opened if soname.startswith("libcudnn.")), None)
    if needed is None or len(lookup.numbers(needed)) < 2 or place is None or place.real is None:
        return None
    for real, order in ((place.real, ""), (place.nv, " under --nv of Apptainer 1.5 or newer")):
        seen = _cudnn_version(evidence, real) if real else None
        if seen is None or lookup.numbers(seen)[:2] >= lookup.numbers(needed)[:2]:
            continue
        own = "/nvidia/cudnn/" in str(real)
        what = f"the image has {seen}" if own else f"it loads {seen} from {real}"
        return failed(
            f"{name} was compiled with cuDNN {needed}; {what}{order}, and it refuses an older one",
            _newer_cudnn(evidence, needed, str(real)),
            needed=needed,
            found=seen,
            path=real,
        )
    return None


def _cudnn_version(evidence: Evidence, path: str) -> str | None:
    """Return the version of a libcudnn: its own answer, else its wheel's, else its file name's."""
    said = given(evidence.libraries).cudnn.get(path)
    if said:
        return said
    wheels = [
        dist
        for dist in evidence.installed.dists
        if re.fullmatch(r"nvidia-cudnn-cu\d+", dist.name) and not dist.shadowed
    ]
    if wheels and "/nvidia/cudnn/" in path:
        return wheels[0].version
    named = PurePosixPath(path).name.partition(".so.")[2]
    return named if len(lookup.numbers(named)) > 1 else None


def _newer_cudnn(evidence: Evidence, needed: str, path: str) -> str:
    """Say how a framework gets the cuDNN that it was compiled with."""
    if "/nvidia/cudnn/" not in path:
        folder = PurePosixPath(path).parent
        return (
            f"take {folder} out of LD_LIBRARY_PATH and of the loader's configuration, so that the cuDNN of its own "
            f"packages is loaded, or put cuDNN {needed} or newer there"
        )
    wheel = f"nvidia-cudnn-cu{lookup.numbers(toolkit_of(evidence) or '12')[0]}"
    apart = _in_two_images(evidence, wheel)
    major, minor = lookup.numbers(needed)[:2]
    return apart or f'add "{wheel}>={major}.{minor},<{major + 1}" to [python] dependencies'
