"""Read framework, CUDA, cuDNN and NCCL versions from what the probe found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from envbuild.base.model import AptPackage, Dist
from envbuild.data.lookup import framework_held, numbers
from envbuild.data.package_tables import load_conda
from envbuild.names import Texts, Variables


def framework_of_dists(dists: Sequence[Dist]) -> str | None:
    """Return "name version" of the framework that the image is about, or None."""
    by_name = {str(canonicalize_name(dist.name)): dist for dist in dists}
    found = framework_held(by_name)
    return f"{by_name[found].name} {by_name[found].version}" if found else None


def built_for(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the "cuda" and "cudnn" versions of TensorFlow's or PyTorch's build information."""
    found: dict[str, str] = {}
    tensorflow, torch = texts.get("tensorflow", ""), texts.get("torch", "")
    for key in ("cuda", "cudnn"):
        # a dictionary since TensorFlow 2.3, variables named …_version_number before
        match = re.search(
            rf"""{key}_version(?:_number)?['"]?\s*[:,=]\s*['"]v?(\d[\d.]*)['"]""", tensorflow
        )
        if match:
            found[key] = match[1]
    match = re.search(r"""^cuda\s*(?::[^=\n]*)?=\s*['"](\d[\d.]*)['"]""", torch, re.MULTILINE)
    if match:
        found.setdefault("cuda", match[1])
    return found


def cuda_version(
    dists: Iterable[Dist],
    libraries: Iterable[str],
    texts: Mapping[str, str],
    environment: Variables,
) -> str | None:
    """Return the CUDA version as "major.minor".

    The wheel's runtime comes first, as frameworks from wheels load that one; then the toolkit's own
    files, the library of the loader's path (real paths), the image's environment, and at last what
    the framework was built for.
    """
    candidates = (
        _wheel_version(dists, "nvidia-cuda-runtime"),
        _version_file(texts),
        _library_version(libraries, "libcudart"),
        environment.get("CUDA_VERSION"),
        built_for(texts).get("cuda"),
    )
    return next((short for short in map(_major_minor, candidates) if short), None)


def conda_cuda(versions: Mapping[str, str]) -> str | None:
    """Return the CUDA of conda packages ("12.6") by their versions, None without its libraries."""
    if not load_conda().libraries & set(versions):
        return None
    # the runtime itself first: with packages of the channel pytorch, cuda-version may be any newer
    named = ("cuda-cudart", "cudatoolkit", "pytorch-cuda", "cuda-version")
    found = next((versions[name] for name in named if name in versions), None)
    return _major_minor(found)


def cudnn_version(
    dists: Iterable[Dist],
    libraries: Iterable[str],
    texts: Mapping[str, str],
    environment: Variables,
    apt: Iterable[AptPackage],
) -> str | None:
    """Return the cuDNN version, as precise as possible (sources in the order of CUDA's)."""
    header = dict(
        re.findall(r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", texts.get("cudnn header", ""))
    )
    installed = (
        _wheel_version(dists, "nvidia-cudnn")
        or _package_version(apt, r"libcudnn\d+(-cuda-\d+)?")
        or _library_version(libraries, "libcudnn")
    )
    if installed:
        return installed
    if len(header) == 3:
        return ".".join(header[part] for part in ("MAJOR", "MINOR", "PATCHLEVEL"))
    return _leading_version(environment.get("NV_CUDNN_VERSION", "")) or _leading_version(
        environment.get("CUDNN_VERSION", "")
    )


def nccl_version(
    dists: Iterable[Dist],
    libraries: Iterable[str],
    environment: Variables,
    apt: Iterable[AptPackage],
) -> str | None:
    """Return the NCCL version, or None."""
    return (
        _wheel_version(dists, "nvidia-nccl")
        or _package_version(apt, r"libnccl2")
        or _library_version(libraries, "libnccl")
        or _leading_version(environment.get("NCCL_VERSION", ""))
    )


def stub_paths(libraries: Iterable[tuple[str, str]]) -> Texts:
    """Return the paths of loadable stubs of libcuda, which answer every call with error 34."""
    of_driver = [pair for pair in libraries if PurePosixPath(pair[0]).name.startswith("libcuda.")]
    return tuple(path for path, real in of_driver if "stubs" in PurePosixPath(real).parts)


def _wheel_version(dists: Iterable[Dist], name: str) -> str | None:
    """Return the version of NVIDIA's wheel; its name ends with -cu11, -cu12 or nothing."""
    versions = [
        dist.version
        for dist in dists
        if re.fullmatch(rf"{name}(-cu\d+)?", dist.name.replace("_", "-"))
    ]
    return max(versions, key=numbers, default=None)


def _version_file(texts: Mapping[str, str]) -> str | None:
    try:
        return str(json.loads(texts.get("cuda version.json", ""))["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        match = re.search(r"CUDA Version (\d[\d.]*)", texts.get("cuda version.txt", ""))
        return match[1] if match else None


def _library_version(paths: Iterable[str], name: str) -> str | None:
    """Return the version of three numbers or more that ends the first such file name."""
    for path in paths:
        match = re.fullmatch(rf"{name}\.so\.(\d+(?:\.\d+){{2,}})", PurePosixPath(path).name)
        if match:
            return match[1]
    return None


def _package_version(apt: Iterable[AptPackage], pattern: str) -> str | None:
    versions = [
        _leading_version(package.version) for package in apt if re.fullmatch(pattern, package.name)
    ]
    return next((version for version in versions if version), None)


def _leading_version(text: str) -> str | None:
    match = re.match(r"\d+(?:\.\d+)+", text)
    return match[0] if match else None


def _major_minor(text: str | None) -> str | None:
    match = re.match(r"\d+\.\d+", text or "")
    return match[0] if match else None
