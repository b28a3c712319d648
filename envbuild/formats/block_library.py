"""The layout and the library that pack an image's blocks here: what decides their bytes."""

from __future__ import annotations

from envbuild.store.units import join_numbers

LAYOUT = 1
"""Counts up whenever the same files would be packed into other bytes."""
LIBRARY = "zstandard"


def library_here() -> str:
    """Return the compressor that this machine has, such as "zstd 1.5.7"."""
    import zstandard  # late: reading a lock needs none

    return "zstd " + join_numbers(zstandard.ZSTD_VERSION)
