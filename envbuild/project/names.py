"""Names of modules, conda and Debian packages as distributions (data/names.toml)."""

from __future__ import annotations

import functools
import re
import sys
from fnmatch import fnmatchcase

from packaging.utils import canonicalize_name

from envbuild.data.package_tables import (
    load_conda_names,
    load_conda_same,
    load_modules,
    load_names,
)

FOR_DEVELOPERS = re.compile(
    r"flake8(-.*)?|pytest(-.*)?|black|isort|mypy|pylint|ruff|pre-commit|pycodestyle|pyflakes|mccabe"
    r"|autopep8|autoflake|pydocstyle|pyupgrade|yapf|codespell|yamllint|cpplint|clang-format"
    r"|coverage|bump2?version|twine|setuptools-(scm|git-versioning)|versioneer|build|hatch(ling)?"
    r"|flit(-core)?|nox|tox|codecov|sphinx(-.*)?|numpydoc|mkdocs(-.*)?|pydoctor|nbstripout"
)
"""Distributions that check or ship code: a list for running names them by the way."""
SHARED_FOLDERS = ("azure.", "backports.", "google.", "pyannote.", "ruamel.")
"""Folders that many distributions fill."""


@functools.cache
def _listed() -> dict[str, str]:
    """Map the modules of names.toml to distributions ("" for one that is on no index)."""
    names = load_names()
    same = {name: canonicalize_name(name) for name in names.same.names} | names.same.but
    return same | names.module


@functools.cache
def _modules() -> dict[str, str]:
    return load_modules() | _listed()


def distribution_of(module: str) -> str | None:
    """Return the distribution of a module: "" where no index has it, None if unknown."""
    parts = module.split(".")
    dotted = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((one for name in dotted if (one := _row_of(name)) is not None), None)
    same = canonicalize_name(parts[0])
    return same if found is None and same in load_names().transitive.names else found


def _row_of(name: str) -> str | None:
    """Return what the tables say of a dotted name itself.

    What fills a folder together with others is called by the whole name: google.genai.
    """
    whole = canonicalize_name(name)
    shared = "." in name and name.startswith(SHARED_FOLDERS) and whole in load_conda_same()
    return _modules().get(name, whole if shared else None)


def is_listed_module(name: str) -> bool:
    """Whether a dotted name stands in the table of modules itself, not only what is above it."""
    return _row_of(name) is not None


def shared_name(module: str) -> str | None:
    """Return the distribution that conda has by the name of a module, None where it is too plain."""
    name = canonicalize_name(module)
    return name if name in load_conda_same() and name not in load_names().own.names else None


def likely_distribution(module: str) -> str:
    """Return the distribution of a module, or that of its own name where no table has it."""
    return distribution_of(module) or canonicalize_name(module.partition(".")[0])


def is_standard(module: str) -> bool:
    """Whether a top-level module is Python's own, or was (distutils and imp went in 3.12)."""
    return module in sys.stdlib_module_names or module in GONE


GONE = {
    "ConfigParser", "Queue", "StringIO", "Tkinter", "__builtin__", "__main__", "_winapi",
    "asynchat", "asyncore", "binhex", "cPickle", "cStringIO", "commands", "copy_reg",
    "distutils", "dummy_threading", "formatter", "httplib", "imp", "macpath", "parser", "sets",
    "smtpd", "symbol", "thread", "urllib2", "urlparse",
}  # fmt: skip
"""Modules that Python had once."""


@functools.cache
def _known_distributions() -> frozenset[str]:
    names = load_names()
    return frozenset({*_listed().values(), *names.transitive.names, *names.system} - {""})


def is_known_distribution(name: str) -> bool:
    """Whether a canonical name stands in any table."""
    return name in _known_distributions()


def conda_name(package: str) -> str | None:
    """Return what a conda package is elsewhere: a distribution, "", "system:NAME" or None.

    A name that no table has is never taken for a distribution of the same name: on an index it
    could be anybody's.
    """
    names = load_names()
    if package in names.conda:
        return names.conda[package]
    name = canonicalize_name(package)
    same = name in names.conda_same.names or name in load_conda_same()
    if same or is_known_distribution(name):
        return name
    plain = re.sub(r"-(cuda|cu)[\d-]+$", "", name)
    if plain != name and is_known_distribution(plain):
        return plain  # dgl-cuda11.3
    other = load_conda_names().distributions.get(package, ())
    return str(other[0]) if len(other) == 1 else None


def implied_framework(name: str) -> str | None:
    """Return the framework that a distribution needs: "torch" for lightning; else None."""
    for framework, patterns in load_names().implies.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return framework
    return None


def debian_name(package: str) -> str | None:
    """Return Debian's name of an Ubuntu package: "" where it has none, None if unknown.

    Names with the version of a compiler or a library's old release become the plain or the
    present one.
    """
    table = load_names().debian
    return next((table[name] for name in table if fnmatchcase(package, name)), None)
