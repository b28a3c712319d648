"""The formats of packed parts: which bytes a part's key stands for.

No name of a class and no version of envbuild decides a key or a byte of an image; these counters
do.
"""

from __future__ import annotations

FORMATS = {
    "bytecode": 2,  # of a wheel's modules
    "captured": 3,  # what a run inside the base changed
    "conda": 1,  # of a conda package, linked
    "conda-environment": 1,  # what activating does, conda's history
    "files": 2,  # of the recipe
    "hidden": 2,  # packages of an image that locked ones replace
    "mounts": 2,  # what a runtime mounts over
    "oci": 2,  # a layer of an OCI image
    "root": 4,  # the tar of a bootstrapped Debian
    "runtime": 3,  # files below /.singularity.d
    "sdist": 2,  # the wheel built from a source archive
    "sif": 2,  # the root of a SIF
    "wheel": 2,
}
"""By kind of part; one counts up whenever the same inputs would give another tree or other bytes.
"""
