"""Whether the framework will load the CUDA and cuDNN that it was built for."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from envbuild.check.answers import Place
from envbuild.check.checks.gpu.toolkit import cudnn_of, is_cpu_build, toolkit_of
from envbuild.check.checks.libraries import (
    advise_on_extra,
    advise_provider,
    in_two_images,
    provider_wheel,
    set_library_path,
    shorten_path,
)
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.data import lookup
from envbuild.names import Texts
from envbuild.store.units import listing

OWN_CUDNN = re.compile(r"/(?:site|dist)-packages/nvidia/cudnn/")
"""Where the wheel of cuDNN lies; a copy of it elsewhere comes from a variable or the loader's cache."""


def cuda_match(evidence: Evidence) -> Verdict:
    """Check whether the framework will load the CUDA and cuDNN that it was built for."""
    framework = evidence.framework
    if framework is None or framework.name == "chainer":
        nothing = skipped("no known GPU framework is installed, and none was asked for")
        return _chainer_alone(evidence) or nothing
    if evidence.built_for.is_cuda is False or is_cpu_build(evidence):
        return _without_cuda(evidence)
    if framework.plugins:
        return _jax_plugin(evidence)
    toolkit = toolkit_of(evidence)
    if toolkit is None:
        return skipped(f"what {evidence.title} was built for could not be read")
    return _opened(evidence, toolkit)


def _chainer_alone(evidence: Evidence) -> Verdict | None:
    """Return a failure for Chainer without CuPy: it does not ask for it, and goes on with NumPy."""
    chainer = evidence.installed.dist("chainer")
    owned = {name for name, owners in evidence.installed.owners.items() if owners}
    if chainer is None or owned - {"chainer"}:
        return None
    return failed(
        f"chainer {chainer.version} is installed without CuPy and computes on the CPU only",
        'add the CuPy for the CUDA of the image to [python] dependencies, for example "cupy-cuda12x"',
    )


def _without_cuda(evidence: Evidence) -> Verdict:
    name = evidence.title
    if evidence.built_for.is_rocm:
        return _built_for_amd(evidence)
    if evidence.expected.wants_cpu:
        return skipped(f"{name} is a build without CUDA, as the recipe asks for")
    return failed(
        f"{name} is a build without CUDA: it computes on the CPU only",
        _ask_for_cuda(evidence),
    )


def _built_for_amd(evidence: Evidence) -> Verdict:
    """Judge a build for ROCm: on NVIDIA's GPUs it computes on the CPU."""
    what = f"{evidence.title} is built for AMD GPUs (ROCm)"
    other = _sign_of_nvidia(evidence)
    if other is None:
        return skipped(
            f"{what}, which envbuild does not check",
            f"for NVIDIA's GPUs {_ask_for_cuda(evidence)}",
        )
    return failed(f"{what}, and {other}: it computes on the CPU only", _ask_for_cuda(evidence))


def _sign_of_nvidia(evidence: Evidence) -> str | None:
    """Say what shows that an image is meant for NVIDIA's GPUs; None where nothing does."""
    target = evidence.expected.target
    if target is not None and (target.gpu or target.driver):
        return f"the node ({target}) has NVIDIA's GPUs"
    if evidence.gpu:
        return "this machine has NVIDIA's driver"
    # NCCL alone comes with xgboost, which every image may have
    names = [one.name for one in evidence.installed.dists]
    parts = [name for name in names if re.match(r"nvidia-(?!nccl-).*-cu\d+$", name)]
    return f"the image has CUDA ({listing(parts, 2)})" if parts else None


def _ask_for_cuda(evidence: Evidence) -> str:
    """Say which distribution of a framework, or which build of it, computes on the GPU."""
    framework = evidence.framework
    assert framework is not None  # noqa: S101  (cuda_match asks for one)
    wanted = framework.with_cuda
    if wanted is None:
        return f"ask for a build of {framework.name} with CUDA"
    owners = evidence.installed.owners.get(framework.module, ())
    others = [owner.name for owner in owners if owner.name != framework.name]
    instead = f" instead of {others[0]}" if others else ""
    if not any("+" in owner.version for owner in owners) or not evidence.release:
        return f'ask for "{wanted}"{instead}'
    release, _, build = evidence.release.partition("+")
    note = f"+{build or 'cpu'} is a build of another index than the one with CUDA"
    return f'ask for "{wanted}=={release}"{instead}; {note}'


def _jax_plugin(evidence: Evidence) -> Verdict:
    name = evidence.title
    parts = [
        dist
        for dist in evidence.installed.dists
        if not dist.shadowed and re.fullmatch(r"jax-cuda\d+-(plugin|pjrt)", dist.name)
    ]
    plugins = {dist.name: dist.version for dist in parts}
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
    version = parts[0].version
    return passed(f"{name} with {listing(sorted(plugins))} {version}", plugins=plugins)


def _opened(evidence: Evidence, toolkit: str) -> Verdict:
    """Check the libraries that a framework opens itself; without one it goes on without the GPU."""
    survey = given(evidence.libraries)
    opened = _opened_places(evidence, toolkit)
    shown = {
        "built_for": {"cuda": toolkit, "cudnn": cudnn_of(evidence)},
        "found": {soname: place.path for soname, place in opened.items()},
        "copies": survey.copies,
    }
    lost = [soname for soname, place in opened.items() if not place.loads]
    if lost:
        return _not_opened(evidence, toolkit, {name: opened[name] for name in lost}, shown)
    versions = f"CUDA {toolkit}{_and_cudnn(evidence)}"
    if opened:
        fine = passed(f"{evidence.title} finds {versions}", **shown)
        return _cudnn_new_enough(evidence, opened) or fine
    linked = (
        "its CUDA libraries are linked, so the shared libraries above tell whether they are there"
    )
    fine = passed(f"{evidence.title} is a build for CUDA {toolkit}; {linked}", **shown)
    return _cudnn_new_enough(evidence, _linked_places(evidence)) or fine


def _not_opened(
    evidence: Evidence, toolkit: str, lost: dict[str, Place], shown: dict[str, Any]
) -> Verdict:
    """Return the failure of libraries that the framework opens and that do not load."""
    absent: list[str] = []
    for soname, place in lost.items():
        # what an opened library needs in turn is told by its own name
        absent += [name for name, _ in place.lost] or [soname]
    absent = list(dict.fromkeys(absent))
    survey = given(evidence.libraries)
    copies = {PurePosixPath(path).name: path for path in survey.all_copies}
    opens = f"{evidence.title} was built for CUDA {toolkit}{_and_cudnn(evidence)}, and opens {listing(absent)}"
    slow = "it would go on without the GPU"
    if all(soname in copies for soname in absent):
        folder = shorten_path(str(PurePosixPath(copies[absent[0]]).parent), survey.folders)
        return failed(
            f"{opens}, which is in {folder}, where its loader does not look; {slow}",
            set_library_path(evidence),
            missing=list(lost),
            **shown,
        )
    others = _other_majors(absent[0], survey.all_copies)
    beside = f" (there is {listing(others)})" if others else ""
    return failed(
        f"{opens}, which is not in the image{beside}; {slow}",
        _bring_libraries(evidence, [name for name in absent if name not in copies], toolkit),
        missing=list(lost),
        **shown,
    )


def _opened_places(evidence: Evidence, toolkit: str) -> dict[str, Place]:
    """Return where the libraries are that this build of the framework opens itself."""
    framework, cudnn = evidence.framework, _cudnn_soname(evidence)
    assert framework is not None  # noqa: S101  (cuda_match asks for one)
    release, end = lookup.numbers(evidence.release or ""), framework.opens_before
    if end is not None and release >= lookup.numbers(end):
        return {}
    names = [*lookup.cuda_libraries(toolkit), *([cudnn] if cudnn else [])]
    opened = [name for name in names if lookup.matches(name, framework.opens)]
    found = given(evidence.libraries).wanted.get(framework.module, {})
    return {name: found.get(name, Place()) for name in opened}


def _linked_places(evidence: Evidence) -> dict[str, Place]:
    """Return where the libraries are that a framework is linked with and whose version counts."""
    framework, name = evidence.framework, _cudnn_soname(evidence)
    assert framework is not None  # noqa: S101  (cuda_match asks for one)
    found = given(evidence.libraries).wanted.get(framework.module, {})
    return {name: found[name]} if name in found else {}


def _cudnn_soname(evidence: Evidence) -> str:
    cudnn = cudnn_of(evidence)
    return f"libcudnn.so.{lookup.numbers(cudnn)[0]}" if cudnn else ""


def _bring_libraries(evidence: Evidence, absent: list[str], toolkit: str) -> str:
    """Say how the libraries that a framework opens come into the image."""
    framework = evidence.framework
    assert framework is not None  # noqa: S101  (its check asks for one)
    for soname in absent:
        apart = in_two_images(evidence, provider_wheel(soname))
        if apart:
            return apart
    extra = advise_on_extra(evidence, framework.dists, tuple(absent))
    if extra:
        return extra
    cures = [advise_provider(soname, toolkit) for soname in absent]
    if any(framework.module in path for path in _loaders(evidence)):
        return "\n".join(dict.fromkeys(cures))
    # without a path of its own to NVIDIA's wheels the framework finds them by LD_LIBRARY_PATH only
    cures.append(
        "and write their folders (nvidia/*/lib) into LD_LIBRARY_PATH under [run] environment"
    )
    return "\n".join(dict.fromkeys(cures))


def _loaders(evidence: Evidence) -> Texts:
    """Return import names that open libraries of NVIDIA's wheels by a path of their own."""
    loaders: list[str] = []
    for name, places in given(evidence.libraries).wanted.items():
        if any(place.path and "/nvidia/" in place.path for place in places.values()):
            loaders.append(name)
    return tuple(loaders)


def _other_majors(soname: str, copies: list[str]) -> list[str]:
    stem = soname.split(".so", maxsplit=1)[0]
    return sorted({PurePosixPath(path).name for path in copies if f"/{stem}.so." in path})


def _and_cudnn(evidence: Evidence) -> str:
    cudnn = cudnn_of(evidence)
    return f" and cuDNN {cudnn}" if cudnn else ""


def _cudnn_new_enough(evidence: Evidence, places: dict[str, Place]) -> Verdict | None:
    """Return a failure where cuDNN is of the right major version and too old.

    "CuDNN library needs to have matching major version and equal or higher minor version"
    (TensorFlow's log); "cuDNN version incompatibility" (PyTorch, torch/backends/cudnn).
    """
    needed = cudnn_of(evidence)
    place = places.get(_cudnn_soname(evidence), Place())
    if needed is None or len(lookup.numbers(needed)) < 2 or place.real is None:
        return None
    least = lookup.numbers(needed)[:2]
    for real, order in ((place.real, ""), (place.nv, " under --nv of Apptainer 1.5 or newer")):
        seen = _cudnn_version(evidence, real) if real else None
        if seen is None or lookup.numbers(seen)[:2] >= least:
            continue
        what = (
            f"the image has {seen}"
            if OWN_CUDNN.search(str(real))
            else f"it loads {seen} from {real}"
        )
        return failed(
            f"{evidence.title} was compiled with cuDNN {needed}; {what}{order}, and it refuses an older one",
            _newer_cudnn(evidence, needed, str(real)),
            needed=needed,
            found=seen,
            path=real,
        )
    return None


def _cudnn_version(evidence: Evidence, path: str) -> str | None:
    """Return the version of a libcudnn: its own answer, else its wheel's, else its file name's."""
    own = given(evidence.libraries).cudnn.get(path)
    if own:
        return own
    if OWN_CUDNN.search(path):
        for dist in evidence.installed.dists:
            if re.fullmatch(r"nvidia-cudnn-cu\d+", dist.name) and not dist.shadowed:
                return dist.version
    named = PurePosixPath(path).name.partition(".so.")[2]
    return named if len(lookup.numbers(named)) > 1 else None


def _newer_cudnn(evidence: Evidence, needed: str, path: str) -> str:
    """Say how a framework gets the cuDNN that it was compiled with."""
    if not OWN_CUDNN.search(path):
        folder = PurePosixPath(path).parent
        return (
            f"take {folder} out of LD_LIBRARY_PATH and of the loader's configuration, so that the cuDNN of its own "
            f"packages is loaded, or put cuDNN {needed} or newer there"
        )
    wheel = f"nvidia-cudnn-cu{lookup.numbers(toolkit_of(evidence) or '12')[0]}"
    major, minor = (*lookup.numbers(needed), 0)[:2]
    wish = f'add "{wheel}>={major}.{minor},<{major + 1}" to [python] dependencies'
    return in_two_images(evidence, wheel) or wish
