"""Which CUDA and cuDNN the installed framework was built for."""

from __future__ import annotations

import re

from envbuild.base.gpu import conda_cuda
from envbuild.check.evidence import Evidence
from envbuild.data import lookup

IN_NAME = re.compile(r"(?:-cuda|^mxnet-cu)(\d{1,2})(x|\d)$")
"""Major and minor version: "12" and "x", "11" and "7", "9" and "2"."""


def toolkit_of(evidence: Evidence) -> str | None:
    """Return the CUDA that the installed framework was built for.

    Its files say so, else its name or release.
    """
    if evidence.framework is None:
        return None
    if evidence.framework.plugins:
        return _toolkit_of_plugin(evidence)
    row = evidence.build
    seen = evidence.built_for.cuda or ""
    if row is not None and len(lookup.numbers(seen)) < 2:
        return row.cuda  # wheels of TensorFlow 2.2 say "10" and mean 10.1
    return seen if lookup.numbers(seen) else _toolkit_in_name(evidence)


def toolkit_of_conda(evidence: Evidence) -> str | None:
    """Return the CUDA of the environment's conda packages; None without CUDA's libraries."""
    if evidence.conda is None or evidence.conda.data is None:
        return None
    return conda_cuda({package.name: package.version for package in evidence.conda.data.packages})


def cudnn_of(evidence: Evidence) -> str | None:
    """Return the cuDNN that the installed framework was built for.

    Its release's row knows the minor version.
    """
    row, seen = evidence.build, evidence.built_for.cudnn or ""
    told = row.cudnn if row is not None and row.cudnn else seen
    return told if lookup.numbers(told) else None


def is_cpu_build(evidence: Evidence) -> bool:
    """Tell whether a framework is a distribution that never computes on the GPU."""
    framework = evidence.framework
    if framework is None or not evidence.owners:
        return False
    return all(lookup.matches(owner.name, framework.cpu) for owner in evidence.owners)


def _toolkit_of_plugin(evidence: Evidence) -> str | None:
    """Return the CUDA family that JAX's plug-in is for, which its name tells."""
    for dist in evidence.installed.dists:
        name = re.fullmatch(r"jax-cuda(\d+)-plugin", dist.name)
        if name and not dist.shadowed:
            return name[1]
    return None


def _toolkit_in_name(evidence: Evidence) -> str | None:
    """Read CUDA out of a distribution's name: cupy-cuda12x, cupy-cuda117, cupy-cuda101."""
    for owner in evidence.owners:
        name = IN_NAME.search(owner.name)
        if name:
            major, minor = name.groups()
            return major if minor == "x" else f"{major}.{minor}"
    return None
