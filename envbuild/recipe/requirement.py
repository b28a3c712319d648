"""What packaging raises over a text that is no requirement."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement

NO_REQUIREMENT = (InvalidRequirement, RecursionError)
"""The second one for a thousand brackets in each other."""
