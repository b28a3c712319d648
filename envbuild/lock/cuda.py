"""Tell from a lock whether its image has CUDA, and which."""

from __future__ import annotations

import re

from envbuild.base import gpu
from envbuild.base.model import Dist
from envbuild.data.lookup import build_of
from envbuild.lock.model import Lock


def cuda_of(lock: Lock) -> str | None:
    """Return the CUDA version in an image of this lock ("12.4", "12"); None without."""
    from_conda = gpu.conda_cuda({package.name: package.version for package in lock.conda})
    if from_conda:
        return from_conda
    packages = lock.installed
    dists = [Dist(name=package.name, version=package.version) for package in packages]
    found = gpu.cuda_version(dists, (), {}, {}) or lock.base.cuda
    if found:
        return found
    return next((own for dist in dists if (own := _own_cuda(dist, lock.base.machine))), None)


def _own_cuda(dist: Dist, machine: str) -> str | None:
    """Return the CUDA that a wheel carries in itself, or was built for by its own name."""
    if built := re.search(r"\+cu(\d+)(\d)(?!\d)", dist.version):  # torch 2.1.0+cu118
        return f"{built[1]}.{built[2]}"
    if family := re.fullmatch(
        r"(?:cupy-cuda|mxnet-cu)(\d\d)(\dx?|x)?", dist.name
    ):  # cupy-cuda12x, mxnet-cu112
        minor = (family[2] or "").rstrip("x")
        return f"{family[1]}.{minor}" if minor else family[1]
    if dist.name != "torch" or "+" in dist.version or machine != "x86_64":
        return None

    # before 2.0 its wheels held CUDA's libraries themselves
    build = build_of("torch", dist.version)
    return build.cuda if build else None
