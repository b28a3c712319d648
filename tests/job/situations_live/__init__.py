"""What users do and what clusters do to jobs: one function for each situation, the same for every scheduler."""

from tests.job.situations_live import chains, changes, clients, ends, files, nodes, runs, words
from tests.job.situations_live.place import SITUATIONS

MODULES = (words, chains, ends, files, clients, changes, nodes, runs)
"""Importing them puts their situations into the list."""
__all__ = ["MODULES", "SITUATIONS"]
