"""What recipe and lock may contain on a shelf: nothing that leaves their image.

Rules are the same for publishing and for taking.  What a person reads (summary, notes) and what
runs inside the image only ([system] post, [run]) is free text; every other value is a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec
from packaging.requirements import Requirement

from envbuild.base.reference import parse_reference
from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.lock.model import Lock
from envbuild.lock.staleness import stale_reasons
from envbuild.names import Texts
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Recipe
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.shelf.sanitize import HIDING
from envbuild.toml import parse_toml, place_of

FREE_TEXT = (("recipe", "summary"), ("system", "post"), ("run",))
"""Keys whose text is for people, or runs inside the image and nowhere else."""
SHELL = re.compile(r"[`$;&|<>\\\"'\n\r\t\0(){}*?!]")
MARKER = re.compile(r";.*$")
"""The environment marker of a requirement (PEP 508), which has quotes and brackets of its own."""
URL = re.compile(r"(https|git\+https)://[^\s@:/]+(:\d+)?/\S*")
INDEX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""An index is named; where it is stands in everybody's own settings."""
SCRIPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*){0,4}")
MATCH_SPEC = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_.-]*::)?[A-Za-z0-9_][A-Za-z0-9_.<>=!~*,+ \[\]-]{0,199}"
)


def refuse_recipe(text: str, where: str) -> None:
    """Raise UsageError, naming line and key, for a recipe that leads out of its build."""
    data = parse_toml(text, where)
    if "files" in data:
        raise _policy_error(
            where, text, ("files",), "[files] reads from the folder of whoever wrote it"
        )
    for keys, value in _string_values(data, ()):
        if not any(keys[: len(free)] == free for free in FREE_TEXT):
            _refuse_value(keys, value, where, text)
    for keys, value in _string_values(data, ()):
        if keys[0] != "run" and HIDING.search(value):
            raise _policy_error(
                where, text, keys, f"{value!r} has a character that hides what a terminal shows"
            )


def _refuse_value(keys: Texts, value: str, where: str, text: str) -> None:
    if keys[:2] == ("base", "image"):
        _refuse_base(value, where, text)
    elif keys[:2] in (("python", "dependencies"), ("base", "framework")):
        _refuse_requirement(keys, value, where, text)
    elif keys[:2] == ("conda", "dependencies"):
        # bounds are "<" and ">", builds and flags "*" and brackets; an address has a "/"
        if not MATCH_SPEC.fullmatch(value):
            what = f"{value!r} has a character that no plain match spec has"
            raise _policy_error(where, text, keys, what)
    elif keys[:2] == ("check", "script"):
        if not SCRIPT.fullmatch(value):
            raise _policy_error(
                where, text, keys, f"{value!r} is not a plain path below the recipe's folder"
            )
    elif keys[:2] == ("python", "indexes") and not INDEX.fullmatch(value):
        raise _policy_error(where, text, keys, f"{value!r} is not a valid index name")
    else:
        refused = _why_refused(value)
        if refused:
            raise _policy_error(where, text, keys, f"{value!r} {refused}")


def _why_refused(value: str) -> str | None:
    """Return why a value is more than a plain word, None where it is one."""
    if re.search(r"(?i)(^|[^a-z])file:", value):
        return "names a file of one machine"
    if value.startswith(("/", "~", "-", ".")) or ".." in PurePosixPath(value).parts:
        return "is a path of one machine, or looks like an option"
    if SHELL.search(value):
        return "has a character that a shell would read"
    return None


def _refuse_base(value: str, where: str, text: str) -> None:
    if not parse_reference(value).kind.is_portable:
        what = f"{value!r} is an image of one machine; a shared recipe starts from a registry or a bootstrap"
        raise _policy_error(where, text, ("base", "image"), what)
    refused = _why_refused(value)
    if refused:
        raise _policy_error(where, text, ("base", "image"), f"{value!r} {refused}")


def _refuse_requirement(keys: Texts, value: str, where: str, text: str) -> None:
    try:
        requirement = Requirement(value)
    except NO_REQUIREMENT:
        raise _policy_error(
            where, text, keys, f"{value!r} is not a requirement, but may be a path"
        ) from None
    if requirement.url and not URL.fullmatch(requirement.url):
        raise _policy_error(
            where, text, keys, f"{value!r} is fetched from {requirement.url}, which is not https"
        )
    if requirement.url and SHELL.search(requirement.url):
        raise _policy_error(where, text, keys, f"{value!r} has a character that a shell would read")
    if requirement.url is None and re.search(r"[`$&|\\\n\r\t\0{}?]", MARKER.sub("", value)):
        raise _policy_error(where, text, keys, f"{value!r} has a character that a shell would read")


def _policy_error(where: str, text: str, keys: Texts, what: str) -> UsageError:
    hint = "a recipe on a shelf must work everywhere: paths and settings of one machine stay in the recipe of that machine"
    key = " ".join((f"[{keys[0]}]", *keys[1:2]))
    return UsageError(
        f"{key}: {what}",
        where=place_of(where, text, *keys),
        hint=hint,
    )


def refuse_lock(recipe: Recipe, lock: Lock, where: str) -> None:
    """Raise for a lock that is another recipe's, or that says what envbuild writes into none.

    IntegrityError: it does not belong to the recipe.  UsageError: a value leads out of the build,
    or no definition can carry it.
    """
    reasons = stale_reasons(recipe, lock)
    if reasons or lock.name != recipe.name:
        what = f"is no lock of this recipe: {'; '.join(reasons) or f'it is for {lock.name}'}"
        raise IntegrityError(what, where=where)
    if (
        lock.base.reference != (recipe.base.image or recipe.base.bootstrap)
        or lock.platform != recipe.base.platform
    ):
        raise IntegrityError(
            f"starts from {lock.base.reference!r}, which the recipe does not", where=where
        )
    for index in sorted({package.index for package in lock.python if package.index}):
        if not INDEX.fullmatch(index):
            raise UsageError(f"{index!r} is not a valid index name", where=where)
    for keys, value in _string_values(msgspec.to_builtins(lock), ()):
        if HIDING.search(value):
            what = f"{'.'.join(keys)}: {value!r} has a character that hides what a terminal shows"
            raise UsageError(what, where=where)
    try:
        render_definition(plan_definition(recipe, lock))
    except EnvbuildError as error:
        raise UsageError(
            f"no definition can carry it: {error}", where=where, hint=error.hint
        ) from error


def _string_values(value: Any, keys: Texts) -> Iterator[tuple[Texts, str]]:
    """Yield every string of a document, the writer's own table keys included."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
                yield (*keys, key), key
            yield from _string_values(item, (*keys, key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _string_values(item, keys)
