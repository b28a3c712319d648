"""Find the modules that a project compiles itself, by what its setup.py and pyproject.toml say; nothing is run."""

from __future__ import annotations

import ast

from envbuild.errors import UsageError
from envbuild.python_code import parse_code
from envbuild.toml import parse_toml

ENDING = "Extension"
"""How the classes end whose first argument is the module's name: Extension, CUDAExtension, CMakeExtension."""


def compiled_in_setup(text: str) -> frozenset[str]:
    """Return the top names of the modules that a setup.py compiles."""
    tree = parse_code(text)
    nodes = ast.walk(tree) if tree else ()
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return frozenset(filter(None, map(_named_extension, calls)))


def _named_extension(call: ast.Call) -> str | None:
    """Return the top name that an Extension("name", …) is imported by; None for other calls."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else None
    called = call.func.id if isinstance(call.func, ast.Name) else called
    if called is None or not called.endswith(ENDING):
        return None
    names = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "name")]
    first = names[0] if names else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    return first.value.partition(".")[0]


def compiled_in_table(text: str) -> frozenset[str]:
    """Return the same of a pyproject.toml, for setuptools and maturin."""
    try:
        tools = parse_toml(text, "pyproject.toml").get("tool", {})
        modules = [one["name"] for one in tools.get("setuptools", {}).get("ext-modules", [])]
        modules += [tools.get("maturin", {}).get("module-name", "")]
        return frozenset(filter(None, (name.partition(".")[0] for name in modules)))
    except (UsageError, AttributeError, KeyError, TypeError):
        return frozenset()  # not as setuptools reads it: other readers tell what is wrong
