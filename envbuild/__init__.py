"""Reproducible GPU containers: resolve against the base, lock, build, prove that the GPU is used."""

import sys

__version__ = "0.1.0"
# httpx would import its own command line, with rich and pygments: this line is before any httpx
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
