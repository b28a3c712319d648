"""The programs that a definition carries, as they are beside each other in a build."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from envbuild.plan.shell import SCRIPTS


def load_program(name: str) -> Any:
    """Import a program, which may import the others by their names."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS))
