"""Reproducible GPU containers: resolve against the base, lock, build, prove that the GPU is used."""

__version__ = "0.1.0"
